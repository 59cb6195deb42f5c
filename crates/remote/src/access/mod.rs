//! Where an object is, and the credentials that its server wants.

mod aws;
mod azure;
mod fetched;
mod google;
mod writing;

use tree::base64;

use crate::error::RemoteError;
use crate::http::Headers;
use crate::options::RemoteOptions;
use crate::url::Url;

use aws::Aws;
pub(crate) use aws::{element, elements};
use azure::Azure;
use google::Google;
pub(crate) use writing::{PartsByNumber, StoredPart, encoded, listed_blocks};

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

    /// The headers with secrets for a request with these other headers, and a body.
    pub(crate) fn sign(
        &self,
        method: &str,
        url: &Url,
        (headers, body): (&Headers, &[u8]),
        options: &RemoteOptions,
    ) -> Result<Headers, RemoteError> {
        match self {
            Access::Web(headers) => Ok(headers.clone()),
            Access::S3(aws) => aws.sign(method, url, (headers, body), options),
            Access::Google(google) => google.sign(options),
            Access::Azure(azure) => azure.sign(method, url, (headers, body), options),
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
