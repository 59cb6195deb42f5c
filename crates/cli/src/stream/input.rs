//! The stream that a command reads, and the file that it writes.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use restow::{Address, Input, UploadOptions, create_object};
use tree::{Error, Output, Progress, Sha256};

use crate::bar::Bar;
use crate::options::open_options;
use crate::text;

/// Opens the file with this name; `-` is standard input. The bar learns how large it is.
///
/// # Errors
/// It cannot be opened, or standard input is a terminal.
pub(crate) fn open(path: &Path, bar: &Bar) -> Result<Input> {
    if path == Path::new("-") && io::stdin().is_terminal() {
        bail!("standard input is a terminal; name a file, or pipe a stream into it");
    }
    Address::refuse_remote_source(path)?;
    let input = Input::open_with(path, &open_options().remote)
        .with_context(|| format!("open {}", name(path)))?;
    let file = input.metadata().filter(|file| file.is_file());
    bar.expect(None, file.map(std::fs::Metadata::len));
    Ok(input)
}

/// Computes the SHA-256 of the bytes that are read.
pub(crate) struct Hashed<R> {
    input: R,
    digest: Option<Sha256>,
}

impl<R: Read> Hashed<R> {
    /// Reads from `input`, and computes the digest only if it is wanted.
    pub(crate) fn new(input: R, is_wanted: bool) -> Self {
        Hashed {
            input,
            digest: is_wanted.then(Sha256::new),
        }
    }

    /// The digest of the bytes read, in hexadecimal.
    pub(crate) fn finish(self) -> Option<String> {
        Some(text::of_digits(&self.digest?.finish()))
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        if let Some(digest) = &mut self.digest {
            digest.update(&buffer[..read]);
        }
        Ok(read)
    }
}

/// Creates the file with this name; `-` is standard output. Of an object, these bytes wait at most.
///
/// # Errors
/// It exists and may not be replaced, cannot be created, or standard output is a terminal.
pub(crate) fn create(path: &Path, overwrite: bool, waiting_bytes: Option<u64>) -> Result<Output> {
    if path == Path::new("-") {
        if io::stdout().is_terminal() {
            bail!("standard output is a terminal; name a file, or pipe it into a program");
        }
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        return Ok(Output::stream(File::from(stdout)));
    }
    let created = if Address::is_written_object(path) {
        let mut upload = UploadOptions::default().overwrite(overwrite);
        if let Some(bytes) = waiting_bytes {
            upload = upload.waiting_bytes(bytes);
        }
        create_object(path, &open_options().remote, &upload)
    } else {
        Address::refuse_remote_destination(path)?;
        Output::create(path, overwrite)
    };
    created.map_err(|error| match error {
        Error::Io(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            anyhow!(
                "{} already exists; --overwrite replaces it",
                output_name(path)
            )
        }
        error => anyhow::Error::from(error).context(format!("create {}", output_name(path))),
    })
}

/// The name of the output, in messages.
pub(crate) fn output_name(path: &Path) -> String {
    text::of_host_path(path, "standard output")
}

/// The name of the input, in messages.
pub(crate) fn name(path: &Path) -> String {
    text::of_host_path(path, "standard input")
}
