//! How many threads work.

use anyhow::{Context, Result};
use clap::Args;
use tree::Parallel;

/// How many threads work.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ThreadArgs {
    /// Use N threads; the result does not depend on it [default: one per processor]
    #[arg(short = 'j', long, value_name = "N", value_parser = threads)]
    threads: Option<u16>,
}

fn threads(words: &str) -> Result<u16> {
    let count = words
        .parse()
        .ok()
        .filter(|count| (1..=1024).contains(count));
    count.context("must be a number from 1 to 1024")
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
