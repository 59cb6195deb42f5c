//! How many threads work.

use clap::Args;
use tree::Parallel;

/// How many threads work.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ThreadArgs {
    /// Use N threads; the result does not depend on it [default: one per processor]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl ThreadArgs {
    /// The number on the command line.
    pub(crate) fn given(self) -> Option<u16> {
        self.threads
    }

    pub(crate) fn parallel(self) -> Parallel {
        self.threads
            .map_or_else(Parallel::available, |threads| Parallel::new(threads.into()))
    }
}
