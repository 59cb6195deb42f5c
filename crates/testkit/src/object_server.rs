//! A store of objects in memory that speaks as much of S3, of Google Cloud Storage and of Azure as
//! writing in parts takes, checks its requests, and misbehaves as a test wants.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use md5::{Digest, Md5};
use tree::{base64, sha256};

/// How a request is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreManner {
    /// As S3 does.
    #[default]
    Obeys,
    /// With this status, and nothing is done.
    Refuses(u16),
    /// It is done, and the connection ends without an answer.
    IsSilent,
    /// A byte of the body changes on its way.
    Damages,
}

/// A request, by its first line and headers in lower case, and its body.
struct StoreRequest {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl StoreRequest {
    fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    fn notes(&self) -> Vec<(String, String)> {
        let notes = self.headers.iter();
        let notes = notes.filter(|(name, _)| name.starts_with("x-") && name.contains("-meta-"));
        notes.cloned().collect()
    }
}

struct StoredObject {
    bytes: Arc<Vec<u8>>,
    etag: String,
    notes: Vec<(String, String)>,
}

struct OpenUpload {
    path: String,
    notes: Vec<(String, String)>,
    parts: BTreeMap<u32, Vec<u8>>,
}

/// The blocks of names in Azure that no list made a blob, by their names.
type Blocks = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, StoredObject>,
    uploads: BTreeMap<u64, OpenUpload>,
    blocks: Blocks,
    /// The numbers of all parts that were sent, in order.
    sent: Vec<u32>,
    /// The first line of each request, and whether its name was an object before.
    asked: Vec<(String, bool)>,
    count: u64,
}

type Manners = dyn Fn(u64, &str) -> StoreManner + Send + Sync;

struct ServedStore {
    contents: Mutex<Contents>,
    /// Wakes those who wait for a request.
    has_answered: Condvar,
    manners: Box<Manners>,
    requests: AtomicU64,
    is_closed: AtomicBool,
}

/// A store on this machine, until it is dropped.
pub struct ObjectServer {
    address: SocketAddr,
    shared: Arc<ServedStore>,
}

impl ObjectServer {
    /// An empty store whose answer to each request depends on its number, from 0, and its first
    /// line.
    ///
    /// # Panics
    /// If no port is free.
    pub fn with(
        manners: impl Fn(u64, &str) -> StoreManner + Send + Sync + 'static,
    ) -> ObjectServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("the port of a server");
        let shared = Arc::new(ServedStore {
            contents: Mutex::default(),
            has_answered: Condvar::new(),
            manners: Box::new(manners),
            requests: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if served.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let served = Arc::clone(&served);
                std::thread::spawn(move || served.serve(&stream).unwrap_or_default());
            }
        });
        ObjectServer { address, shared }
    }

    /// The value of `AWS_ENDPOINT_URL`, `STORAGE_EMULATOR_HOST` or `AZURE_STORAGE_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bytes of an object, by `/BUCKET/NAME`.
    pub fn object(&self, path: &str) -> Option<Arc<Vec<u8>>> {
        let contents = self.shared.contents();
        contents
            .objects
            .get(path)
            .map(|object| Arc::clone(&object.bytes))
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) {
        self.shared.contents().objects.remove(path);
    }

    /// The number of uploads that are neither complete nor aborted, and of names with blocks that
    /// are no blob.
    pub fn open_uploads(&self) -> usize {
        let contents = self.shared.contents();
        contents.uploads.len() + contents.blocks.len()
    }

    /// The numbers of the parts that were sent since this was last asked.
    pub fn sent_parts(&self) -> Vec<u32> {
        std::mem::take(&mut self.shared.contents().sent)
    }

    /// Waits until a part is there that was sent since [`ObjectServer::sent_parts`] was last asked.
    pub fn wait_for_a_part(&self) {
        let contents = self.shared.contents();
        let is_awaited = |contents: &mut Contents| contents.sent.is_empty();
        drop((self.shared.has_answered).wait_while(contents, is_awaited));
    }

    /// The first lines of the requests since this was last asked, in the order of their answers,
    /// and whether there was an object of the name before each.
    pub fn asked(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.shared.contents().asked)
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

