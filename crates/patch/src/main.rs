//! `restow-patch`: applies a patch, for devices that have no `restow`.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "it is a program")]
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use patch::format::APPLY_MEMORY_BYTES;
use patch::{ApplyOptions, Destination, Patch, PatchFile, is_same};
use tree::NoProgress;

const HELP: &str = "\
Make NEW of OLD and a patch of `restow delta`

Usage: restow-patch [--overwrite] [--resume] [--memory BYTES] OLD PATCH NEW

  OLD    the file or block device from which the patch was made
  PATCH  the patch; - is standard input
  NEW    the file to make, or a block device; it must differ from OLD

  --overwrite     replace NEW, or write over the block device
  --resume        go on where an earlier run with this option was stopped
  --memory BYTES  allow this much memory for buffers
  --version       print the version

Exit codes: 0 success; 2 failure.";

/// A fault, in words.
type Failure = String;

/// The command line.
struct Arguments {
    overwrite: bool,
    resume: bool,
    memory_bytes: u64,
    old: PathBuf,
    patch: PathBuf,
    new: PathBuf,
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.is_empty() || words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if words == ["--version"] {
        println!("restow-patch {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match parse(words).and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("restow-patch: {failure}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: Vec<OsString>) -> Result<Arguments, Failure> {
    let (mut overwrite, mut resume, mut memory_bytes) = (false, false, APPLY_MEMORY_BYTES);
    let (mut paths, mut are_paths) = (Vec::new(), false);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--") if !are_paths => are_paths = true,
            Some("--overwrite") if !are_paths => overwrite = true,
            Some("--resume") if !are_paths => resume = true,
            Some("--memory") if !are_paths => {
                let number = words.next().and_then(|word| word.to_str()?.parse().ok());
                memory_bytes = number.ok_or("--memory needs a number of bytes")?;
            }
            Some(option) if option.starts_with("--") && !are_paths => {
                return Err(format!("unknown option {option}; see --help"));
            }
            _ => paths.push(PathBuf::from(word)),
        }
    }
    let [old, patch, new] = <[PathBuf; 3]>::try_from(paths)
        .map_err(|paths| format!("needs OLD PATCH NEW, not {} paths; see --help", paths.len()))?;
    Ok(Arguments {
        overwrite,
        resume,
        memory_bytes,
        old,
        patch,
        new,
    })
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let [old_name, patch_name, new_name] =
        [&arguments.old, &arguments.patch, &arguments.new].map(|path| path.display());
    if is_same(&arguments.old, &arguments.new) {
        return Err(format!(
            "{new_name} is OLD, too: a patch is not applied in place"
        ));
    }
    let old = File::open(&arguments.old).map_err(|error| format!("open {old_name}: {error}"))?;
    let kind = old.metadata().map(|it| it.file_type());
    if !kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device()) {
        return Err(format!(
            "{old_name} is neither a regular file nor a block device"
        ));
    }
    let input: Box<dyn Read> = if arguments.patch == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let patch = File::open(&arguments.patch);
        Box::new(patch.map_err(|error| format!("open {patch_name}: {error}"))?)
    };
    let patch = Patch::open(input).map_err(|error| format!("apply {patch_name}: {error}"))?;
    let new = Destination::open(&arguments.new, arguments.overwrite, arguments.resume);
    let new = new.map_err(|error| format!("create {new_name}: {error}"))?;
    let options = ApplyOptions::default().memory_bytes(arguments.memory_bytes);
    let applied = patch.apply(&old, new, &options, &NoProgress);
    applied.map(drop).map_err(|error| match error.file() {
        PatchFile::Old => format!("read {old_name}: {error}"),
        PatchFile::Patch => format!("apply {patch_name}: {error}"),
        PatchFile::New => format!("write {new_name}: {error}"),
    })
}
