//! The requests that write an object in parts.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tree::{ReadAt, Sha256, base64, sha256};
use ureq::Body;

use crate::access::{Access, PartsByNumber, StoredPart, element, elements, encoded, listed_blocks};
use crate::error::{Fault, RemoteError};
use crate::file::RemoteFile;
use crate::http::{Head, Headers, Http, text};
use crate::object::{Object, Start, pause, refusal};
use crate::options::RemoteOptions;
use crate::url::Url;

/// How long one try to remove an unfinished upload may take, when the program is asked to stop.
const ABORT_TIME: Duration = Duration::from_secs(4);
/// Lists of parts that are read: ten hold all parts of an upload.
const LISTS_MAX: usize = 12;

/// Where an object is written.
pub(crate) struct ObjectStore {
    url: Url,
    access: Access,
    http: Http,
    options: RemoteOptions,
    address: String,
    /// A request to make the object had no answer: it may be there.
    is_unsure: AtomicBool,
}

impl ObjectStore {
    /// The place of an object.
    pub(crate) fn of(address: &str, options: &RemoteOptions) -> Result<ObjectStore, RemoteError> {
        let (url, mut access) = Access::of(address, options)?;
        access.will_write();
        Ok(ObjectStore {
            http: Http::new(&url, options)?,
            url,
            access,
            options: options.clone(),
            address: address.to_owned(),
            is_unsure: AtomicBool::new(false),
        })
    }

    /// The note of the object of this name, if there is one; where the bucket is, too.
    /// Without the right to list a bucket, a store denies access to objects that do not exist: for
    /// those, the end of the upload decides.
    pub(crate) fn find(&mut self) -> Result<Option<String>, RemoteError> {
        loop {
            let (head, _) =
                self.retried("HEAD", "", &Headers::new(), b"", &[200, 404, 403, 301, 400])?;
            if head.status != 200
                && let Some(region) = head.header("x-amz-bucket-region")
                && let Some(url) = self.access.moved(region)
            {
                self.url = url;
                continue;
            }
            return match head.status {
                200 => {
                    let note = head.header(self.access.note_header());
                    Ok(Some(note.unwrap_or_default().to_owned()))
                }
                404 | 403 => Ok(None),
                _ => Err(self.refused(&head, "")),
            };
        }
    }

    /// Whether there is an object of this name.
    pub(crate) fn is_there(&self) -> Result<bool, RemoteError> {
        let (head, _) = self.retried("HEAD", "", &Headers::new(), b"", &[200, 404, 403])?;
        Ok(head.status == 200)
    }

    /// Writes a small object at once.
    pub(crate) fn put(
        &self,
        bytes: &[u8],
        note: Option<&str>,
        overwrite: bool,
    ) -> Result<StoredPart, RemoteError> {
        let digest = sha256(bytes);
        let part = StoredPart {
            bytes: bytes.len() as u64,
            etag: String::new(),
            sha256: base64::encode(&digest),
        };
        let mut headers = self.access.checked(bytes, &digest);
        headers.extend(self.access.whole());
        headers.extend(self.note(note));
        let made = self.create("PUT", "", headers, bytes, overwrite);
        self.sure(made, std::slice::from_ref(&part))?;
        Ok(part)
    }

    /// Begins an upload, and returns its name.
    pub(crate) fn begin(&self, note: Option<&str>) -> Result<String, RemoteError> {
        let Some(mut headers) = self.access.beginning() else {
            return Ok(String::new());
        };
        headers.extend(self.note(note));
        let (_, answer) = self.retried("POST", "uploads=", &headers, b"", &[200])?;
        let id = element(&answer, "UploadId").filter(|id| !id.is_empty());
        id.map(unescaped)
            .ok_or_else(|| RemoteError::new(Fault::Lasting, "the store gives an upload no name"))
    }

    /// Sends a part, unless `found` is the same.
    pub(crate) fn put_part(
        &self,
        id: &str,
        number: u32,
        bytes: &[u8],
        found: Option<&StoredPart>,
    ) -> Result<StoredPart, RemoteError> {
        let (access, digest) = (&self.access, sha256(bytes));
        let part = |etag| StoredPart {
            bytes: bytes.len() as u64,
            etag,
            sha256: base64::encode(&digest),
        };
        if let Some(found) = found.filter(|found| access.is_same(found, bytes, &digest)) {
            return Ok(part(found.etag.clone()));
        }
        let query = access.part_query(id, number, &digest);
        let headers = access.checked(bytes, &digest);
        let (head, _) = self.retried("PUT", &query, &headers, bytes, &[200, 201])?;
        let name = access.part_name(head.header("etag"), number, &digest);
        name.map(part)
            .ok_or_else(|| RemoteError::new(Fault::Lasting, "the store gives a part no ETag"))
    }

