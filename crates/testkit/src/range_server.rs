//! A web server with one object, which counts requests and bytes and misbehaves as a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a request is answered.
#[derive(Clone, Debug)]
pub struct Manner {
    /// The object, if not that of the server.
    pub object: Option<Arc<Vec<u8>>>,
    /// Its ETag, with quotes.
    pub etag: Option<&'static str>,
    /// The time of its last change.
    pub modified: Option<&'static str>,
    /// Whether `If-Match` counts.
    pub is_guarding: bool,
    /// Whether `Range` counts.
    pub has_ranges: bool,
    /// The status and further lines of the head, without a body.
    pub refusal: Option<(u16, String)>,
    /// The body ends with the connection after this many bytes.
    pub cut: Option<usize>,
    /// The time before the answer.
    pub delay: Duration,
}

impl Default for Manner {
    fn default() -> Manner {
        Manner {
            object: None,
            etag: Some("\"1\""),
            modified: None,
            is_guarding: true,
            has_ranges: true,
            refusal: None,
            cut: None,
            delay: Duration::ZERO,
        }
    }
}

type Manners = dyn Fn(u64, &str) -> Manner + Send + Sync;

struct Shared {
    object: Arc<Vec<u8>>,
    manners: Box<Manners>,
    requests: AtomicU64,
    bytes: AtomicU64,
    heads: Mutex<Vec<String>>,
    is_closed: AtomicBool,
}

/// A server on this machine, until it is dropped.
pub struct RangeServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl RangeServer {
    /// A server that behaves well.
    pub fn new(object: Vec<u8>) -> RangeServer {
        RangeServer::with(object, |_, _| Manner::default())
    }

    /// A server whose answer to each request depends on its number, from 0, and its head.
    ///
    /// # Panics
    /// If no port is free.
    pub fn with(
        object: Vec<u8>,
        manners: impl Fn(u64, &str) -> Manner + Send + Sync + 'static,
    ) -> RangeServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the port of a server");
        let shared = Arc::new(Shared {
            object: Arc::new(object),
            manners: Box::new(manners),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            heads: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let served = Arc::clone(&served);
                // A client that goes away in the middle of an answer is one of the cases.
                std::thread::spawn(move || served.serve(&stream).unwrap_or_default());
            }
        });
        RangeServer { address, shared }
    }

    /// The address of the object under a name.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// How many bytes of the object were sent.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// The heads of all requests.
    pub fn heads(&self) -> Vec<String> {
        let heads = self.shared.heads.lock();
        heads.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for RangeServer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let head = head.to_lowercase();
            let field = |name: &str| {
                let lines = head.lines().filter_map(|line| line.split_once(": "));
                let mut found = lines.filter(|(key, _)| *key == name);
                found.next().map(|(_, value)| value.to_owned())
            };
            let body = field("content-length").and_then(|len| len.parse().ok());
            std::io::copy(
                &mut reader.by_ref().take(body.unwrap_or(0)),
                &mut std::io::sink(),
            )?;
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let heads = self.heads.lock();
            heads
                .unwrap_or_else(PoisonError::into_inner)
                .push(head.clone());
            let manner = (self.manners)(number, &head);
            #[expect(clippy::disallowed_methods, reason = "the network is slow on purpose")]
            std::thread::sleep(manner.delay);
            let wanted = field("range").filter(|_| manner.has_ranges);
            let matches = field("if-match").filter(|_| manner.is_guarding);
            if !self.answer(stream, &manner, wanted.as_deref(), matches.as_deref())? {
                return Ok(());
            }
        }
    }

    /// Answers one request, and returns whether the connection stays.
    fn answer(
        &self,
        mut stream: &TcpStream,
        manner: &Manner,
        wanted: Option<&str>,
        matches: Option<&str>,
    ) -> std::io::Result<bool> {
        let object = manner.object.as_ref().unwrap_or(&self.object);
        let mut tags = String::new();
        for (name, value) in [("ETag", manner.etag), ("Last-Modified", manner.modified)] {
            tags += &value
                .map(|value| format!("{name}: {value}\r\n"))
                .unwrap_or_default();
        }
        let bare = |status: u16, lines: &str| {
            format!("HTTP/1.1 {status} -\r\nContent-Length: 0\r\n{lines}\r\n")
        };
        if let Some((status, lines)) = &manner.refusal {
            stream.write_all(bare(*status, lines).as_bytes())?;
            return Ok(true);
        }
        if matches.is_some_and(|wanted| Some(wanted) != manner.etag) {
            stream.write_all(bare(412, &tags).as_bytes())?;
            return Ok(true);
        }
        let len = object.len();
        let range = wanted.and_then(|range| {
            let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
        });
        let (status, part, line) = match range {
            Some((first, _)) if first >= len => {
                let line = format!("Content-Range: bytes */{len}\r\n");
                stream.write_all(bare(416, &line).as_bytes())?;
                return Ok(true);
            }
            Some((first, last)) => {
                let last = last.min(len - 1);
                let line = format!("Content-Range: bytes {first}-{last}/{len}\r\n");
                (206, first..last + 1, line)
            }
            None => (200, 0..len, String::new()),
        };
        let part = &object[part];
        let head = format!(
            "HTTP/1.1 {status} -\r\nContent-Length: {}\r\n{line}{tags}\r\n",
            part.len()
        );
        stream.write_all(head.as_bytes())?;
        let sent = manner.cut.map_or(part, |cut| &part[..cut.min(part.len())]);
        self.bytes.fetch_add(sent.len() as u64, Ordering::Relaxed);
        stream.write_all(sent)?;
        Ok(sent.len() == part.len())
    }
}
