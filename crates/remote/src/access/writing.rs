//! The headers, queries and bodies in which stores differ when an object is written: S3 and Google
//! have uploads with numbered parts, Azure has blocks with names that a list makes a blob.

use std::collections::HashMap;

use md5::{Digest, Md5};
use tree::base64;

use crate::access::{Access, element, elements};
use crate::http::Headers;
use crate::sign::hexadecimal;
use crate::url::{Url, encode, encode_key, is_unreserved};

/// Parts with bytes of an object; stores accept one more.
const PARTS_MAX: u32 = 9999;
/// Those of Azure, whose blocks have at most 4000 MiB: the next ones have 4096.
const BLOCKS_MAX: u32 = 9000;

/// A part that the store holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredPart {
    pub(crate) bytes: u64,
    /// The name of a block, in Azure.
    pub(crate) etag: String,
    /// The SHA-256 in Base64; empty if the store does not say it.
    pub(crate) sha256: String,
}

/// The parts that a store holds.
pub(crate) type PartsByNumber = HashMap<u32, StoredPart>;

fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

impl Access {
    /// Asks for the right to write, where credentials say for how much they are good.
    pub(crate) fn will_write(&mut self) {
        if let Access::Google(google) = self {
            google.writes = true;
        }
    }

    /// How many parts with bytes an object has at most.
    pub(crate) fn parts_max(&self) -> u32 {
        match self {
            Access::Azure(_) => BLOCKS_MAX,
            _ => PARTS_MAX,
        }
    }