    /// Makes the object of its parts, in the order of their numbers from 1 on.
    pub(crate) fn complete(
        &self,
        id: &str,
        parts: &[StoredPart],
        note: Option<&str>,
        overwrite: bool,
    ) -> Result<(), RemoteError> {
        let (method, query, body) = self.access.completion(id, parts);
        // An upload has it from its beginning.
        let note = note.filter(|_| self.access.has_blocks());
        let overwrite = overwrite || !self.access.has_condition();
        let made = self.create(method, &query, self.note(note), body.as_bytes(), overwrite);
        let Some(answer) = self.sure(made, parts)? else {
            return Ok(());
        };
        let is_made = self.access.has_blocks() || element(&answer, "ETag").is_some();
        if is_made && element(&answer, "Code").is_none() {
            return Ok(());
        }
        // The status comes before the work is done.
        let code = element(&answer, "Code").unwrap_or("an answer that is not known");
        let fault = match code {
            "InternalError" | "SlowDown" | "ServiceUnavailable" => Fault::Temporary,
            "PreconditionFailed" => Fault::Exists,
            _ => Fault::Lasting,
        };
        let code: String = code
            .chars()
            .filter(|it| it.is_ascii_alphanumeric() || *it == ' ')
            .collect();
        let words = format!("the store does not complete the object: {code}");
        Err(RemoteError::new(fault, words))
    }

    /// The answer of a request that makes the object; `None` if that was made by an earlier one,
    /// whose answer was lost: then another one fails, and the object has these bytes.
    fn sure(
        &self,
        made: Result<String, RemoteError>,
        parts: &[StoredPart],
    ) -> Result<Option<String>, RemoteError> {
        match made {
            Err(error) if error.fault == Fault::Exists || error.fault == Fault::Lasting => {
                let is_unsure = self.is_unsure.load(Ordering::Relaxed);
                if is_unsure && self.read_back(parts).is_ok() {
                    return Ok(None);
                }
                Err(error)
            }
            made => made.map(Some),
        }
    }

    /// Reads the object and compares it with the sent parts.
    pub(crate) fn read_back(&self, parts: &[StoredPart]) -> io::Result<()> {
        let differs = || {
            let words = "the object does not read back as it was sent";
            RemoteError::new(Fault::Lasting, words)
        };
        let (object, Start::Bytes(start)) = Object::open(&self.address, &self.options)? else {
            return Err(differs().into());
        };
        let file = RemoteFile::new(object, start, &self.options);
        if file.size()? != parts.iter().map(|part| part.bytes).sum::<u64>() {
            return Err(differs().into());
        }
        let (mut at, mut buffer) = (0, vec![0; 256 << 10]);
        for part in parts {
            let (mut digest, end) = (Sha256::new(), at + part.bytes);
            while at < end {
                let len = (end - at).min(buffer.len() as u64) as usize;
                file.read_exact_at(&mut buffer[..len], at)?;
                digest.update(&buffer[..len]);
                at += len as u64;
            }
            if base64::encode(&digest.finish()) != part.sha256 {
                return Err(differs().into());
            }
        }
        Ok(())
    }

    /// The newest unfinished upload of this name, with its parts by their numbers.
    pub(crate) fn unfinished(&self) -> Result<Option<(String, PartsByNumber)>, RemoteError> {
        if self.access.has_blocks() {
            let url = self
                .url
                .with_query("blocklisttype=uncommitted&comp=blocklist");
            let found = self.retried_at("GET", &url, &Headers::new(), b"", &[200, 404])?;
            let blocks = listed_blocks(&found.1);
            return Ok((!blocks.is_empty()).then(|| (String::new(), blocks)));
        }
        let Some((bucket, key)) = self.access.bucket(&self.url) else {
            return Ok(None);
        };
        let query = format!("prefix={}&uploads=", encoded(&key));
        let (_, answer) = self.request_at(&bucket, &query)?;
        let uploads = elements(&answer, "Upload").filter_map(|upload| {
            let is_same = element(upload, "Key").map(unescaped)? == key;
            let id = unescaped(element(upload, "UploadId")?);
            is_same.then_some((element(upload, "Initiated")?.to_owned(), id))
        });
        let Some((_, id)) = uploads.max() else {
            return Ok(None);
        };
        let (mut parts, mut marker) = (HashMap::new(), 0);
        for _ in 0..LISTS_MAX {
            let query = format!("part-number-marker={marker}&uploadId={}", encoded(&id));
            let (_, answer) = self.request_at(&self.url, &query)?;
            for part in elements(&answer, "Part") {
                let number = element(part, "PartNumber").and_then(|it| it.parse().ok());
                let bytes = element(part, "Size").and_then(|it| it.parse().ok());
                let etag = element(part, "ETag").map(unescaped);
                let sha256 = element(part, "ChecksumSHA256").unwrap_or_default();
                if let (Some(number), Some(bytes), Some(etag)) = (number, bytes, etag) {
                    let sha256 = sha256.to_owned();
                    let part = StoredPart {
                        bytes,
                        etag,
                        sha256,
                    };
                    parts.insert(number, part);
                }
            }
            let next = element(&answer, "NextPartNumberMarker").and_then(|it| it.parse().ok());
            match next
                .filter(|&next| element(&answer, "IsTruncated") == Some("true") && next > marker)
            {
                Some(next) => marker = next,
                None => break,
            }
        }
        Ok(Some((id, parts)))
    }

