//! How objects of web servers and object storage are read.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use restow::{RemoteOptions, Surroundings};

use super::bytes::bytes;

/// The same for every command that reads.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Objects as sources (https://, http://, s3://, gs://, az://)")]
pub(crate) struct RemoteArgs {
    /// Keep this much of each object in memory
    #[arg(long, global = true, value_name = "BYTES", value_parser = bytes, default_value = "64MiB")]
    remote_cache: u64,

    /// Read over http:// from other machines, too, where anyone on the way can change bytes
    #[arg(long, global = true)]
    insecure: bool,

    /// Read from servers that give neither an ETag nor a time of the last change: an object that is
    /// replaced while it is read is then not noticed
    #[arg(long, global = true)]
    unguarded: bool,
}

/// The options that the user wants.
static WANTED: OnceLock<RemoteArgs> = OnceLock::new();

/// The cache of an object has at most these bytes.
static CACHE_MAX: OnceLock<u64> = OnceLock::new();

/// Bounds the cache of each object, also where the option gives more.
pub(crate) fn bound_remote_cache(bytes: u64) {
    let _ = CACHE_MAX.set(bytes);
}

/// Sets the options for every command.
pub(crate) fn read_objects(args: RemoteArgs) {
    let _ = WANTED.set(args);
}

fn cache_bytes(args: &RemoteArgs) -> u64 {
    let max = CACHE_MAX.get().copied();
    args.remote_cache.min(max.unwrap_or(u64::MAX))
}

/// The same for the library, with the environment and the clock.
pub(super) fn remote_options() -> RemoteOptions {
    let variable = |name: &str| std::env::var(name).ok();
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    };
    let options = RemoteOptions::default().surroundings(Surroundings::new(variable, now));
    match WANTED.get() {
        Some(args) => options
            .cache_bytes(usize::try_from(cache_bytes(args)).unwrap_or(usize::MAX))
            .insecure(args.insecure)
            .unguarded(args.unguarded),
        None => options,
    }
}