/// A status, further lines of the head, and a body.
type Reply = (u16, String, Vec<u8>);

fn refusal(status: u16, code: &str) -> Reply {
    let body = format!("<Error><Code>{code}</Code></Error>");
    (status, String::new(), body.into_bytes())
}

fn xml(body: String) -> Reply {
    (200, String::new(), body.into_bytes())
}

/// A name without the encoding of URLs, as far as tests have names.
fn plain(name: &str) -> String {
    [("%2F", "/"), ("%20", " "), ("%2B", "+"), ("%3D", "=")]
        .iter()
        .fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

fn etag(bytes: &[u8]) -> String {
    let digits: String = md5(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("\"{digits}\"")
}

impl ServedStore {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let mut lines = head.lines();
            let first = lines.next().unwrap_or_default().to_owned();
            let headers = lines.filter_map(|line| line.split_once(": "));
            let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
            let mut words = first.split(' ');
            let method = words.next().unwrap_or_default().to_owned();
            let (path, query) = words
                .next()
                .and_then(|it| it.split_once('?'))
                .unwrap_or_else(|| (first.split(' ').nth(1).unwrap_or_default(), ""));
            let fields = query
                .split('&')
                .map(|it| it.split_once('=').unwrap_or((it, "")));
            let mut request = StoreRequest {
                method,
                path: path.to_owned(),
                query: fields
                    .map(|(name, value)| (name.into(), value.into()))
                    .collect(),
                headers: headers.collect(),
                body: Vec::new(),
            };
            let len = request
                .header("content-length")
                .and_then(|len| len.parse().ok());
            reader
                .by_ref()
                .take(len.unwrap_or(0))
                .read_to_end(&mut request.body)?;
            if request.body.len() as u64 != len.unwrap_or(0) {
                return Ok(());
            }
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let manner = (self.manners)(number, &first);
            if manner == StoreManner::Damages
                && let Some(byte) = request.body.last_mut()
            {
                *byte ^= 1;
            }
            let (status, lines, body) = match manner {
                StoreManner::Refuses(status) => refusal(status, "Refused"),
                _ => {
                    let mut contents = self.contents();
                    let is_there = contents.objects.contains_key(&request.path);
                    contents.asked.push((first, is_there));
                    self.has_answered.notify_all();
                    contents.answer(&request)
                }
            };
            if manner == StoreManner::IsSilent {
                return Ok(());
            }
            let len = body.len();
            let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {len}\r\n{lines}\r\n");
            stream.write_all(head.as_bytes())?;
            if request.method != "HEAD" {
                stream.write_all(&body)?;
            }
        }
    }
}

