//! Addresses of objects, and URLs.

use std::fmt;

use crate::error::{Fault, RemoteError};

const SCHEMES: [&str; 5] = ["https://", "http://", "s3://", "gs://", "az://"];

/// Whether an address is one that this crate reads.
pub fn is_remote(address: &[u8]) -> bool {
    (SCHEMES.iter()).any(|scheme| address.starts_with(scheme.as_bytes()))
}

/// Whether an address is that of an object which this crate writes.
pub(crate) fn is_written(address: &[u8]) -> bool {
    is_remote(address) && !address.starts_with(b"http")
}

/// The address of an object and that of a part of it, which follows the last colon behind the name
/// of the server or bucket. A query is never split; a colon in a name is written `%3A`.
pub fn split(address: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let whole = || (address.to_vec(), None);
    let Some(name_at) = address.windows(3).position(|it| it == b"://") else {
        return whole();
    };
    let is_web = address.starts_with(b"http");
    let query_at = address.iter().position(|&byte| byte == b'?' && is_web);
    let (path, query) = address.split_at(query_at.unwrap_or(address.len()));
    let server = &path[name_at + 3..];
    let Some(slash) = server.iter().position(|&byte| byte == b'/') else {
        return whole();
    };
    match path.iter().rposition(|&byte| byte == b':') {
        Some(colon) if colon > name_at + 3 + slash => {
            let object = [&path[..colon], query].concat();
            (object, Some(path[colon + 1..].to_vec()))
        }
        _ => whole(),
    }
}

/// An address without the parts that can hold secrets: a password before the server, and a query.
pub fn redacted(address: &str) -> String {
    if !is_remote(address.as_bytes()) {
        return address.to_owned();
    }
    let is_web = address.starts_with("http");
    let (path, query) = match address.split_once('?') {
        Some((path, _)) if is_web => (path, "?..."),
        _ => (address, ""),
    };
    let (scheme, rest) = path.split_once("://").unwrap_or_default();
    let (server, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
    format!("{scheme}://{server}{rest}{query}")
}

/// A URL of HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) is_https: bool,
    /// The server, with its port if the URL has one.
    pub(crate) server: String,
    /// The encoded path, with a leading slash.
    pub(crate) path: String,
    /// The encoded query.
    pub(crate) query: String,
    /// User and password.
    pub(crate) user: Option<String>,
}

impl Url {
    /// Takes a URL apart. Bytes that a URL may not have are encoded.
    pub(crate) fn parse(text: &str) -> Result<Url, RemoteError> {
        let wrong = |why: &str| {
            let name = redacted(text);
            Err(RemoteError::new(Fault::Lasting, format!("{name}: {why}")))
        };
        let (is_https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return wrong("neither https:// nor http://"),
        };
        let (server, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, server) = match server.rsplit_once('@') {
            Some((user, server)) => (Some(user.to_owned()), server),
            None => (None, server),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if server.is_empty() || !server.bytes().all(is_name) {
            return wrong("not the name of a server");
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix('/').unwrap_or(path);
        let keep = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        Ok(Url {
            is_https,
            server: server.to_owned(),
            path: format!("/{}", encode(path.as_bytes(), keep)),
            query: encode(query.as_bytes(), keep),
            user,
        })
    }

    /// The URL that a redirection leads to.
    pub(crate) fn join(&self, location: &str) -> Result<Url, RemoteError> {
        let scheme = if self.is_https { "https:" } else { "http:" };
        if location.starts_with("//") {
            return Url::parse(&format!("{scheme}{location}"));
        }
        if location.contains("://") {
            return Url::parse(location);
        }
        let directory = if location.starts_with('/') {
            ""
        } else {
            self.path.trim_end_matches(|letter| letter != '/')
        };
        let server = &self.server;
        Url::parse(&format!("{scheme}//{server}{directory}{location}"))
    }

    /// The same with more of a query, which is encoded.
    pub(crate) fn with_query(&self, query: &str) -> Url {
        let mark = if self.query.is_empty() || query.is_empty() {
            ""
        } else {
            "&"
        };
        Url {
            query: format!("{}{mark}{query}", self.query),
            ..self.clone()
        }
    }

    /// The server without its port.
    pub(crate) fn host(&self) -> &str {
        match self.server.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.server,
        }
    }

    /// Whether it leads to this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host();
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// The request's URL, without user and password.
    pub(crate) fn text(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let mark = if self.query.is_empty() { "" } else { "?" };
        let (server, path, query) = (&self.server, &self.path, &self.query);
        format!("{scheme}://{server}{path}{mark}{query}")
    }
}

/// Without secrets.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.text()))
    }
}

