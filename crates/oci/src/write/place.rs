//! Where a layout is written: a directory, new or not, or an archive.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tree::json::Json;
use tree::tar::file_header;
use tree::temporary::Temporary;
use tree::{Error, HostDir, Output, Result, SequentialReader};

use super::digest_writer::DigestWriter;
use crate::Digest;
use crate::layout::{manifests, read_json};

const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
const EMPTY_INDEX: &[u8] =
    br#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;

/// A block of a tar archive.
const BLOCK: [u8; 512] = [0; 512];
const BLOCK_BYTES: u64 = 512;

pub(super) enum LayoutPlace {
    Dir(LayoutDir),
    Archive(LayoutArchive),
}

pub(super) struct LayoutDir {
    /// The directory; while a new one is made, that with a temporary name.
    dir: PathBuf,
    /// Its final name.
    new: Option<(PathBuf, Temporary)>,
}

pub(super) struct LayoutArchive {
    output: Output,
    /// The length of the archive so far.
    end: u64,
    blobs: HashSet<Digest>,
}

impl LayoutPlace {
    pub(super) fn dir(dir: &Path) -> Result<LayoutPlace> {
        let layout = match fs::metadata(dir) {
            Ok(there) if there.is_dir() => {
                check_existing(dir)?;
                LayoutDir {
                    dir: dir.to_owned(),
                    new: None,
                }
            }
            Ok(_) => return Err(Error::NotADirectory),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A link that leads nowhere is in the way, too.
                if fs::symlink_metadata(dir).is_ok() {
                    return Err(error.into());
                }
                let name = dir.file_name();
                let name = name.ok_or(Error::InvalidInput("a directory without a name"))?;
                let above = parent(dir);
                let open: Arc<OwnedFd> = Arc::new(File::open(above)?.into());
                let at = |name: &[u8]| above.join(OsStr::from_bytes(name));
                let make = |_: &OwnedFd, name: &[u8]| fs::create_dir(at(name));
                let (temporary, ()) = Temporary::create(&open, name.as_bytes(), make)?;
                LayoutDir {
                    dir: at(temporary.name()),
                    new: Some((dir.to_owned(), temporary)),
                }
            }
            Err(error) => return Err(error.into()),
        };
        fs::create_dir_all(layout.blobs())?;
        Ok(LayoutPlace::Dir(layout))
    }

    pub(super) fn archive(output: Output) -> LayoutPlace {
        LayoutPlace::Archive(LayoutArchive {
            output,
            end: 0,
            blobs: HashSet::new(),
        })
    }

    /// The index, or that of an empty layout.
    pub(super) fn index(&self) -> Result<Json> {
        let empty = || Json::parse(EMPTY_INDEX).ok_or(Error::NotFound);
        let LayoutPlace::Dir(layout) = self else {
            return empty();
        };
        let tree = HostDir::open(&layout.dir)?;
        let read = || {
            let (index, _) = read_json(&tree, b"index.json", None)?;
            manifests(&index)?;
            Ok(index)
        };
        match read() {
            Err(Error::NotFound) => empty(),
            index => index.map_err(|error| error.in_file("read", b"index.json")),
        }
    }

    /// Keeps others who lock it from changing the index.
    pub(super) fn lock(&self) -> Result<Option<File>> {
        // A new directory is locked already, as all temporary files.
        let existing = match self {
            LayoutPlace::Dir(layout) if layout.new.is_none() => &layout.dir,
            LayoutPlace::Dir(_) | LayoutPlace::Archive(_) => return Ok(None),
        };
        let dir = File::open(existing)?;
        dir.lock()?;
        Ok(Some(dir))
    }

    /// Whether a blob with this digest and length is there.
    pub(super) fn has(&self, known: (Digest, u64)) -> bool {
        match self {
            LayoutPlace::Dir(layout) => is_there(&layout.blobs().join(known.0.digits()), known),
            LayoutPlace::Archive(archive) => archive.blobs.contains(&known.0),
        }
    }

    /// Writes a blob, whose digest and length may be known.
    pub(super) fn blob<T>(
        &mut self,
        known: Option<(Digest, u64)>,
        fill: impl FnOnce(&mut dyn Write) -> Result<T>,
    ) -> Result<(T, Digest, u64)> {
        match self {
            LayoutPlace::Dir(layout) => layout.blob(known, fill),
            LayoutPlace::Archive(archive) => archive.blob(known, fill),
        }
    }

    /// Writes a blob that is not written from its beginning to its end.
    pub(super) fn image<T>(
        &mut self,
        spool_dir: &Path,
        fill: impl FnOnce(&mut Output) -> Result<T>,
    ) -> Result<(T, Digest, u64)> {
        let archive = match self {
            LayoutPlace::Dir(layout) => return layout.image(fill),
            LayoutPlace::Archive(archive) => archive,
        };
        // It gets no name.
        let created = Output::replace(&spool_dir.join("layer"));
        let named = |error: Error| error.in_file("write in", spool_dir.as_os_str().as_bytes());
        let mut output = created.map_err(named)?;
        let done = fill(&mut output)?;
        let stored = output.reader()?;
        let copy = |out: &mut dyn Write| Ok(io::copy(&mut SequentialReader::new(stored), out)?);
        let (_, digest, size) = archive.blob(None, copy)?;
        Ok((done, digest, size))
    }

    /// Writes the other files, and makes all appear.
    pub(super) fn finish(self, index: &str) -> Result<()> {
        match self {
            LayoutPlace::Dir(layout) => layout.finish(index),
            LayoutPlace::Archive(archive) => archive.finish(index),
        }
    }
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Refuses a directory that is neither a layout nor the beginning of one.
fn check_existing(dir: &Path) -> Result<()> {
    let mut is_begun = true;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        is_begun &= name == "blobs" || name == "oci-layout";
    }
    for part in ["blobs", "blobs/sha256"] {
        // A link could lead out of the layout.
        let there = fs::symlink_metadata(dir.join(part));
        if there.is_ok_and(|there| !there.is_dir()) {
            return Err(Error::NotADirectory.in_file("write", part.as_bytes()));
        }
    }
    let is_layout = || {
        let tree = HostDir::open(dir).ok()?;
        let (version, _) = read_json(&tree, b"oci-layout", None).ok()?;
        let version = version.text("imageLayoutVersion")?;
        let has_index = dir.join("index.json").is_file();
        (has_index && version.starts_with("1.")).then_some(())
    };
    if is_begun || is_layout().is_some() {
        return Ok(());
    }
    Err(Error::InvalidInput(
        "the directory is neither a layout of container images nor empty",
    ))
}

