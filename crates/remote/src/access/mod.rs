//! Where an object is, and the credentials that its server wants.

mod aws;
mod azure;
mod google;

use std::sync::{Mutex, PoisonError};

use tree::base64;
use tree::json::Json;

use crate::error::RemoteError;
use crate::http::Headers;
use crate::url::Url;
use crate::{RemoteOptions, Surroundings};

use aws::Aws;
pub(crate) use aws::element;
use azure::Azure;
use google::Google;

/// For how long credentials that can end are used before they are fetched again, in seconds: those
/// of a machine are replaced at least five minutes before they end.
const CREDENTIALS_SECONDS: u64 = 240;

/// How an object is reached.
pub(crate) enum Access {
    /// A file of a web server, with `authorization` for the user in its URL.
    Web(Headers),
    S3(Aws),
    Google(Google),
    Azure(Azure),
}

impl Access {
    /// The URL of an object, and the way to it.
    pub(crate) fn of(address: &str, options: &RemoteOptions) -> Result<(Url, Access), RemoteError> {
        let scheme = address.split("://").next().unwrap_or_default();
        Ok(match scheme {
            "s3" => {
                let (url, aws) = Aws::of(address, options)?;
                (url, Access::S3(aws))
            }
            "gs" => {
                let (url, google) = Google::of(address, options)?;
                (url, Access::Google(google))
            }
            "az" => {
                let (url, azure) = Azure::of(address, options)?;
                (url, Access::Azure(azure))
            }
            _ => {
                let url = Url::parse(address)?;
                let basic = url.user.iter().map(|user| {
                    let value = format!("Basic {}", base64::encode(user.as_bytes()));
                    ("authorization".to_owned(), value)
                });
                let headers = basic.collect();
                (url, Access::Web(headers))
            }
        })
    }

    /// The headers with secrets for a request with these other headers.
    pub(crate) fn sign(
        &self,
        url: &Url,
        headers: &Headers,
        options: &RemoteOptions,
    ) -> Result<Headers, RemoteError> {
        match self {
            Access::Web(headers) => Ok(headers.clone()),
            Access::S3(aws) => aws.sign(url, headers, options),
            Access::Google(google) => google.sign(options),
            Access::Azure(azure) => azure.sign(url, headers, options),
        }
    }

    /// The encoding that is accepted. Google decompresses what is stored compressed, unless that is
    /// accepted as it is.
    pub(crate) fn encoding(&self) -> &'static str {
        match self {
            Access::Google(_) => "gzip",
            _ => "identity",
        }
    }

    /// Where the object is after all, if an answer says that its bucket is in another region.
    pub(crate) fn moved(&mut self, region: &str) -> Option<Url> {
        match self {
            Access::S3(aws) => aws.moved(region),
            _ => None,
        }
    }

    /// The credentials that were found, or the places where none were.
    pub(crate) fn looked_for(&self) -> String {
        match self {
            Access::Web(_) => "https://USER:PASSWORD@SERVER/ signs in".to_owned(),
            Access::S3(aws) => aws.credentials.looked_for(),
            Access::Google(google) => google.token.looked_for(),
            Access::Azure(azure) => azure.looked_for(),
        }
    }
}

/// Credentials that are fetched when they are needed, and again when they are old.
pub(crate) struct Fetched<T> {
    /// When, what, and where from; nowhere if the word is empty.
    found: Mutex<Option<(u64, T, &'static str)>>,
    places: &'static str,
}

impl<T: Clone> Fetched<T> {
    /// Not yet. The places are for messages.
    fn new(places: &'static str) -> Fetched<T> {
        Fetched {
            found: Mutex::default(),
            places,
        }
    }

    /// What was fetched lately, or is now, with the place that it came from.
    fn find(
        &self,
        surroundings: &Surroundings,
        fetch: impl FnOnce() -> Result<(T, &'static str), RemoteError>,
    ) -> Result<T, RemoteError> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let now = surroundings.now();
        match &*found {
            Some((at, value, _)) if now.saturating_sub(*at) < CREDENTIALS_SECONDS => {
                Ok(value.clone())
            }
            _ => {
                let (value, source) = fetch()?;
                *found = Some((now, value.clone(), source));
                Ok(value)
            }
        }
    }

    fn looked_for(&self) -> String {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match &*found {
            Some((_, _, source)) if !source.is_empty() => {
                format!("the credentials are those of {source}")
            }
            _ => format!("no credentials in {}", self.places),
        }
    }
}

/// The text in a field of an answer.
fn field(answer: &[u8], name: &str) -> Option<String> {
    Some(Json::parse(answer)?.text(name)?.to_owned())
}

/// The header of a token.
fn bearer(token: Option<String>) -> Headers {
    let header = |token| ("authorization".to_owned(), format!("Bearer {token}"));
    token.map(header).into_iter().collect()
}