impl Contents {
    fn answer(&mut self, request: &StoreRequest) -> Reply {
        if let Some(refused) = wrong_checksum(request) {
            return refused;
        }
        let upload = request.query("uploadId").map(|id| id.parse().unwrap_or(0));
        if let Some(id) = upload
            && self
                .uploads
                .get(&id)
                .is_none_or(|upload| upload.path != request.path)
        {
            return refusal(404, "NoSuchUpload");
        }
        match (&*request.method, upload) {
            ("GET", None) if request.query("uploads").is_some() => self.list_uploads(request),
            ("GET", None) if request.query("blocklisttype").is_some() => self.list_blocks(request),
            ("GET" | "HEAD", None) => self.read(request),
            ("GET", Some(id)) => self.list_parts(id),
            ("DELETE", Some(id)) => {
                self.uploads.remove(&id);
                (204, String::new(), Vec::new())
            }
            ("POST", None) => {
                self.count += 1;
                let upload = OpenUpload {
                    path: request.path.clone(),
                    notes: request.notes(),
                    parts: BTreeMap::new(),
                };
                self.uploads.insert(self.count, upload);
                xml(format!("<UploadId>{}</UploadId>", self.count))
            }
            ("POST", Some(id)) => self.complete(request, id),
            ("PUT", None) => match request.query("comp") {
                Some("block") => {
                    let name = plain(request.query("blockid").unwrap_or_default());
                    let Some(number) = block_number(&name) else {
                        return refusal(400, "InvalidQueryParameterValue");
                    };
                    self.sent.push(number);
                    let blocks = self.blocks.entry(request.path.clone()).or_default();
                    blocks.insert(name, request.body.clone());
                    (201, String::new(), Vec::new())
                }
                _ if self.is_kept(request) => self.exists(request),
                Some(_) => self.commit(request),
                None => {
                    let status = if request.header("x-ms-blob-type").is_some() {
                        201
                    } else {
                        200
                    };
                    self.store(request, request.body.clone(), request.notes());
                    (status, String::new(), Vec::new())
                }
            },
            ("PUT", Some(id)) => {
                let number = request.query("partNumber").and_then(|it| it.parse().ok());
                let Some(number) = number.filter(|number| (1..=10_000).contains(number)) else {
                    return refusal(400, "InvalidArgument");
                };
                self.sent.push(number);
                let tag = format!("ETag: {}\r\n", etag(&request.body));
                let upload = self
                    .uploads
                    .get_mut(&id)
                    .expect("an upload that was looked up");
                upload.parts.insert(number, request.body.clone());
                (200, tag, Vec::new())
            }
            _ => refusal(405, "MethodNotAllowed"),
        }
    }

    /// Whether an object of this name forbids a request to make one.
    fn is_kept(&self, request: &StoreRequest) -> bool {
        let is_conditional = request.header("if-none-match") == Some("*")
            || request.header("x-goog-if-generation-match") == Some("0");
        is_conditional && self.objects.contains_key(&request.path)
    }

    /// The refusal of [`Contents::is_kept`].
    fn exists(&self, request: &StoreRequest) -> Reply {
        if request.header("x-ms-version").is_some() {
            refusal(409, "BlobAlreadyExists")
        } else {
            refusal(412, "PreconditionFailed")
        }
    }

    fn list_blocks(&self, request: &StoreRequest) -> Reply {
        let Some(blocks) = self.blocks.get(&request.path) else {
            return refusal(404, "BlobNotFound");
        };
        let block = |(name, bytes): (&String, &Vec<u8>)| {
            let len = bytes.len();
            format!("<Block><Name>{name}</Name><Size>{len}</Size></Block>")
        };
        let blocks: String = blocks.iter().map(block).collect();
        xml(format!(
            "<BlockList><UncommittedBlocks>{blocks}</UncommittedBlocks></BlockList>"
        ))
    }

    /// The blocks that the body names become the blob, and all others are dropped.
    fn commit(&mut self, request: &StoreRequest) -> Reply {
        let body = String::from_utf8_lossy(&request.body);
        let empty = BTreeMap::new();
        let blocks = self.blocks.get(&request.path).unwrap_or(&empty);
        let mut bytes = Vec::new();
        for name in body.split("<Uncommitted>").skip(1) {
            match blocks.get(name.split('<').next().unwrap_or_default()) {
                Some(block) => bytes.extend_from_slice(block),
                None => return refusal(400, "InvalidBlockList"),
            }
        }
        self.blocks.remove(&request.path);
        self.store(request, bytes, request.notes());
        (201, String::new(), Vec::new())
    }

    fn store(&mut self, request: &StoreRequest, bytes: Vec<u8>, notes: Vec<(String, String)>) {
        let object = StoredObject {
            etag: etag(&bytes),
            bytes: Arc::new(bytes),
            notes,
        };
        self.objects.insert(request.path.clone(), object);
    }

