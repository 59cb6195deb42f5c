//! How much is printed.

use clap::Args;

/// How much is printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct QuietArgs {
    /// Print only errors and the result
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// How much is printed by a command whose exit code is its result.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SilentArgs {
    /// Print only errors: the exit code is the result
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