/// Checks that the bytes that came are those that were expected.
fn check(known: Option<(Digest, u64)>, found: (Digest, u64)) -> Result<()> {
    match known {
        Some(known) if known != found => {
            let what = "copied layer does not have its digest and length";
            Err(Error::corrupt(what, known.1, found.1))
        }
        _ => Ok(()),
    }
}

impl LayoutDir {
    fn blobs(&self) -> PathBuf {
        self.dir.join("blobs/sha256")
    }

    fn blob<T>(
        &self,
        known: Option<(Digest, u64)>,
        fill: impl FnOnce(&mut dyn Write) -> Result<T>,
    ) -> Result<(T, Digest, u64)> {
        let blobs = self.blobs();
        let mut output = Output::replace(&blobs.join("blob"))?;
        let mut out = DigestWriter::new(&mut output);
        let done = fill(&mut out)?;
        let (digest, size) = out.finish();
        check(known, (digest, size))?;
        self.keep(output, (digest, size))?;
        Ok((done, digest, size))
    }

    fn image<T>(&self, fill: impl FnOnce(&mut Output) -> Result<T>) -> Result<(T, Digest, u64)> {
        let mut output = Output::replace(&self.blobs().join("blob"))?;
        let done = fill(&mut output)?;
        let mut sum = DigestWriter::new(io::sink());
        io::copy(&mut SequentialReader::new(output.reader()?), &mut sum)?;
        let (digest, size) = sum.finish();
        self.keep(output, (digest, size))?;
        Ok((done, digest, size))
    }

