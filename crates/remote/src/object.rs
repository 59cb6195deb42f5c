//! One object: ranges of its bytes, and the guard that all of them are of the same one.

use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ureq::Body;

use crate::access::{Access, element};
use crate::error::{Fault, RemoteError};
use crate::http::{Head, Headers, Http, of_status, of_ureq, text};
use crate::options::RemoteOptions;
use crate::url::Url;

/// Bytes of the first request: enough to recognise every format.
pub(crate) const START_BYTES: u64 = 128 << 10;
/// How often in a row a request may fail before that is an error.
const FAILURES_MAX: u32 = 6;
/// Bytes after which a failure is no longer in a row with the last one.
const PROGRESS_BYTES: u64 = 64 << 10;
/// The pause after the first failure; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// Seconds that a server may ask for between two requests.
const PAUSE_SECONDS_MAX: u64 = 20;

/// An object whose server answered.
pub(crate) struct Object {
    url: Url,
    /// Where requests were redirected to, as long as that place answers.
    redirected: Mutex<Option<Url>>,
    access: Access,
    http: Http,
    options: RemoteOptions,
    guard: Guard,
}

/// The part of all answers that must be equal.
#[derive(Default)]
struct Guard {
    etag: Option<String>,
    modified: Option<String>,
    size: u64,
}

/// The result of the first request.
pub(crate) enum Start {
    /// The first bytes, of an object that can be read at any place.
    Bytes(Vec<u8>),
    /// All bytes in order: the server ignores ranges.
    All(Box<dyn Read + Send>),
}

impl Object {
    /// Asks for the first bytes.
    pub(crate) fn open(address: &str, options: &RemoteOptions) -> io::Result<(Object, Start)> {
        let (url, access) = Access::of(address, options)?;
        let mut object = Object {
            http: Http::new(&url, options)?,
            url,
            redirected: Mutex::default(),
            access,
            options: options.clone(),
            guard: Guard::default(),
        };
        let (head, body) = object.first()?;
        let refused = |words: String| Err(RemoteError::new(Fault::Lasting, words).into());
        match head.status {
            200 => {
                let is_chunked = (head.header("transfer-encoding"))
                    .is_some_and(|it| it.to_lowercase().contains("chunked"));
                if !is_chunked && head.header("content-length").is_none() {
                    return refused(
                        "the server does not say how many bytes follow, so a loss is not noticed"
                            .to_owned(),
                    );
                }
                let url = object.url.clone();
                let body = Box::new(WholeBody {
                    body: body.into_reader(),
                    url,
                });
                return Ok((object, Start::All(body)));
            }
            416 if unsatisfied_size(&head) == Some(0) => {
                return Ok((object, Start::Bytes(Vec::new())));
            }
            416 => return refused("the server has no beginning of the object".to_owned()),
            _ => {}
        }
        let Some((0, last, size)) = range_of(&head).filter(|&(_, last, _)| last < START_BYTES)
        else {
            return refused("the server answers with other bytes than those asked for".to_owned());
        };
        object.guard = Guard {
            etag: head.header("etag").map(str::to_owned),
            modified: head.header("last-modified").map(str::to_owned),
            size,
        };
        let guard = &object.guard;
        if guard.etag.is_none() && guard.modified.is_none() && !options.unguarded {
            return refused(
                "the server gives neither an ETag nor a time of the last change, so a replaced object is not noticed; --unguarded reads it anyway"
                    .to_owned(),
            );
        }
        let mut start = Vec::new();
        let end = last + 1;
        let taken = object.take(body, end, &mut |bytes| start.extend_from_slice(bytes));
        match taken {
            Err(error) if error.fault != Fault::Temporary => return Err(error.into()),
            _ => {}
        }
        let at = start.len() as u64;
        object.read(at, end, &mut |bytes| start.extend_from_slice(bytes))?;
        Ok((object, Start::Bytes(start)))
    }

    /// The text of the part of all answers that is equal.
    pub(crate) fn state(&self) -> String {
        let Guard {
            etag,
            modified,
            size,
        } = &self.guard;
        format!("{etag:?} {modified:?} {size}")
    }

