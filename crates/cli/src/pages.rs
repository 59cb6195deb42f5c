//! Man pages and completions, made from the definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

use crate::args::Restow;

/// The date of this version.
const DATE: &str = "2026-11-23";

/// Writes a man page for each command into `man1` in a folder, and completions for each shell into
/// `completions`.
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
    for page in fs::read_dir(&man).context("list man pages")? {
        let path = page.context("list man pages")?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let page = fs::read_to_string(&path).with_context(|| format!("read {name}"))?;
        fs::write(&path, titled(&page, &name)).with_context(|| format!("write {name}"))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let made = generate_to(shell, &mut Restow::command(), "restow", &completions);
        made.with_context(|| format!("write completions for {shell}"))?;
    }
    Ok(())
}

/// A page with a title that names its program, and without breaks beside empty lines, which mean
/// nothing.
fn titled(page: &str, name: &str) -> String {
    let title = format!(
        ".TH {} 1 {DATE} \"restow {}\" \"User Commands\"",
        name.to_uppercase(),
        env!("CARGO_PKG_VERSION")
    );
    let lines: Vec<&str> = page.lines().collect();
    let mut words = String::new();
    for (number, line) in lines.iter().enumerate() {
        let after = number.checked_sub(1).map(|before| lines[before]);
        let is_beside_space = after == Some("") || lines.get(number + 1) == Some(&"");
        if *line == ".br" && is_beside_space {
            continue;
        }
        words += if line.starts_with(".TH ") {
            &title
        } else {
            line
        };
        words.push('\n');
    }
    words
}
