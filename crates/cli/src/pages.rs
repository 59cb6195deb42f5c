//! Man pages and completions, made from the definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

use crate::args::Restow;

/// Writes a man page for each command into `man1` in a folder, and completions for each shell into `completions`.
///
/// # Errors
/// Something cannot be written.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let (man, completions) = (folder.join("man1"), folder.join("completions"));
    for folder in [&man, &completions] {
        let name = || format!("create {}", folder.display());
        fs::create_dir_all(folder).with_context(name)?;
    }
    clap_mangen::generate_to(Restow::command(), &man).context("write man pages")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let made = generate_to(shell, &mut Restow::command(), "restow", &completions);
        made.with_context(|| format!("write completions for {shell}"))?;
    }
    Ok(())
}
