//! Azure: the account, and keys, signatures and tokens as the tools of Azure find them.

use tree::base64;

use crate::access::aws::read_secret;
use crate::access::fetched::{Fetched, bearer, field};
use crate::error::{Fault, RemoteError};
use crate::http::{Headers, ask};
use crate::options::{RemoteOptions, Surroundings};
use crate::sign::{Moment, azure_authorization, form};
use crate::url::{Url, bucket_and_key, encode_key};

const PLACES: &str = "AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_CONNECTION_STRING, \
    AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET with AZURE_CLIENT_ID and AZURE_TENANT_ID, or an \
    identity of this machine (`az account get-access-token --resource https://storage.azure.com` gives \
    a token for AZURE_STORAGE_TOKEN)";
/// The version of the interface.
const VERSION: &str = "2021-08-06";

/// A blob of Azure.
pub(crate) struct Azure {
    account: String,
    key: Option<Vec<u8>>,
    has_signature: bool,
    token: Fetched<Option<String>>,
}

impl Azure {
    pub(crate) fn of(address: &str, options: &RemoteOptions) -> Result<(Url, Azure), RemoteError> {
        let wrong = |words: &str| RemoteError::new(Fault::Lasting, words);
        let (container, name) = bucket_and_key(address)?;
        let around = &options.surroundings;
        let setting = |names: &[&str], field: &str| {
            let connection = around.variable("AZURE_STORAGE_CONNECTION_STRING");
            let in_connection = || {
                let connection = connection?;
                let mut fields = connection.split(';').filter_map(|it| it.split_once('='));
                fields
                    .find(|(name, _)| *name == field)
                    .map(|(_, value)| value.to_owned())
            };
            around.first_of(names).or_else(in_connection)
        };
        let account = setting(
            &["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"],
            "AccountName",
        );
        let account = account.ok_or_else(|| wrong("AZURE_STORAGE_ACCOUNT names no account"))?;
        let names = [
            "AZURE_STORAGE_KEY",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
        ];
        let key = setting(&names, "AccountKey");
        let is_wrong = || wrong("the key of the account is not Base64");
        let key = key
            .map(|key| base64::decode(key.as_bytes()).ok_or_else(is_wrong))
            .transpose()?;
        let names = ["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"];
        let signature = setting(&names, "SharedAccessSignature");
        let server = setting(&["AZURE_STORAGE_ENDPOINT"], "BlobEndpoint");
        let server = server.unwrap_or_else(|| format!("https://{account}.blob.core.windows.net"));
        let (server, name) = (server.trim_end_matches('/'), encode_key(&name));
        let mut url = Url::parse(&format!("{server}/{container}/{name}"))?;
        let signature = signature.filter(|_| key.is_none());
        if let Some(signature) = &signature {
            url.query = signature.trim_start_matches('?').to_owned();
        }
        let azure = Azure {
            account,
            key,
            has_signature: signature.is_some(),
            token: Fetched::new(PLACES),
        };
        Ok((url, azure))
    }

    pub(crate) fn sign(
        &self,
        method: &str,
        url: &Url,
        (headers, body): (&Headers, &[u8]),
        options: &RemoteOptions,
    ) -> Result<Headers, RemoteError> {
        let around = &options.surroundings;
        let mut own = vec![("x-ms-version".to_owned(), VERSION.to_owned())];
        if self.has_signature {
            return Ok(own);
        }
        own.push(("x-ms-date".to_owned(), Moment::of(around.now()).http()));
        match &self.key {
            Some(key) => {
                let all = [&own[..], headers].concat();
                let value = azure_authorization(&self.account, key, method, url, &all, body.len());
                own.push(("authorization".to_owned(), value));
            }
            None => {
                let token = self.token.find(around, || fetch(options, around))?;
                own.extend(bearer(token));
            }
        }
        Ok(own)
    }

    pub(crate) fn looked_for(&self) -> String {
        match (&self.key, self.has_signature) {
            (Some(_), _) => "the key is that of AZURE_STORAGE_KEY".to_owned(),
            (_, true) => "the signature is that of AZURE_STORAGE_SAS_TOKEN".to_owned(),
            _ => self.token.looked_for(),
        }
    }
}

/// The token of the first place that has one; `None` for public blobs.
fn fetch(
    options: &RemoteOptions,
    around: &Surroundings,
) -> Result<(Option<String>, &'static str), RemoteError> {
    const RESOURCE: &str = "https://storage.azure.com";
    let variable = |name| around.variable(name);
    if let Some(token) = variable("AZURE_STORAGE_TOKEN") {
        return Ok((Some(token), "AZURE_STORAGE_TOKEN"));
    }
    if around.says("AZURE_SKIP_SIGNATURE") {
        return Ok((None, ""));
    }
    if let (Some(client), Some(tenant)) = (variable("AZURE_CLIENT_ID"), variable("AZURE_TENANT_ID"))
    {
        let scope = format!("{RESOURCE}/.default");
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_id", &client),
            ("scope", &scope),
        ];
        let (secret, file) = (
            variable("AZURE_CLIENT_SECRET"),
            variable("AZURE_FEDERATED_TOKEN_FILE"),
        );
        let assertion = file.map(|file| read_secret(&file)).transpose()?;
        match (&assertion, &secret) {
            (Some(assertion), _) => {
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                fields.extend([
                    ("client_assertion_type", kind),
                    ("client_assertion", assertion),
                ]);
            }
            (None, Some(secret)) => fields.push(("client_secret", secret)),
            (None, None) => return Ok(of_machine(options, Some(&client))),
        }
        let authority = variable("AZURE_AUTHORITY_HOST");
        let authority = authority.unwrap_or_else(|| "https://login.microsoftonline.com".to_owned());
        let url = format!(
            "{}/{tenant}/oauth2/v2.0/token",
            authority.trim_end_matches('/')
        );
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let answer = ask(options, "POST", &url, &headers, &form(&fields))?;
        return Ok((field(&answer, "access_token"), "AZURE_CLIENT_ID"));
    }
    Ok(of_machine(options, variable("AZURE_CLIENT_ID").as_deref()))
}

/// The token of an identity of this machine, or none: elsewhere nothing answers there.
fn of_machine(options: &RemoteOptions, client: Option<&str>) -> (Option<String>, &'static str) {
    let mut fields = vec![
        ("api-version", "2018-02-01"),
        ("resource", "https://storage.azure.com/"),
    ];
    fields.extend(client.map(|client| ("client_id", client)));
    let url = format!(
        "http://169.254.169.254/metadata/identity/oauth2/token?{}",
        form(&fields)
    );
    match ask(options, "GET", &url, &[("metadata", "true")], "") {
        Ok(answer) => (field(&answer, "access_token"), "this machine's identity"),
        Err(_) => (None, ""),
    }
}