/// The bucket or container, and the key or name of an object, decoded.
pub(crate) fn bucket_and_key(address: &str) -> Result<(String, String), RemoteError> {
    let (_, rest) = address.split_once("://").unwrap_or_default();
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    let decoded = decode(key).and_then(|key| String::from_utf8(key).ok());
    match decoded {
        Some(key) if !bucket.is_empty() && !key.is_empty() => Ok((bucket.to_owned(), key)),
        _ => {
            let words = format!("{address}: not BUCKET/NAME, with a percent sign as %25");
            Err(RemoteError::new(Fault::Lasting, words))
        }
    }
}

/// Percent-encodes all bytes but those to keep (RFC 3986).
pub(crate) fn encode(bytes: &[u8], keep: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if keep(byte) {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
    }
    text
}

/// Whether a byte is unreserved in RFC 3986.
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// The path of an object below its bucket.
pub(crate) fn encode_key(key: &str) -> String {
    encode(key.as_bytes(), |byte| is_unreserved(byte) || byte == b'/')
}

/// Takes the encoding of [`encode`] away.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split_at_their_last_colon() {
        for (address, object, part) in [
            ("s3://b/x.btrfs:home", "s3://b/x.btrfs", Some("home")),
            ("s3://b/a:b:home/c", "s3://b/a:b", Some("home/c")),
            ("s3://b/x%3Ay", "s3://b/x%3Ay", None),
            ("s3://b/x?y:z", "s3://b/x?y", Some("z")),
            ("https://h:8080/x", "https://h:8080/x", None),
            ("https://h:8080/x:5", "https://h:8080/x", Some("5")),
            ("https://u:p@h/x", "https://u:p@h/x", None),
            ("https://h/x:home?t=1:2", "https://h/x?t=1:2", Some("home")),
            ("https://h/x?t=1:2", "https://h/x?t=1:2", None),
            ("https://h", "https://h", None),
        ] {
            let (found, found_part) = split(address.as_bytes());
            let found_part = found_part.map(|part| String::from_utf8(part).unwrap());
            assert_eq!(String::from_utf8(found).unwrap(), object);
            assert_eq!(found_part.as_deref(), part, "{address}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for (address, shown) in [
            ("https://u:p@h:1/a?sig=abc", "https://h:1/a?..."),
            ("s3://b/what?", "s3://b/what?"),
            ("https://h/a", "https://h/a"),
            ("plain?name", "plain?name"),
        ] {
            assert_eq!(redacted(address), shown);
        }
        let url = Url::parse("https://u:p@h/a b?sig=x").unwrap();
        assert_eq!(url.text(), "https://h/a%20b?sig=x");
        assert_eq!(url.to_string(), "https://h/a%20b?...");
        assert_eq!(url.user.as_deref(), Some("u:p"));
    }

    #[test]
    fn redirections_are_joined() {
        let url = Url::parse("https://h:1/a/b?c").unwrap();
        for (location, expected) in [
            ("https://other/x?y", "https://other/x?y"),
            ("//other/x", "https://other/x"),
            ("/x", "https://h:1/x"),
            ("x", "https://h:1/a/x"),
        ] {
            assert_eq!(url.join(location).unwrap().text(), expected);
        }
        assert!(url.join("ftp://h/x").is_err());
        assert!(Url::parse("http://127.0.0.1:5/").unwrap().is_loopback());
        assert!(Url::parse("http://[::1]:5/").unwrap().is_loopback());
        assert!(
            !Url::parse("http://127.0.0.1.example.org/")
                .unwrap()
                .is_loopback()
        );
    }

    #[test]
    fn keys_are_decoded_and_encoded() {
        let (bucket, key) = bucket_and_key("s3://b/a%3Ab%20c/+é").unwrap();
        assert_eq!((&*bucket, &*key), ("b", "a:b c/+é"));
        assert_eq!(encode_key(&key), "a%3Ab%20c/%2B%C3%A9");
        for wrong in ["s3://", "s3://b", "s3://b/", "s3://b/%zz", "s3://b/%ff"] {
            assert!(bucket_and_key(wrong).is_err(), "{wrong}");
        }
    }
}
