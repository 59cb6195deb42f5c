//! Google Cloud Storage: tokens as the tools of Google find them.

use std::fs;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::crypto::ring;
use tree::base64;
use tree::json::{Json, Object};
use ureq::tls::PrivateKey;

use crate::access::fetched::{Fetched, bearer, field};
use crate::error::{Fault, RemoteError};
use crate::http::{Headers, ask};
use crate::options::RemoteOptions;
use crate::sign::form;
use crate::url::{Url, bucket_and_key, encode_key};

const PLACES: &str = "GOOGLE_OAUTH_ACCESS_TOKEN, GOOGLE_APPLICATION_CREDENTIALS, \
    ~/.config/gcloud/application_default_credentials.json, or an account of this machine";
const TOKENS: &str = "https://oauth2.googleapis.com/token";
/// The scopes of a token.
const READS: &str = "https://www.googleapis.com/auth/devstorage.read_only";
const WRITES: &str = "https://www.googleapis.com/auth/devstorage.read_write";

/// An object of Google Cloud Storage.
pub(crate) struct Google {
    pub(crate) key: String,
    /// Whether the token of an account of a service is for writing, too.
    pub(crate) writes: bool,
    pub(crate) token: Fetched<Option<String>>,
}

impl Google {
    pub(crate) fn of(address: &str, options: &RemoteOptions) -> Result<(Url, Google), RemoteError> {
        let (bucket, key) = bucket_and_key(address)?;
        let name = encode_key(&key);
        let server = options.surroundings.variable("STORAGE_EMULATOR_HOST");
        let server = match server {
            Some(server) if server.contains("://") => server,
            Some(server) => format!("http://{server}"),
            None => "https://storage.googleapis.com".to_owned(),
        };
        let url = Url::parse(&format!("{}/{bucket}/{name}", server.trim_end_matches('/')))?;
        let google = Google {
            key,
            writes: false,
            token: Fetched::new(PLACES),
        };
        Ok((url, google))
    }

    pub(crate) fn sign(&self, options: &RemoteOptions) -> Result<Headers, RemoteError> {
        let scope = if self.writes { WRITES } else { READS };
        let token = self
            .token
            .find(&options.surroundings, || fetch(options, scope))?;
        Ok(bearer(token))
    }
}

/// The token of the first place that has one; `None` for public objects.
fn fetch(
    options: &RemoteOptions,
    scope: &str,
) -> Result<(Option<String>, &'static str), RemoteError> {
    let around = &options.surroundings;
    let names = ["GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"];
    if let Some(token) = around.first_of(&names) {
        return Ok((Some(token), "GOOGLE_OAUTH_ACCESS_TOKEN"));
    }
    if around.says("GOOGLE_SKIP_SIGNATURE") || around.variable("STORAGE_EMULATOR_HOST").is_some() {
        return Ok((None, ""));
    }
    let named = around.variable("GOOGLE_APPLICATION_CREDENTIALS");
    let home = around.variable("HOME").unwrap_or_default();
    let own = format!("{home}/.config/gcloud/application_default_credentials.json");
    let path = named.clone().unwrap_or(own);
    match fs::read(&path) {
        Ok(text) => {
            let wrong = || RemoteError::new(Fault::Lasting, format!("{path}: not credentials"));
            let account = Json::parse(&text).ok_or_else(wrong)?;
            let token = match account.text("type") {
                Some("service_account") => of_account(options, &account, scope),
                Some("authorized_user") => of_user(options, &account),
                kind => {
                    let kind = kind.unwrap_or("unknown");
                    let words = format!(
                        "{path}: credentials of the kind {kind:?}, which are not read; `gcloud auth print-access-token` gives a token for GOOGLE_OAUTH_ACCESS_TOKEN"
                    );
                    return Err(RemoteError::new(Fault::Lasting, words));
                }
            };
            let token = token?.ok_or_else(wrong)?;
            return Ok((Some(token), "GOOGLE_APPLICATION_CREDENTIALS"));
        }
        Err(error) if named.is_some() => {
            let words = format!("read {path}: {error}");
            return Err(RemoteError::new(Fault::Lasting, words));
        }
        Err(_) => {}
    }
    let server = around.variable("GCE_METADATA_HOST");
    let server = server.unwrap_or_else(|| "169.254.169.254".to_owned());
    let url = format!("http://{server}/computeMetadata/v1/instance/service-accounts/default/token");
    // On a machine of its own nothing answers there.
    match ask(options, "GET", &url, &[("metadata-flavor", "Google")], "") {
        Ok(answer) => Ok((field(&answer, "access_token"), "this machine's account")),
        Err(_) => Ok((None, "")),
    }
}

fn tokens(
    options: &RemoteOptions,
    url: &str,
    fields: &[(&str, &str)],
) -> Result<Option<String>, RemoteError> {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let answer = ask(options, "POST", url, &headers, &form(fields))?;
    Ok(field(&answer, "access_token"))
}

/// The token of a person, as `gcloud auth application-default login` leaves it.
fn of_user(options: &RemoteOptions, account: &Json) -> Result<Option<String>, RemoteError> {
    let text = |name| account.text(name).unwrap_or_default();
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", text("client_id")),
        ("client_secret", text("client_secret")),
        ("refresh_token", text("refresh_token")),
    ];
    tokens(options, TOKENS, &fields)
}

/// The token of an account of a service, for which its key signs (RFC 7523).
fn of_account(
    options: &RemoteOptions,
    account: &Json,
    scope: &str,
) -> Result<Option<String>, RemoteError> {
    let url = account.text("token_uri").unwrap_or(TOKENS);
    let Some(assertion) = assertion(options.surroundings.now(), account, url, scope) else {
        return Ok(None);
    };
    let kind = "urn:ietf:params:oauth:grant-type:jwt-bearer";
    tokens(
        options,
        url,
        &[("grant_type", kind), ("assertion", &assertion)],
    )
}

/// A JSON Web Token (RFC 7519), signed with RS256.
fn assertion(now: u64, account: &Json, url: &str, scope: &str) -> Option<String> {
    let encode = |bytes: &[u8]| {
        let text = base64::encode(bytes).replace('+', "-").replace('/', "_");
        text.trim_end_matches('=').to_owned()
    };
    let head = Object::new().text("alg", "RS256").text("typ", "JWT").line();
    let claims = Object::new()
        .text("iss", account.text("client_email")?)
        .text("scope", scope)
        .text("aud", url)
        .number("iat", now)
        .number("exp", now.saturating_add(3600))
        .line();
    let message = format!("{}.{}", encode(head.as_bytes()), encode(claims.as_bytes()));
    let key = PrivateKey::from_pem(account.text("private_key")?.as_bytes()).ok()?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.der().to_vec());
    let key = ring::default_provider()
        .key_provider
        .load_private_key(key.into())
        .ok()?;
    let key: Arc<dyn rustls::sign::SigningKey> = key;
    let signer = key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])?;
    let signature = signer.sign(message.as_bytes()).ok()?;
    Some(format!("{message}.{}", encode(&signature)))
}
