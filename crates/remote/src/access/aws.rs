//! S3: the place of a bucket, and credentials as the tools of Amazon find them.

use std::fs;
use std::sync::{Mutex, PoisonError};

use crate::access::fetched::{Fetched, field};
use crate::error::{Fault, RemoteError};
use crate::http::{Headers, ask};
use crate::options::{RemoteOptions, Surroundings};
use crate::sign::{Moment, S3Key, form, hexadecimal, s3_authorization};
use crate::url::{Url, bucket_and_key, encode_key};

const PLACES: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_WEB_IDENTITY_TOKEN_FILE, \
    ~/.aws/credentials, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or a role of this machine \
    (of SSO, `aws configure export-credentials --format env` gives them)";

/// An object of S3.
pub(crate) struct Aws {
    bucket: String,
    pub(crate) key: String,
    region: Mutex<String>,
    /// A server other than Amazon's.
    endpoint: Option<Url>,
    pub(crate) credentials: Fetched<Option<Key>>,
}

/// A key, whose token is there if it can end.
#[derive(Clone)]
pub(crate) struct Key {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Aws {
    pub(crate) fn of(address: &str, options: &RemoteOptions) -> Result<(Url, Aws), RemoteError> {
        let (bucket, key) = bucket_and_key(address)?;
        let around = &options.surroundings;
        let region = around.first_of(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        let region = region.or_else(|| Profile::read(around).value("region"));
        let endpoint =
            around.first_of(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        let endpoint = endpoint.or_else(|| Profile::read(around).value("endpoint_url"));
        let aws = Aws {
            bucket,
            key,
            region: Mutex::new(region.unwrap_or_else(|| "us-east-1".to_owned())),
            endpoint: endpoint.as_deref().map(Url::parse).transpose()?,
            credentials: Fetched::new(PLACES),
        };
        Ok((aws.url()?, aws))
    }

    fn region(&self) -> String {
        let region = self.region.lock();
        region.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn url(&self) -> Result<Url, RemoteError> {
        let (bucket, key) = (&self.bucket, encode_key(&self.key));
        if let Some(endpoint) = &self.endpoint {
            let above = endpoint.path.trim_end_matches('/');
            return Ok(Url {
                path: format!("{above}/{bucket}/{key}"),
                ..endpoint.clone()
            });
        }
        let region = self.region();
        let top = if region.starts_with("cn-") { ".cn" } else { "" };
        let server = format!("s3.{region}.amazonaws.com{top}");
        // The certificate has no name with more dots.
        let is_label =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if bucket.bytes().all(is_label) {
            Url::parse(&format!("https://{bucket}.{server}/{key}"))
        } else {
            Url::parse(&format!("https://{server}/{bucket}/{key}"))
        }
    }

    /// The place in another region; `None` if it is that already.
    pub(crate) fn moved(&mut self, region: &str) -> Option<Url> {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if region == self.region() || !region.bytes().all(is_name) {
            return None;
        }
        self.region = Mutex::new(region.to_owned());
        self.url().ok()
    }

    pub(crate) fn sign(
        &self,
        method: &str,
        url: &Url,
        (headers, body): (&Headers, &[u8]),
        options: &RemoteOptions,
    ) -> Result<Headers, RemoteError> {
        const SHA256: &str = "x-amz-content-sha256";
        let around = &options.surroundings;
        let fetch = || fetch(options, &self.region());
        let Some(key) = self.credentials.find(around, fetch)? else {
            return Ok(Vec::new());
        };
        let moment = Moment::of(around.now());
        let mut own = vec![("x-amz-date".to_owned(), moment.basic())];
        let known = headers.iter().find(|(name, _)| name == SHA256);
        let payload = known.map(|(_, digest)| digest.clone());
        let payload = payload.unwrap_or_else(|| hexadecimal(&tree::sha256(body)));
        if known.is_none() {
            own.push((SHA256.to_owned(), payload.clone()));
        }
        if let Some(token) = key.token {
            own.push(("x-amz-security-token".to_owned(), token));
        }
        let mut signed = own.clone();
        let signs = ["range", "if-match", "if-none-match"];
        let is_signed = |name: &str| signs.contains(&name) || name.starts_with("x-amz-");
        let others = headers.iter().filter(|(name, _)| is_signed(name));
        signed.extend(others.cloned());
        signed.push(("host".to_owned(), url.server.clone()));
        signed.sort_unstable();
        let key = S3Key {
            id: &key.id,
            secret: &key.secret,
            region: &self.region(),
        };
        let value = s3_authorization(&key, method, url, &signed, &payload, &moment);
        own.push(("authorization".to_owned(), value));
        Ok(own)
    }
}

/// The key of the first place that has one; `None` for requests without a signature.
fn fetch(
    options: &RemoteOptions,
    region: &str,
) -> Result<(Option<Key>, &'static str), RemoteError> {
    let around = &options.surroundings;
    if around.says("AWS_SKIP_SIGNATURE") || around.says("AWS_NO_SIGN_REQUEST") {
        return Ok((None, ""));
    }
    let variable = |name| around.variable(name);
    if let (Some(id), Some(secret)) = (
        variable("AWS_ACCESS_KEY_ID"),
        variable("AWS_SECRET_ACCESS_KEY"),
    ) {
        let token = variable("AWS_SESSION_TOKEN");
        return Ok((Some(Key { id, secret, token }), "AWS_ACCESS_KEY_ID"));
    }
    if let (Some(file), Some(role)) = (
        variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
        variable("AWS_ROLE_ARN"),
    ) {
        let key = of_web_identity(options, region, &file, &role)?;
        return Ok((Some(key), "AWS_WEB_IDENTITY_TOKEN_FILE"));
    }
    let profile = Profile::read(around);
    if let (Some(id), Some(secret)) = (
        profile.value("aws_access_key_id"),
        profile.value("aws_secret_access_key"),
    ) {
        let token = profile.value("aws_session_token");
        return Ok((Some(Key { id, secret, token }), "~/.aws/credentials"));
    }
    let relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let relative = relative.map(|path| format!("http://169.254.170.2{path}"));
    if let Some(url) = relative.or_else(|| variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
        let key = of_container(options, &url)?;
        return Ok((Some(key), "AWS_CONTAINER_CREDENTIALS_*"));
    }
    if around.says("AWS_EC2_METADATA_DISABLED") {
        return Ok((None, ""));
    }
    // On a machine of its own nothing answers there.
    match of_machine(options) {
        Ok(key) => Ok((Some(key), "this machine's role")),
        Err(_) => Ok((None, "")),
    }
}

fn wrong(what: &str) -> RemoteError {
    RemoteError::new(
        Fault::Denied,
        format!("{what}: no credentials in the answer"),
    )
}

/// A key in the form that the services of a machine have.
fn key_of(answer: &[u8]) -> Option<Key> {
    Some(Key {
        id: field(answer, "AccessKeyId")?,
        secret: field(answer, "SecretAccessKey")?,
        token: field(answer, "Token"),
    })
}

fn of_web_identity(
    options: &RemoteOptions,
    region: &str,
    file: &str,
    role: &str,
) -> Result<Key, RemoteError> {
    let around = &options.surroundings;
    let token = read_secret(file)?;
    let session = around.variable("AWS_ROLE_SESSION_NAME");
    let endpoint = around.variable("AWS_ENDPOINT_URL_STS");
    let url = endpoint.unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com/"));
    let fields = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", role),
        ("RoleSessionName", session.as_deref().unwrap_or("restow")),
        ("WebIdentityToken", &token),
    ];
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let answer = ask(options, "POST", &url, &headers, &form(&fields))?;
    let answer = String::from_utf8_lossy(&answer);
    let value = |name| element(&answer, name).map(str::to_owned);
    let key = || {
        Some(Key {
            id: value("AccessKeyId")?,
            secret: value("SecretAccessKey")?,
            token: value("SessionToken"),
        })
    };
    key().ok_or_else(|| wrong("AssumeRoleWithWebIdentity"))
}

fn of_container(options: &RemoteOptions, url: &str) -> Result<Key, RemoteError> {
    let parsed = Url::parse(url)?;
    let is_own =
        parsed.is_loopback() || ["169.254.170.2", "169.254.170.23"].contains(&parsed.host());
    if !parsed.is_https && !is_own {
        let words = format!("AWS_CONTAINER_CREDENTIALS_FULL_URI: {parsed} is not encrypted");
        return Err(RemoteError::new(Fault::Lasting, words));
    }
    let around = &options.surroundings;
    let token = match around.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(file) => Some(read_secret(&file)?),
        None => around.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    };
    let headers: Vec<(&str, &str)> = (token.iter()).map(|it| ("authorization", &**it)).collect();
    let answer = ask(options, "GET", url, &headers, "")?;
    key_of(&answer).ok_or_else(|| wrong("container"))
}

/// The key of the machine's role, by version 2 of its service (IMDSv2).
fn of_machine(options: &RemoteOptions) -> Result<Key, RemoteError> {
    let server = options
        .surroundings
        .variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let server = server.unwrap_or_else(|| "http://169.254.169.254".to_owned());
    let server = server.trim_end_matches('/');
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| wrong("this machine"));
    let lifetime = [("x-aws-ec2-metadata-token-ttl-seconds", "600")];
    let token = ask(
        options,
        "PUT",
        &format!("{server}/latest/api/token"),
        &lifetime,
        "",
    )?;
    let token = text(token)?;
    let headers = [("x-aws-ec2-metadata-token", token.trim())];
    let list = format!("{server}/latest/meta-data/iam/security-credentials/");
    let role = text(ask(options, "GET", &list, &headers, "")?)?;
    let role = role.lines().next().unwrap_or_default();
    let answer = ask(options, "GET", &format!("{list}{role}"), &headers, "")?;
    key_of(&answer).ok_or_else(|| wrong("this machine"))
}

/// A file with a secret.
pub(super) fn read_secret(file: &str) -> Result<String, RemoteError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(RemoteError::new(
            Fault::Lasting,
            format!("read {file}: {error}"),
        )),
    }
}