    /// Removes an unfinished upload with its parts, where that is possible; tries once.
    pub(crate) fn abort(&self, id: &str) -> Result<(), RemoteError> {
        if self.access.has_blocks() {
            return Ok(());
        }
        let query = format!("uploadId={}", encoded(id));
        let url = self.url.with_query(&query);
        let (head, text) = self.send("DELETE", &url, &Headers::new(), b"", Some(ABORT_TIME))?;
        match head.status {
            200 | 204 | 404 => Ok(()),
            _ => Err(self.refused(&head, &text)),
        }
    }

    /// Whether a part that the store holds has these bytes.
    pub(crate) fn is_same(&self, found: &StoredPart, bytes: &[u8]) -> bool {
        self.access.is_same(found, bytes, &sha256(bytes))
    }

    /// How many parts with bytes an object has at most.
    pub(crate) fn parts_max(&self) -> u32 {
        self.access.parts_max()
    }

    /// The header that an object keeps.
    fn note(&self, note: Option<&str>) -> Headers {
        let header = self.access.note_header();
        let note = note.iter();
        note.map(|note| (header.to_owned(), (*note).to_owned()))
            .collect()
    }

    /// A request that makes the object, which must not be there.
    fn create(
        &self,
        method: &str,
        query: &str,
        mut headers: Headers,
        body: &[u8],
        overwrite: bool,
    ) -> Result<String, RemoteError> {
        if !overwrite {
            headers.push(self.access.if_absent());
        }
        let (url, mut failures) = (self.url.with_query(query), 0);
        loop {
            let error = match self.send(method, &url, &headers, body, None) {
                Ok((head, answer)) => match (head.status, element(&answer, "Code")) {
                    (200 | 201, _) => return Ok(answer),
                    (409, Some("BlobAlreadyExists"))
                    | (412, None | Some("ConditionNotMet" | "PreconditionFailed")) => {
                        return Err(RemoteError::new(Fault::Exists, "it exists"));
                    }
                    (409, _) => {
                        let words = "another writer makes an object of this name just now";
                        return Err(RemoteError::new(Fault::Temporary, words));
                    }
                    _ => self.refused(&head, &answer),
                },
                Err(error) => error,
            };
            self.is_unsure.store(true, Ordering::Relaxed);
            pause(error, &mut failures)?;
        }
    }

    fn request_at(&self, url: &Url, query: &str) -> Result<(Head, String), RemoteError> {
        self.retried_at("GET", &url.with_query(query), &Headers::new(), b"", &[200])
    }

    fn retried(
        &self,
        method: &str,
        query: &str,
        headers: &Headers,
        body: &[u8],
        expected: &[u16],
    ) -> Result<(Head, String), RemoteError> {
        self.retried_at(method, &self.url.with_query(query), headers, body, expected)
    }

    /// Sends a request until its answer has one of these statuses, as often as that may help.
    fn retried_at(
        &self,
        method: &str,
        url: &Url,
        headers: &Headers,
        body: &[u8],
        expected: &[u16],
    ) -> Result<(Head, String), RemoteError> {
        let mut failures = 0;
        loop {
            let error = match self.send(method, url, headers, body, None) {
                Ok((head, text)) if expected.contains(&head.status) => return Ok((head, text)),
                Ok((head, text)) => self.refused(&head, &text),
                Err(error) => error,
            };
            pause(error, &mut failures)?;
        }
    }

    fn send(
        &self,
        method: &str,
        url: &Url,
        headers: &Headers,
        body: &[u8],
        limit: Option<Duration>,
    ) -> Result<(Head, String), RemoteError> {
        let secret = self
            .access
            .sign(method, url, (headers, body), &self.options)?;
        let all = [&headers[..], &secret].concat();
        let (head, mut answer): (Head, Body) = self.http.write(method, url, &all, body, limit)?;
        let answer = match method {
            "HEAD" => Vec::new(),
            _ => text(&mut answer).map_err(|error| crate::http::of_ureq(url, error.into()))?,
        };
        Ok((head, String::from_utf8_lossy(&answer).into_owned()))
    }

    fn refused(&self, head: &Head, text: &str) -> RemoteError {
        let error = refusal(head, text, &self.url, &self.access);
        let words = match head.status {
            404 => format!("no such bucket or upload ({})", error.words),
            _ => error.words,
        };
        RemoteError { words, ..error }
    }
}

/// The text of an element of XML.
fn unescaped(text: &str) -> String {
    let pairs = [
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ];
    pairs
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