    /// The size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.guard.size
    }

    /// The first answer, from the region of the bucket.
    fn first(&mut self) -> Result<(Head, Body), RemoteError> {
        let mut failures = 0;
        loop {
            let answer = self.send(0, START_BYTES);
            if let Ok((head, _)) = &answer
                && !matches!(head.status, 200 | 206)
                && let Some(region) = head.header("x-amz-bucket-region")
                && let Some(url) = self.access.moved(region)
            {
                self.url = url;
                continue;
            }
            match answer.and_then(|(head, body)| self.accept(head, body)) {
                Err(error) => pause(error, &mut failures)?,
                answer => return answer,
            }
        }
    }

    /// Reads these bytes in order, also if the server fails in between.
    pub(crate) fn read(
        &self,
        from: u64,
        to: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RemoteError> {
        let (mut at, mut failures) = (from, 0);
        while at < to {
            let begun = at;
            let mut count = |bytes: &[u8]| {
                at += bytes.len() as u64;
                take(bytes);
            };
            if let Err(error) = self.read_once(begun, to, &mut count) {
                if at - begun >= PROGRESS_BYTES {
                    failures = 0;
                }
                pause(error, &mut failures)?;
            }
        }
        Ok(())
    }

    fn read_once(
        &self,
        from: u64,
        to: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RemoteError> {
        let (head, body) = self.send(from, to)?;
        let (head, body) = self.accept(head, body)?;
        let lasting = |words: &str| Err(RemoteError::new(Fault::Lasting, words));
        match head.status {
            206 => {}
            416 => return self.replaced(&head),
            _ => return lasting("the server ignores ranges since the first answer"),
        }
        self.check(&head)?;
        match range_of(&head) {
            Some((first, last, _)) if first == from && last < to => {
                self.take(body, last + 1 - first, take)
            }
            _ => lasting("the server answers with other bytes than those asked for"),
        }
    }

    /// Takes this many bytes of a body.
    fn take(&self, body: Body, len: u64, take: &mut dyn FnMut(&[u8])) -> Result<(), RemoteError> {
        let mut body = body.into_reader();
        let mut buffer = vec![0; 64 << 10];
        let mut left = len;
        while left > 0 {
            let room = left.min(buffer.len() as u64) as usize;
            let read = body.read(&mut buffer[..room]);
            let read = read.map_err(|error| of_ureq(&self.url, error.into()))?;
            if read == 0 {
                let words = "the connection ended within an answer";
                return Err(RemoteError::new(Fault::Temporary, words));
            }
            take(&buffer[..read]);
            left -= read as u64;
        }
        // The end of the body, without which a connection is not used again.
        let _ = body.read(&mut [0]);
        Ok(())
    }

    /// Sends one request for these bytes.
    fn send(&self, from: u64, to: u64) -> Result<(Head, Body), RemoteError> {
        let mut headers: Headers = Vec::new();
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        add("range", &format!("bytes={from}-{}", to - 1));
        add("accept-encoding", self.access.encoding());
        // A weak one never matches. A time is compared with that of each answer alone: some servers
        // compare it with one of more digits, and refuse an object that did not change.
        if let Some(etag) = self.guard.etag.as_ref().filter(|it| it.starts_with('"')) {
            add("if-match", etag);
        }
        let redirected = self.redirected().clone();
        let (head, body) = match redirected {
            Some(url) => {
                let answer = self.http.read(&url, &headers, &Vec::new())?;
                if !matches!(answer.0.status, 401 | 403 | 404 | 410) {
                    return Ok(answer);
                }
                // Such places are often for a few minutes.
                *self.redirected() = None;
                return self.send(from, to);
            }
            None => {
                let secret = self
                    .access
                    .sign("GET", &self.url, (&headers, b""), &self.options)?;
                self.http.read(&self.url, &headers, &secret)?
            }
        };
        if matches!(head.status, 200 | 206) {
            self.redirected().clone_from(&head.redirected);
        }
        Ok((head, body))
    }

    fn redirected(&self) -> MutexGuard<'_, Option<Url>> {
        self.redirected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, if it is one with bytes, or about them.
    fn accept(&self, head: Head, mut body: Body) -> Result<(Head, Body), RemoteError> {
        let status = head.status;
        if matches!(status, 200 | 206 | 416) {
            return Ok((head, body));
        }
        if status == 412 || (self.guard.size > 0 && matches!(status, 404 | 410)) {
            return self.replaced(&head);
        }
        let text = text(&mut body).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let error = refusal(&head, &text, &self.url, &self.access);
        let words = match status {
            404 | 410 => format!("no such object ({})", error.words),
            _ => error.words,
        };
        Err(RemoteError { words, ..error })
    }

    /// Checks that an answer is about the object that was opened.
    fn check(&self, head: &Head) -> Result<(), RemoteError> {
        let is_same_size = range_of(head).is_some_and(|(.., size)| size == self.guard.size);
        let is_same = match (&self.guard.etag, &self.guard.modified) {
            (Some(etag), _) => head.header("etag") == Some(etag),
            (None, Some(modified)) => head.header("last-modified") == Some(modified),
            (None, None) => true,
        };
        if is_same && is_same_size {
            return Ok(());
        }
        self.replaced(head)
    }

    fn replaced<T>(&self, head: &Head) -> Result<T, RemoteError> {
        let (then, now) = (self.guard.etag.as_deref(), head.header("etag"));
        let tags = match (then, now) {
            (Some(then), Some(now)) if then != now => format!(": its ETag was {then} and is {now}"),
            _ => String::new(),
        };
        let words = format!("the object was replaced while it was read{tags}");
        Err(RemoteError::new(Fault::Replaced, words))
    }
}

/// Waits before the next try; the error after too many of them, or if none helps.
pub(crate) fn pause(error: RemoteError, failures: &mut u32) -> Result<(), RemoteError> {
    *failures += 1;
    if error.fault != Fault::Temporary || *failures >= FAILURES_MAX {
        return Err(error);
    }
    let own = PAUSE * 2_u32.pow(*failures - 1);
    let wanted = error
        .pause
        .map(|seconds| Duration::from_secs(seconds.min(PAUSE_SECONDS_MAX)));
    #[expect(
        clippy::disallowed_methods,
        reason = "a busy server is left alone for a while"
    )]
    thread::sleep(wanted.unwrap_or(own));
    Ok(())
}