    /// The header with the text by which an object is known again. Azure's names are identifiers.
    pub(crate) fn note_header(&self) -> &'static str {
        match self {
            Access::Azure(_) => "x-ms-meta-restowsource",
            Access::Google(_) => "x-goog-meta-restow-source",
            _ => "x-amz-meta-restow-source",
        }
    }

    /// The checksum by which a store refuses bytes that changed on their way.
    pub(crate) fn checked(&self, bytes: &[u8], digest: &[u8; 32]) -> Headers {
        let pair = |name: &str, value: String| (name.to_owned(), value);
        match self {
            Access::Azure(_) => vec![
                pair("content-md5", base64::encode(&md5(bytes))),
                pair("content-type", "application/octet-stream".to_owned()),
            ],
            Access::Google(_) => {
                vec![pair(
                    "x-goog-hash",
                    format!("md5={}", base64::encode(&md5(bytes))),
                )]
            }
            _ => vec![
                pair("x-amz-checksum-sha256", base64::encode(digest)),
                pair("x-amz-content-sha256", hexadecimal(digest)),
            ],
        }
    }

    /// The headers by which all bytes of an object are sent at once.
    pub(crate) fn whole(&self) -> Headers {
        match self {
            Access::Azure(_) => vec![("x-ms-blob-type".to_owned(), "BlockBlob".to_owned())],
            _ => Headers::new(),
        }
    }

    /// The header of a request that makes an object only if its name is free.
    pub(crate) fn if_absent(&self) -> (String, String) {
        match self {
            Access::Google(_) => ("x-goog-if-generation-match".into(), "0".into()),
            _ => ("if-none-match".into(), "*".into()),
        }
    }

    /// Whether an upload can be completed on the condition that the name is free.
    pub(crate) fn has_condition(&self) -> bool {
        !matches!(self, Access::Google(_))
    }

    /// The headers with which an upload in parts begins; `None` where parts need no upload.
    pub(crate) fn beginning(&self) -> Option<Headers> {
        match self {
            Access::Azure(_) => None,
            Access::Google(_) => Some(Headers::new()),
            _ => {
                let algorithm = ("x-amz-checksum-algorithm".into(), "SHA256".into());
                Some(vec![algorithm])
            }
        }
    }

    /// The query that sends a part.
    pub(crate) fn part_query(&self, id: &str, number: u32, digest: &[u8; 32]) -> String {
        match self {
            Access::Azure(_) => {
                format!(
                    "blockid={}&comp=block",
                    encoded(&block_name(number, digest))
                )
            }
            _ => format!("partNumber={number}&uploadId={}", encoded(id)),
        }
    }

    /// The name of a part that was sent, of its answer's ETag.
    pub(crate) fn part_name(
        &self,
        etag: Option<&str>,
        number: u32,
        digest: &[u8; 32],
    ) -> Option<String> {
        match self {
            Access::Azure(_) => Some(block_name(number, digest)),
            _ => etag.map(str::to_owned),
        }
    }

    /// Whether a part that the store holds has these bytes, as far as the store says. The ETag of a
    /// part is its MD5 in Google's store.
    pub(crate) fn is_same(&self, found: &StoredPart, bytes: &[u8], digest: &[u8; 32]) -> bool {
        let is_google = matches!(self, Access::Google(_));
        found.bytes == bytes.len() as u64
            && (found.sha256 == base64::encode(digest)
                || is_google && found.etag.trim_matches('"') == hexadecimal(&md5(bytes)))
    }

    /// The method, the query and the body of the request that makes an object of its parts, in the
    /// order of their numbers from 1 on.
    pub(crate) fn completion(
        &self,
        id: &str,
        parts: &[StoredPart],
    ) -> (&'static str, String, String) {
        if matches!(self, Access::Azure(_)) {
            let blocks =
                (parts.iter()).map(|part| format!("<Uncommitted>{}</Uncommitted>", part.etag));
            let blocks: String = blocks.collect();
            let body = format!(
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{blocks}</BlockList>"
            );
            return ("PUT", "comp=blocklist".to_owned(), body);
        }
        let mut body = String::from("<CompleteMultipartUpload>");
        for (number, part) in (1..).zip(parts) {
            let etag = part.etag.replace('&', "&amp;").replace('"', "&quot;");
            let sum = match self {
                Access::Google(_) => String::new(),
                _ => format!("<ChecksumSHA256>{}</ChecksumSHA256>", part.sha256),
            };
            body +=
                &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{sum}</Part>");
        }
        body += "</CompleteMultipartUpload>";
        ("POST", format!("uploadId={}", encoded(id)), body)
    }

    /// The URL of the bucket of an object, and the object's name in it, where uploads are listed.
    pub(crate) fn bucket(&self, url: &Url) -> Option<(Url, String)> {
        let key = match self {
            Access::S3(aws) => &aws.key,
            Access::Google(google) => &google.key,
            _ => return None,
        };
        let bucket = Url {
            path: url.path.strip_suffix(&encode_key(key))?.to_owned(),
            ..url.clone()
        };
        Some((bucket, key.clone()))
    }

    /// Whether the store keeps parts without an upload, and drops them after a week.
    pub(crate) fn has_blocks(&self) -> bool {
        matches!(self, Access::Azure(_))
    }
}

/// The name of a block of Azure: its number and its SHA-256, so that blocks of other bytes have
/// other names.
fn block_name(number: u32, digest: &[u8; 32]) -> String {
    base64::encode(&[&number.to_be_bytes()[..], digest].concat())
}

/// The blocks of the answer that lists them, if their names are of [`block_name`].
pub(crate) fn listed_blocks(answer: &str) -> PartsByNumber {
    let blocks = elements(answer, "Block").filter_map(|block| {
        let etag = element(block, "Name")?.to_owned();
        let bytes = element(block, "Size")?.parse().ok()?;
        let name = base64::decode(etag.as_bytes())?;
        let (number, digest) = name.split_first_chunk()?;
        let sha256 = (digest.len() == 32).then(|| base64::encode(digest))?;
        let part = StoredPart {
            bytes,
            etag,
            sha256,
        };
        Some((u32::from_be_bytes(*number), part))
    });
    blocks.collect()
}

/// Encodes a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    encode(text.as_bytes(), is_unreserved)
}