    fn read(&self, request: &StoreRequest) -> Reply {
        let Some(object) = self.objects.get(&request.path) else {
            return refusal(404, "NoSuchKey");
        };
        let mut lines = format!("ETag: {}\r\n", object.etag);
        for (name, value) in &object.notes {
            lines += &format!("{name}: {value}\r\n");
        }
        let range = request.header("range").and_then(|range| {
            let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
            Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
        });
        let len = object.bytes.len();
        match range {
            Some((first, last)) if first < len => {
                let last = last.min(len - 1);
                lines += &format!("Content-Range: bytes {first}-{last}/{len}\r\n");
                (206, lines, object.bytes[first..=last].to_vec())
            }
            Some(_) => (416, format!("Content-Range: bytes */{len}\r\n"), Vec::new()),
            None => (200, lines, object.bytes.to_vec()),
        }
    }

    fn list_uploads(&self, request: &StoreRequest) -> Reply {
        let prefix = plain(request.query("prefix").unwrap_or_default());
        let mut body = String::new();
        for (id, upload) in &self.uploads {
            let key = plain(upload.path.strip_prefix(&request.path).unwrap_or_default());
            if key.starts_with(&prefix) {
                body += &format!(
                    "<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>2026-{id:08}</Initiated></Upload>"
                );
            }
        }
        xml(body)
    }

    fn list_parts(&self, id: u64) -> Reply {
        let mut body = String::new();
        for (number, bytes) in &self.uploads[&id].parts {
            let (len, tag, sum) = (bytes.len(), etag(bytes), base64::encode(&sha256(bytes)));
            let tag = tag.replace('"', "&quot;");
            body += &format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag><Size>{len}</Size><ChecksumSHA256>{sum}</ChecksumSHA256></Part>"
            );
        }
        xml(body)
    }

    /// The parts that the body names, with their ETags and checksums, become the object.
    fn complete(&mut self, request: &StoreRequest, id: u64) -> Reply {
        let body = String::from_utf8_lossy(&request.body);
        let upload = &self.uploads[&id];
        let mut bytes = Vec::new();
        let named = body.matches("<Part>").count();
        for (index, part) in body.split("<Part>").skip(1).enumerate() {
            let field = |name: &str| {
                let (_, rest) = part.split_once(&format!("<{name}>"))?;
                rest.split('<')
                    .next()
                    .map(|text| text.replace("&quot;", "\""))
            };
            let number = field("PartNumber")
                .and_then(|it| it.parse().ok())
                .unwrap_or(0);
            let Some(stored) = upload.parts.get(&number) else {
                return refusal(400, "InvalidPart");
            };
            let is_wrong = |sum: String| sum != base64::encode(&sha256(stored));
            if field("ETag") != Some(etag(stored)) || field("ChecksumSHA256").is_some_and(is_wrong)
            {
                return refusal(400, "InvalidPart");
            }
            if index + 1 < named && stored.len() < 5 << 20 {
                return refusal(400, "EntityTooSmall");
            }
            bytes.extend_from_slice(stored);
        }
        if self.is_kept(request) {
            return self.exists(request);
        }
        let upload = self
            .uploads
            .remove(&id)
            .expect("an upload that was looked up");
        self.store(request, bytes, upload.notes);
        xml(
            "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
                .to_owned(),
        )
    }
}

/// The number of a block, of which its name is the beginning.
fn block_number(name: &str) -> Option<u32> {
    let name = base64::decode(name.as_bytes())?;
    name.first_chunk().map(|number| u32::from_be_bytes(*number))
}

fn wrong_checksum(request: &StoreRequest) -> Option<Reply> {
    let digest = sha256(&request.body);
    if (request.header("x-amz-checksum-sha256")).is_some_and(|sum| sum != base64::encode(&digest)) {
        return Some(refusal(400, "BadDigest"));
    }
    let sum = base64::encode(&md5(&request.body));
    if (request.header("x-goog-hash")).is_some_and(|it| it != format!("md5={sum}")) {
        return Some(refusal(400, "BadDigest"));
    }
    if request.header("content-md5").is_some_and(|it| it != sum) {
        return Some(refusal(400, "Md5Mismatch"));
    }
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let wrong = request
        .header("x-amz-content-sha256")
        .is_some_and(|it| it != digits);
    wrong.then(|| refusal(400, "XAmzContentSHA256Mismatch"))
}