/// The error of an answer that refuses something.
pub(crate) fn refusal(head: &Head, text: &str, url: &Url, access: &Access) -> RemoteError {
    let status = head.status;
    // Of S3, Google and Azure; nothing else of the answer, which can hold signed text.
    let code = element(text, "Code");
    let code = code.filter(|code| code.bytes().all(|it| it.is_ascii_alphanumeric()));
    let fault = match code {
        // Among them a body that changed on its way.
        Some(
            "RequestTimeout"
            | "InternalError"
            | "SlowDown"
            | "BadDigest"
            | "Md5Mismatch"
            | "OperationTimedOut"
            | "ServerBusy"
            | "XAmzContentSHA256Mismatch",
        ) => Fault::Temporary,
        _ => of_status(status),
    };
    let code = code.map(|code| format!(" {code}")).unwrap_or_default();
    let answer = format!("status {status}{code} of {}", url.server);
    let words = match fault {
        Fault::Denied => format!("access denied ({answer}): {}", access.looked_for()),
        _ => answer,
    };
    let after = head.header("retry-after");
    RemoteError {
        pause: after.and_then(|after| after.parse().ok()),
        ..RemoteError::new(fault, words)
    }
}

/// The first and the last byte of an answer, and the size of the object.
fn range_of(head: &Head) -> Option<(u64, u64, u64)> {
    let range = head.header("content-range")?.strip_prefix("bytes ")?;
    let (range, size) = range.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size) = (first.parse().ok()?, last.parse().ok()?, size.parse().ok()?);
    (first <= last && last < size).then_some((first, last, size))
}

/// The size of an object that ends before the bytes asked for.
fn unsatisfied_size(head: &Head) -> Option<u64> {
    head.header("content-range")?
        .strip_prefix("bytes */")?
        .parse()
        .ok()
}

/// A body that is read from its beginning to its end.
struct WholeBody<R> {
    body: R,
    url: Url,
}

impl<R: Read> Read for WholeBody<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.body.read(buf);
        read.map_err(|error| of_ureq(&self.url, error.into()).into())
    }
}
