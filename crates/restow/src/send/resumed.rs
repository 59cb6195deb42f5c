//! The continuation of a stream that was cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tree::Output;

use crate::error::{During, refuse};
use crate::{Result, text};

/// The output of a stream, of which the first part may exist: it is compared, and only the rest is
/// written.
pub struct ResumedOutput {
    output: Output,
    part: Option<FirstPart>,
}

/// The existing first part of a stream.
struct FirstPart {
    name: String,
    file: BufReader<File>,
    /// Bytes compared.
    at: u64,
    has_ended: bool,
    /// Whether the stream is another one: then nothing more is written.
    differs: bool,
    buffer: Vec<u8>,
}

impl ResumedOutput {
    /// Writes the whole stream.
    pub fn whole(output: Output) -> ResumedOutput {
        ResumedOutput { output, part: None }
    }

    /// Writes the rest of the stream that begins with the file `part`. If `output` is that file, it
    /// is appended to; otherwise `create` opens it.
    ///
    /// # Errors
    /// The part cannot be read, or the output cannot be written.
    pub fn rest<E: From<crate::Error>>(
        part: &Path,
        output: &Path,
        create: impl FnOnce() -> Result<Output, E>,
    ) -> Result<ResumedOutput, E> {
        let name = text::of_host_path(part, "-");
        let file = File::open(part).during(|| format!("open {name}"))?;
        let identity = |file: fs::Metadata| (file.dev(), file.ino());
        let here = identity(file.metadata().during(|| format!("read {name}"))?);
        let output = if fs::metadata(output).is_ok_and(|there| identity(there) == here) {
            let file = OpenOptions::new().append(true).open(output);
            Output::stream(file.during(|| format!("open {name}"))?)
        } else {
            create()?
        };
        Ok(ResumedOutput {
            output,
            part: Some(FirstPart {
                name,
                file: BufReader::new(file),
                at: 0,
                has_ended: false,
                differs: false,
                buffer: Vec::new(),
            }),
        })
    }

    /// Finishes the output, to which the whole stream was written. Returns the length of the part
    /// that existed.
    ///
    /// # Errors
    /// The part is longer than the stream, or the output cannot be finished.
    pub fn finish(self) -> Result<u64> {
        let mut there = 0;
        if let Some(mut part) = self.part {
            there = part.at;
            // Once its end was seen, it is not read again: it may be the output.
            let rest = if part.has_ended {
                Ok(0)
            } else {
                part.file.read(&mut [0])
            };
            if rest.during(|| format!("read {}", part.name))? > 0 {
                let (name, len) = (part.name, text::of_bytes(part.at));
                refuse!("{name} is longer than the stream ({len}), so it is of another one");
            }
        }
        self.output
            .commit()
            .during(|| "finish the stream".to_owned())?;
        Ok(there)
    }
}

impl FirstPart {
    /// Compares the next bytes of the stream with the part, and returns the number of them that it
    /// has.
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

impl Write for ResumedOutput {
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
