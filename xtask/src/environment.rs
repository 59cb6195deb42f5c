//! Where the tasks run.

use std::env;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let parent = Path::new(&manifest).parent();
    parent.expect("xtask lies below the root").to_owned()
}

/// Whether this runs where nothing that the machine can run may be left out.
pub(crate) fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}
