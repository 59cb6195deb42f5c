//! Peers in C that no crate offers: `peers.c`, built by the system's compiler with the system's
//! libraries.

use std::process::Command;

use crate::record::TableRecord;
use crate::scratch::{ScratchDir, output, run};

const SOURCE: &str = include_str!("peers.c");

/// Makes the C library map each larger allocation on its own.
pub(super) const MAPPED: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "4096"), ("MALLOC_TOP_PAD_", "0")];

/// The program, and the versions of its libraries.
pub(super) struct CPeers {
    program: String,
    pub(super) versions: String,
}

impl CPeers {
    /// Builds the program; the record names what is missing if that fails.
    pub(super) fn build(scratch: &ScratchDir, record: &mut TableRecord) -> Option<CPeers> {
        let program = scratch.path("peers");
        let built = scratch
            .write("peers.c", SOURCE.as_bytes())
            .and_then(|source| {
                let args = ["-O2", "-o", &program, &source, "-lz", "-l:libxxhash.so.0"];
                run("cc", &args)?;
                run(&program, &["version"])
            });
        match built {
            Ok(versions) => Some(CPeers {
                program,
                versions: versions.trim().to_owned(),
            }),
            Err(why) => {
                println!("no zlib and xxHash in C: {why}");
                let missing = "zlib and xxHash in C, which need cc, zlib.h and libxxhash.so.0";
                record.say("missing", missing);
                None
            }
        }
    }

    /// Runs the program and returns the numbers that it prints.
    pub(super) fn run(&self, args: &[&str]) -> Result<Vec<u64>, String> {
        let mut command = Command::new(&self.program);
        // Each allocation becomes a mapping, and its size is seen.
        let said = output(command.args(args).envs(MAPPED))?;
        let numbers = said.split_whitespace().map(str::parse);
        let numbers: Result<Vec<u64>, _> = numbers.collect();
        numbers.map_err(|_| format!("{}: printed {said}", self.program))
    }
}
