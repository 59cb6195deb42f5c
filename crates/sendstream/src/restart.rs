//! Streams that Linux starts again while it sends them.

use std::io::Read;

use tree::{Error, Result, Sha256};

use crate::raw::{COMMAND_HEADER_BYTES, Version};
use crate::reader::{CommandRecord, StreamReader};

/// The result of [`without_restarts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuous {
    /// The version of the stream.
    pub version: Version,
    /// How many commands it has.
    pub commands: u64,
    /// How often it was started again.
    pub restarts: u64,
}

/// The error if the second start does not repeat the earlier commands.
const DIFFERS: &str =
    "Linux was interrupted while it sent the stream, and sends another one after that";

/// Reads one stream that Linux sends through `input`, and calls `each` with every command of it
/// once.
///
/// If a process is stopped and continued, or the system suspended, Linux starts sending again:
/// `input` has the stream up to the middle of a command, and then the whole stream again, any
/// number of times. Sending a read-only subvolume gives the same bytes every time, so the commands
/// that `each` has had already are compared, by number, length and checksum, and left out.
///
/// # Errors
/// As for [`StreamReader`]; [`Error::Inconsistent`] if the stream differs when it is sent again;
/// the error of `each`.
pub fn without_restarts<R: Read>(
    input: R,
    mut each: impl FnMut(&CommandRecord<'_>) -> Result<()>,
) -> Result<Continuous> {
    // The commands of Linux are taken as they are.
    let mut reader = StreamReader::new(input).any_paths();
    let version = reader.next_stream()?;
    let Some(version) = version else {
        return Err(Error::InvalidInput("no send stream was started"));
    };
    let mut passed = Chain::default();
    let mut restarts = 0;
    // What has come since the last start, as far as it was passed on before.
    let mut again: Option<Chain> = None;
    loop {
        let error = match reader.next_command() {
            Ok(Some(record)) => {
                if let Some(chain) = &mut again {
                    chain.add(&record);
                    if chain.count == passed.count {
                        if chain.digest() != passed.digest() {
                            return Err(Error::Inconsistent(DIFFERS));
                        }
                        again = None;
                    }
                } else {
                    passed.add(&record);
                    each(&record)?;
                }
                continue;
            }
            // It ends before the commands that were passed on.
            Ok(None) if again.is_some() => return Err(Error::Inconsistent(DIFFERS)),
            Ok(None) => {
                return Ok(Continuous {
                    version,
                    commands: passed.count,
                    restarts,
                });
            }
            Err(error) => error,
        };
        if !reader.continue_at_restart() {
            return Err(error);
        }
        if reader.next_stream()? != Some(version) {
            return Err(Error::Inconsistent(DIFFERS));
        }
        restarts += 1;
        again = (passed.count > 0).then(Chain::default);
    }
}

/// A sequence of commands, as a digest of their headers, which have their checksums.
#[derive(Clone)]
struct Chain {
    count: u64,
    headers: Sha256,
}

impl Default for Chain {
    fn default() -> Self {
        Chain {
            count: 0,
            headers: Sha256::new(),
        }
    }
}

impl Chain {
    fn add(&mut self, record: &CommandRecord<'_>) {
        self.count += 1;
        let header = record.bytes.first_chunk::<COMMAND_HEADER_BYTES>();
        self.headers
            .update(header.map_or(record.bytes, |header| header));
    }

    fn digest(&self) -> [u8; 32] {
        self.headers.clone().finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, StreamWriter};

    /// A stream with files whose content looks like the beginning of a stream.
    fn stream(marks: &[u8]) -> Vec<u8> {
        let mut writer = StreamWriter::new(Vec::new(), Version::V2);
        writer.header().unwrap();
        let start = Command::Subvol {
            path: b"s",
            uuid: [7; 16],
            ctransid: 9,
        };
        writer.command(&start).unwrap();
        // A stream cannot hold its own beginning: the subvolume is older than its stream.
        let mut trap = StreamWriter::new(Vec::new(), Version::V2);
        trap.header().unwrap();
        let uuid = [8; 16];
        let (path, ctransid) = (&b"s"[..], 9);
        let start = Command::Subvol {
            path,
            uuid,
            ctransid,
        };
        trap.command(&start).unwrap();
        let trap = trap.into_inner();
        for &mark in marks {
            let path = &[b'f', mark][..];
            let ino = 257 + u64::from(mark);
            writer.command(&Command::Mkfile { path, ino }).unwrap();
            let other = [b"btrfs-stream\0\x02\0\0\0 and more", &*vec![mark; 50]].concat();
            for data in [&other[..], &trap[..]] {
                let file_offset = 0;
                writer
                    .command(&Command::Write {
                        path,
                        file_offset,
                        data,
                    })
                    .unwrap();
            }
        }
        writer.command(&Command::End).unwrap();
        writer.into_inner()
    }

    fn continuous(input: &[u8]) -> Result<(Vec<u8>, Continuous)> {
        let mut output = Vec::new();
        let read = without_restarts(input, |record| {
            output.extend_from_slice(record.bytes);
            Ok(())
        })?;
        Ok((output, read))
    }

    #[test]
    fn every_cut_is_continued_with_the_stream_sent_again() {
        let whole = stream(&[1, 2, 3]);
        let expected = &whole[17..];
        let (output, read) = continuous(&whole).unwrap();
        assert!(output == expected && read.restarts == 0);
        for cut in 17..whole.len() {
            let input = [&whole[..cut], &whole].concat();
            let (output, read) = continuous(&input).unwrap_or_else(|e| panic!("{cut}: {e}"));
            assert!(output == expected, "{cut}");
            assert_eq!(read.restarts, 1, "{cut}");
            // Several times, shorter and longer.
            let other = 17 + (cut * 7) % (whole.len() - 17);
            let input = [&whole[..cut], &whole[..other], &whole[..cut], &whole].concat();
            let (output, read) = continuous(&input).unwrap_or_else(|e| panic!("{cut}: {e}"));
            assert!(output == expected, "{cut} {other}");
            assert!((1..=3).contains(&read.restarts), "{cut} {other}");
        }
    }

    #[test]
    fn a_stream_that_differs_when_sent_again_is_refused() {
        let [whole, other, shorter] = [&[1, 2, 3][..], &[1, 4, 3], &[1]].map(stream);
        let cut = whole.len() - 20;
        for again in [&other, &shorter] {
            let input = [&whole[..cut], again].concat();
            let error = continuous(&input).unwrap_err();
            assert!(matches!(error, Error::Inconsistent(_)), "{error}");
        }
        // And one that is cut, or damaged.
        assert!(continuous(&whole[..cut]).is_err());
        let mut damaged = whole.clone();
        damaged[cut - 20] ^= 1;
        assert!(continuous(&damaged).is_err());
    }
}
