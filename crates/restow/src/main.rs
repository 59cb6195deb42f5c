//! The `restow` command. All of it is in the library `cli`, which is optimised for size: LTO optimises with the level of the last crate,
//! which is this one, and so the codecs keep their speed (docs/decisions/build-profiles.md).
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
