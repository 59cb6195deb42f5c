//! Requests over HTTP, with bounded waiting and redirections that keep secrets.

use std::fs;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, http::HeaderMap, http::Response};

use crate::error::{Fault, RemoteError};
use crate::options::{RemoteOptions, Surroundings};
use crate::url::Url;

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// How long a server may be silent, in the middle of an answer, too. An answer as a whole may take
/// any time.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a service of the machine may take.
const SERVICE_TIME: Duration = Duration::from_secs(2);
/// Bytes in a second that a connection takes at least.
const SLOWEST: u64 = 64 << 10;
/// Redirections that are followed for one request.
const REDIRECTIONS_MAX: usize = 5;
/// Bytes of an answer that is read whole, such as one with credentials.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Where distributions have the certificates of authorities.
const AUTHORITIES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Headers with names in lower case.
pub(crate) type Headers = Vec<(String, String)>;

/// Sends requests.
pub(crate) struct Http {
    agent: Agent,
    is_insecure: bool,
}

/// An answer, without its body.
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: HeaderMap,
    /// Where it came from, if requests were redirected.
    pub(crate) redirected: Option<Url>,
}

impl Head {
    /// A header of the answer.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Http {
    /// A client without connections, for a server.
    pub(crate) fn new(url: &Url, options: &RemoteOptions) -> Result<Http, RemoteError> {
        Ok(Http {
            agent: agent(url, options, None)?,
            is_insecure: options.insecure,
        })
    }

    /// Sends a request without a body, and follows redirections. `secret` headers go to the server
    /// of the URL alone.
    pub(crate) fn read(
        &self,
        url: &Url,
        headers: &Headers,
        secret: &Headers,
    ) -> Result<(Head, Body), RemoteError> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTIONS_MAX {
            self.refuse_plain(&at)?;
            let is_first_server = (at.is_https, &*at.server) == (url.is_https, &*url.server);
            let mut request = self.agent.get(at.text());
            let secret = secret.iter().filter(|_| is_first_server);
            for (name, value) in headers.iter().chain(secret) {
                request = request.header(name, value);
            }
            let answer = request.call().map_err(|error| of_ureq(&at, error))?;
            let status = answer.status().as_u16();
            let location = answer.headers().get("location");
            let location = location.and_then(|location| location.to_str().ok());
            // A signature is for one server: S3 says in which region it has to be made.
            let is_followed = matches!(status, 301..=303 | 307 | 308)
                && !answer.headers().contains_key("x-amz-bucket-region");
            match location.filter(|_| is_followed) {
                Some(location) => {
                    let next = at.join(location)?;
                    if at.is_https && !next.is_https {
                        let words = format!("{at} redirects to {next}, which is not encrypted");
                        return Err(RemoteError::new(Fault::Lasting, words));
                    }
                    at = next;
                }
                None => {
                    let redirected = (at != *url).then_some(at);
                    return Ok(head_of(answer, redirected));
                }
            }
        }
        let words = format!("{url} redirects more than {REDIRECTIONS_MAX} times");
        Err(RemoteError::new(Fault::Lasting, words))
    }

    /// Sends a request that changes something, or asks about the result. It is not redirected, and
    /// with `limit` takes no longer than that.
    pub(crate) fn write(
        &self,
        method: &str,
        url: &Url,
        headers: &Headers,
        body: &[u8],
        limit: Option<Duration>,
    ) -> Result<(Head, Body), RemoteError> {
        self.refuse_plain(url)?;
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(url.text());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let sending = SILENCE + Duration::from_secs(body.len() as u64 / SLOWEST);
        let is_bare = matches!(method, "GET" | "HEAD" | "DELETE");
        let answer = if is_bare {
            let request = request.body(()).map_err(ureq::Error::from);
            request.and_then(|request| {
                let request = self.agent.configure_request(request);
                self.agent.run(request.timeout_global(limit).build())
            })
        } else {
            let request = request.body(body).map_err(ureq::Error::from);
            request.and_then(|request| {
                let request = self.agent.configure_request(request);
                self.agent
                    .run(request.timeout_send_body(Some(sending)).build())
            })
        };
        Ok(head_of(answer.map_err(|error| of_ureq(url, error))?, None))
    }

    fn refuse_plain(&self, url: &Url) -> Result<(), RemoteError> {
        if url.is_https || url.is_loopback() || self.is_insecure {
            return Ok(());
        }
        let words = format!("{url} is not encrypted; https:// is, and --insecure reads it anyway");
        Err(RemoteError::new(Fault::Lasting, words))
    }
}

