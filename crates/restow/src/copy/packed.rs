//! Archives that are compressed as a whole, in parts that several threads compress.

use std::io::{self, PipeReader, Read, Write};
use std::panic::resume_unwind;
use std::thread;

use codec::{Packer, SeekTable, Wrapper};
use tree::{Error, Parallel, ordered};

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    pub(super) wrapper: Wrapper,
    pub(super) level: Option<u8>,
}

impl Packing {
    fn packer(self) -> Result<Packer, codec::Error> {
        Packer::new(self.wrapper, self.level)
    }

    /// Compresses the output of `fill` into `output`, and returns the number of bytes there.
    ///
    /// # Errors
    /// Those of `fill`; the output cannot be written.
    pub(super) fn write<T: Send>(
        self,
        parallel: Parallel,
        output: &mut dyn Write,
        fill: impl FnOnce(&mut dyn Write) -> tree::Result<T> + Send,
    ) -> tree::Result<(T, u64)> {
        let (content, mut to_pack) = io::pipe()?;
        thread::scope(|scope| {
            let filled = scope.spawn(move || fill(&mut to_pack));
            let packed = self.pack(parallel, content, output);
            let filled = filled.join().unwrap_or_else(|panic| resume_unwind(panic));
            match (filled, packed) {
                // Nobody reads what is written, because of the other error.
                (Err(Error::Io(error)), Err(why)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    Err(why)
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
                (Ok(filled), Ok(bytes)) => Ok((filled, bytes)),
            }
        })
    }

    fn pack(
        self,
        parallel: Parallel,
        content: PipeReader,
        output: &mut dyn Write,
    ) -> tree::Result<u64> {
        let other = |error: codec::Error| Error::Io(io::Error::other(error));
        let mut table = SeekTable::default();
        let mut bytes = 0;
        ordered(
            parallel,
            ArchiveParts {
                content,
                part_bytes: Packer::part_bytes(self.wrapper),
            },
            || self.packer(),
            |packer, part: io::Result<Vec<u8>>| {
                let (part, mut packed) = (part?, Vec::new());
                let packer = packer.as_mut().map_err(|error| other(*error))?;
                packer.pack(&part, &mut packed).map_err(other)?;
                Ok::<_, Error>((part, packed))
            },
            |(part, packed)| {
                table.push(&packed, &part);
                bytes += packed.len() as u64;
                Ok(output.write_all(&packed)?)
            },
        )?;
        if self.wrapper == Wrapper::Zstd {
            let table = table.emit();
            bytes += table.len() as u64;
            output.write_all(&table)?;
        }
        Ok(bytes)
    }
}

/// The content of a pipe, in parts.
struct ArchiveParts {
    content: PipeReader,
    part_bytes: usize,
}

impl Iterator for ArchiveParts {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        let mut part = Vec::with_capacity(self.part_bytes);
        let mut content = (&mut self.content).take(self.part_bytes as u64);
        match content.read_to_end(&mut part) {
            Ok(0) => None,
            Ok(_) => Some(Ok(part)),
            Err(error) => Some(Err(error)),
        }
    }
}
