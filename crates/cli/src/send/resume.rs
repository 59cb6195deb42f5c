//! Where a stream goes, and continuing one that was cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use tree::Output;

use crate::stream::create;
use crate::text;

/// The output of a stream. It gets what comes after the part that somebody has already.
pub(super) struct Target {
    output: Output,
    part: Option<Part>,
}

/// The existing first part of a stream.
struct Part {
    name: String,
    file: BufReader<File>,
    /// How much of it was compared.
    at: u64,
    has_ended: bool,
    /// Whether the stream is another one: then nothing is written any more.
    differs: bool,
    buffer: Vec<u8>,
}

impl Target {
    /// Opens the output with this name, `-` for standard output, for what comes after the part in the file `part`. If both are
    /// one file, it is appended to.
    ///
    /// # Errors
    /// The part cannot be read, or the output cannot be written.
    pub(super) fn open(output: &Path, part: Option<&Path>) -> Result<Target> {
        let Some(path) = part else {
            return Ok(Target {
                output: create(output, true)?,
                part: None,
            });
        };
        let name = text::of_host_path(path, "-");
        let file = File::open(path).with_context(|| format!("open {name}"))?;
        let identity = |file: fs::Metadata| (file.dev(), file.ino());
        let here = identity(file.metadata().with_context(|| format!("read {name}"))?);
        let output = if fs::metadata(output).is_ok_and(|there| identity(there) == here) {
            let file = OpenOptions::new().append(true).open(output);
            Output::stream(file.with_context(|| format!("open {name}"))?)
        } else {
            create(output, true)?
        };
        Ok(Target {
            output,
            part: Some(Part {
                name,
                file: BufReader::new(file),
                at: 0,
                has_ended: false,
                differs: false,
                buffer: Vec::new(),
            }),
        })
    }

    /// Finishes the output, to which the whole stream was written. Returns how long the part was that was there already.
    ///
    /// # Errors
    /// The part is longer than the stream, or the output cannot be finished.
    pub(super) fn finish(self) -> Result<u64> {
        let mut there = 0;
        if let Some(mut part) = self.part {
            there = part.at;
            // Once its end was seen, it is not read again: it may be the output.
            let rest = if part.has_ended {
                Ok(0)
            } else {
                part.file.read(&mut [0])
            };
            if rest.with_context(|| format!("read {}", part.name))? > 0 {
                let (name, len) = (part.name, text::of_bytes(part.at));
                bail!("{name} is longer than the stream ({len}), so it is of another one");
            }
        }
        self.output.commit().context("finish the stream")?;
        Ok(there)
    }
}

impl Part {
    /// Compares the next bytes of the stream, as far as they are there. Returns how many these are.
    fn compare(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.differs {
            return Err(io::Error::other("the stream is another one"));
        }
        let mut same = 0;
        while same < bytes.len() && !self.has_ended {
            self.buffer.resize((bytes.len() - same).min(64 << 10), 0);
            let read = self.file.read(&mut self.buffer)?;
            self.has_ended = read == 0;
            let (there, wanted) = (&self.buffer[..read], &bytes[same..same + read]);
            if let Some(at) = there.iter().zip(wanted).position(|(a, b)| a != b) {
                let (name, at) = (&self.name, self.at + at as u64);
                self.differs = true;
                return Err(io::Error::other(format!(
                    "{name} differs from the stream in byte {at}, so it is of another one"
                )));
            }
            self.at += read as u64;
            same += read;
        }
        Ok(same)
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(part) = &mut self.part {
            let same = part.compare(bytes)?;
            if same > 0 {
                return Ok(same);
            }
        }
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