/// With `limit`, for a whole request.
fn agent(
    url: &Url,
    options: &RemoteOptions,
    limit: Option<Duration>,
) -> Result<Agent, RemoteError> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("restow/", env!("CARGO_PKG_VERSION")))
        .accept("*/*")
        .timeout_connect(Some(CONNECT_TIME))
        .timeout_resolve(Some(CONNECT_TIME))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .timeout_global(limit);
    let config = if url.is_https {
        let provider = Arc::new(ring::default_provider());
        let tls = TlsConfig::builder().root_certs(authorities(&options.surroundings)?);
        let tls = tls.unversioned_rustls_crypto_provider(provider);
        config.tls_config(tls.build())
    } else {
        // Neither this machine's servers nor those with its credentials are behind a proxy.
        config.proxy(None)
    };
    Ok(Agent::new_with_config(config.build()))
}

fn head_of(answer: Response<Body>, redirected: Option<Url>) -> (Head, Body) {
    let (parts, body) = answer.into_parts();
    let head = Head {
        status: parts.status.as_u16(),
        headers: parts.headers,
        redirected,
    };
    (head, body)
}

/// Reads an answer that holds a text.
pub(crate) fn text(body: &mut Body) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    body.as_reader()
        .take(TEXT_BYTES_MAX)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// The authorities whose certificates are believed: of `SSL_CERT_FILE`, or the system's.
fn authorities(surroundings: &Surroundings) -> Result<RootCerts, RemoteError> {
    let given = ["SSL_CERT_FILE", "AWS_CA_BUNDLE"];
    let given = surroundings.first_of(&given);
    let paths = match &given {
        Some(path) => vec![&**path],
        None => AUTHORITIES.to_vec(),
    };
    let found = paths.iter().find_map(|path| fs::read(path).ok());
    let found = found.unwrap_or_default();
    let certificates = parse_pem(&found).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        let paths = paths.join(", ");
        let words = format!(
            "no certificates of authorities in {paths}; install ca-certificates, or name a file in SSL_CERT_FILE"
        );
        return Err(RemoteError::new(Fault::Lasting, words));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// Asks a service for credentials: one of a cloud, or the machine's own, which answers at once or
/// is not there. The answer's text, if the status is that of success. Not redirected.
pub(crate) fn ask(
    options: &RemoteOptions,
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Vec<u8>, RemoteError> {
    let url = Url::parse(url)?;
    let limit = if url.is_https { SILENCE } else { SERVICE_TIME };
    let agent = agent(&url, options, Some(limit))?;
    let mut request = ureq::http::Request::builder()
        .method(method)
        .uri(url.text());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = match method {
        "GET" => agent.run(
            request
                .body(())
                .map_err(|error| of_ureq(&url, error.into()))?,
        ),
        _ => {
            let request = request.body(body.to_owned());
            agent.run(request.map_err(|error| of_ureq(&url, error.into()))?)
        }
    };
    let mut answer = answer.map_err(|error| of_ureq(&url, error))?;
    let status = answer.status().as_u16();
    if status != 200 {
        let words = format!("{url}: status {status}");
        return Err(RemoteError::new(of_status(status), words));
    }
    text(answer.body_mut()).map_err(|error| of_ureq(&url, error.into()))
}

/// Whose fault a status is that is not of success.
pub(crate) fn of_status(status: u16) -> Fault {
    match status {
        408 | 429 | 500 | 502 | 503 | 504 => Fault::Temporary,
        401 | 403 => Fault::Denied,
        _ => Fault::Lasting,
    }
}

/// The error of a request or an answer.
pub(crate) fn of_ureq(url: &Url, error: ureq::Error) -> RemoteError {
    use ureq::Error::{
        BadUri, ConnectProxyFailed, ConnectionFailed, HostNotFound, Io, Rustls, Timeout,
    };
    let server = &url.server;
    let (fault, why) = match &error {
        Io(error) => match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => {
                (Fault::Lasting, error.to_string())
            }
            io::ErrorKind::InvalidData => (Fault::Lasting, error.to_string()),
            io::ErrorKind::UnexpectedEof => (
                Fault::Temporary,
                "the connection ended within an answer".to_owned(),
            ),
            // The system's words for a name that is unknown, and not just now.
            _ if error.to_string().contains("Name or service not known") => {
                (Fault::Lasting, "no server of this name".to_owned())
            }
            _ => (Fault::Temporary, error.to_string()),
        },
        Timeout(_) => (Fault::Temporary, "no answer in time".to_owned()),
        ConnectionFailed => (Fault::Temporary, error.to_string()),
        HostNotFound => (Fault::Lasting, "no server of this name".to_owned()),
        Rustls(error) => (Fault::Lasting, error.to_string()),
        // Its words hold the address.
        BadUri(_) => (Fault::Lasting, "not an address".to_owned()),
        ConnectProxyFailed(_) => (Fault::Temporary, "the proxy does not connect".to_owned()),
        error => (Fault::Lasting, error.to_string()),
    };
    // Without the number of the system's error.
    let why = why.split(" (os error").next().unwrap_or_default();
    RemoteError::new(fault, format!("{server}: {why}"))
}