    /// Gives a blob its name, unless it is there.
    fn keep(&self, mut output: Output, known: (Digest, u64)) -> Result<()> {
        let name = known.0.digits();
        if is_there(&self.blobs().join(&name), known) {
            return Ok(());
        }
        output.rename(name.as_bytes())?;
        output.commit()
    }

    fn finish(mut self, index: &str) -> Result<()> {
        let write = |name: &str, bytes: &[u8]| {
            let mut output = Output::replace(&self.dir.join(name))?;
            output.write_all(bytes)?;
            output.commit()
        };
        if !self.dir.join("oci-layout").exists() {
            write("oci-layout", LAYOUT)?;
        }
        sync(&self.dir.join("blobs"))?;
        write("index.json", index.as_bytes())?;
        if let Some((dir, temporary)) = self.new.take() {
            // Only an empty directory is replaced, or none.
            temporary.finish(|_| fs::rename(&self.dir, &dir))?;
            sync(parent(&dir))?;
        }
        Ok(())
    }
}

/// Leaves a directory empty that was so, if nothing was written.
impl Drop for LayoutDir {
    fn drop(&mut self) {
        let blobs = self.blobs();
        let _ = fs::remove_dir(&blobs).and_then(|()| fs::remove_dir(parent(&blobs)));
    }
}

/// Whether a file has this content: a blob of that name may be damaged.
fn is_there(path: &Path, expected: (Digest, u64)) -> bool {
    let read = || -> io::Result<bool> {
        // A pipe would be waited for.
        let there = fs::metadata(path)?;
        if !there.is_file() || there.len() != expected.1 {
            return Ok(false);
        }
        let file = File::open(path)?;
        let mut sum = DigestWriter::new(io::sink());
        // Another program's file may grow meanwhile.
        io::copy(&mut file.take(expected.1), &mut sum)?;
        Ok(sum.finish() == expected)
    };
    read().unwrap_or(false)
}

impl LayoutArchive {
    fn blob<T>(
        &mut self,
        known: Option<(Digest, u64)>,
        fill: impl FnOnce(&mut dyn Write) -> Result<T>,
    ) -> Result<(T, Digest, u64)> {
        // The name of a blob is known when all of it is: its header is written last.
        let at = self.end;
        self.output.write_all(&BLOCK)?;
        let mut out = DigestWriter::new(&mut self.output);
        let done = fill(&mut out)?;
        let (digest, size) = out.finish();
        check(known, (digest, size))?;
        self.close(at, &digest.path(), size)?;
        self.blobs.insert(digest);
        Ok((done, digest, size))
    }

    /// Pads a file, and writes its header.
    fn close(&mut self, at: u64, path: &str, size: u64) -> Result<()> {
        let too_large = Error::Limit("size of an archive of container images");
        let padded = size
            .checked_next_multiple_of(BLOCK_BYTES)
            .ok_or(too_large)?;
        let padding = padded.saturating_sub(size);
        io::copy(&mut io::repeat(0).take(padding), &mut self.output)?;
        let header = file_header(path.as_bytes(), size);
        let header = header.ok_or(Error::InvalidInput("a long path in a layout"))?;
        self.output.write_all_at(&header, at)?;
        self.end = at.saturating_add(BLOCK_BYTES).saturating_add(padded);
        Ok(())
    }

    fn finish(mut self, index: &str) -> Result<()> {
        for (path, bytes) in [("oci-layout", LAYOUT), ("index.json", index.as_bytes())] {
            let at = self.end;
            self.output.write_all(&BLOCK)?;
            self.output.write_all(bytes)?;
            self.close(at, path, tree::to_u64(bytes.len()))?;
        }
        self.output.write_all(&[BLOCK, BLOCK].concat())?;
        self.output.commit()
    }
}