/// The text of the first element of this name in a text of XML.
pub(crate) fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split('<').next()
}

/// The texts of all elements of this name, with the elements in them.
pub(crate) fn elements<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&begin)?;
        let (inner, after) = after.split_once(&end)?;
        rest = after;
        Some(inner)
    })
}

/// The settings of the profile that `AWS_PROFILE` names, in the files of Amazon's tools.
struct Profile(Vec<(String, String)>);

impl Profile {
    fn read(around: &Surroundings) -> Profile {
        let name = around
            .variable("AWS_PROFILE")
            .unwrap_or_else(|| "default".to_owned());
        let home = around.variable("HOME").unwrap_or_default();
        let path = |variable, file: &str| {
            let own = around.variable(variable);
            own.unwrap_or_else(|| format!("{home}/.aws/{file}"))
        };
        let mut values = Vec::new();
        for (path, section) in [
            (
                path("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
                name.clone(),
            ),
            (path("AWS_CONFIG_FILE", "config"), format!("profile {name}")),
        ] {
            let text = fs::read_to_string(path).unwrap_or_default();
            values.extend(Profile::parse(&text, &[&section, &name]));
        }
        Profile(values)
    }

    /// The values in the sections of these names.
    fn parse(text: &str, sections: &[&str]) -> Vec<(String, String)> {
        let (mut is_wanted, mut values) = (false, Vec::new());
        for line in text.lines() {
            // The settings of a service are indented below its name.
            if line.starts_with(['#', ';', ' ', '\t']) {
                continue;
            }
            if let Some(name) = line
                .trim_end()
                .strip_prefix('[')
                .and_then(|it| it.strip_suffix(']'))
            {
                is_wanted = sections.contains(&name.trim());
            } else if let Some((name, value)) = line.split_once('=').filter(|_| is_wanted) {
                values.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
        values
    }

    fn value(&self, name: &str) -> Option<String> {
        let found = self
            .0
            .iter()
            .find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(address: &str, variables: &'static [(&str, &str)]) -> String {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let options = RemoteOptions::default().surroundings(Surroundings::new(variable, || 0));
        Aws::of(address, &options).unwrap().0.text()
    }

    #[test]
    fn buckets_have_their_servers() {
        assert_eq!(
            url("s3://b/x y", &[]),
            "https://b.s3.us-east-1.amazonaws.com/x%20y"
        );
        assert_eq!(
            url("s3://b.c/x", &[("AWS_REGION", "eu-west-1")]),
            "https://s3.eu-west-1.amazonaws.com/b.c/x"
        );
        assert_eq!(
            url(
                "s3://b/x:y",
                &[("AWS_ENDPOINT_URL", "http://127.0.0.1:5/s3/")]
            ),
            "http://127.0.0.1:5/s3/b/x%3Ay"
        );
    }

    #[test]
    fn a_bucket_moves_once() {
        let (_, mut aws) = Aws::of("s3://b/x", &RemoteOptions::default()).unwrap();
        let url = aws.moved("eu-west-1").unwrap();
        assert_eq!(url.text(), "https://b.s3.eu-west-1.amazonaws.com/x");
        assert!(aws.moved("eu-west-1").is_none());
        assert!(aws.moved("evil.example.org/").is_none());
    }

    #[test]
    fn profiles_are_read() {
        let text =
            "[default]\nregion = a\n[profile it]\n# region=b\nregion=c\ns3 =\n  region = d\n";
        let values = Profile(Profile::parse(text, &["profile it", "it"]));
        assert_eq!(values.value("region").as_deref(), Some("c"));
        assert_eq!(values.value("s3"), None);
    }
}
