//! The command lines of other programs: called by the name of one of them, through a link or as
//! `restow NAME`, restow takes its options. Each program has a table from its options to those of
//! the library, which does the work.

mod image_lines;
mod mkfs_btrfs;
mod mkfs_erofs;
mod mksquashfs;
mod options;
mod sources;
mod sqfs2tar;
mod tar2sqfs;
mod unsquashfs;
mod write;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use options::Described;

/// Another program.
pub(crate) struct Program {
    /// The name by which it is called.
    pub(crate) name: &'static str,
    /// Runs it with the words behind its name.
    run: fn(&[OsString]) -> Result<ExitCode>,
    /// Its exit code for an error.
    failed: u8,
    /// Its options, for `--help` and docs/compat.md.
    options: fn() -> Vec<Described>,
}

/// The programs whose command lines are taken.
const PROGRAMS: [Program; 8] = [
    Program {
        name: "mkfs.btrfs",
        run: mkfs_btrfs::run,
        failed: 1,
        options: || options::described(mkfs_btrfs::ROWS),
    },
    Program {
        name: "mkfs.erofs",
        run: mkfs_erofs::run,
        failed: 1,
        options: || options::described(mkfs_erofs::ROWS),
    },
    Program {
        name: "mksquashfs",
        run: mksquashfs::mksquashfs,
        failed: 1,
        options: || options::described(mksquashfs::ROWS),
    },
    Program {
        name: "sqfstar",
        run: mksquashfs::sqfstar,
        failed: 1,
        options: || options::described(mksquashfs::sqfstar_rows()),
    },
    Program {
        name: "sqfs2tar",
        run: sqfs2tar::run,
        failed: 1,
        options: || options::described(sqfs2tar::ROWS),
    },
    Program {
        name: "tar2sqfs",
        run: tar2sqfs::run,
        failed: 1,
        options: || options::described(tar2sqfs::ROWS),
    },
    Program {
        name: "unsquashfs",
        run: unsquashfs::run,
        failed: 1,
        options: || options::described(unsquashfs::ROWS),
    },
    Program {
        name: "sqfscat",
        run: unsquashfs::run_sqfscat,
        failed: 1,
        options: || options::described(unsquashfs::SQFSCAT),
    },
];

/// The first words that ask for the options.
const HELP: [&str; 5] = ["-h", "-help", "--help", "-help-all", "-ha"];

/// The program that a command line calls, and the words behind its name.
pub(crate) fn called(words: &[OsString]) -> Option<(&'static Program, &[OsString])> {
    let named = |word: &OsString| {
        let name = Path::new(word).file_name()?;
        PROGRAMS.iter().find(|program| name == program.name)
    };
    let (first, rest) = words.split_first()?;
    if let Some(program) = named(first) {
        return Some((program, rest));
    }
    let (second, rest) = rest.split_first()?;
    let program = PROGRAMS.iter().find(|program| *second == *program.name)?;
    Some((program, rest))
}

impl Program {
    /// Runs the program, or prints its options.
    ///
    /// # Errors
    /// Those of the program; the options cannot be printed.
    pub(crate) fn run(&self, words: &[OsString]) -> Result<ExitCode> {
        let is_help = |word: &OsString| HELP.iter().any(|help| word == help);
        if !words.first().is_some_and(is_help) {
            return (self.run)(words);
        }
        let mut out = io::stdout().lock();
        writeln!(out, "The options of {} that restow takes:", self.name)?;
        for it in (self.options)() {
            let state = if it.state == "same" { "" } else { it.state };
            let notes: Vec<&str> = [state, it.note]
                .into_iter()
                .filter(|it| !it.is_empty())
                .collect();
            writeln!(
                out,
                "{}",
                format!("  {:32} {}", it.option, notes.join(": ")).trim_end()
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Its exit code for an error.
    pub(crate) fn failed(&self) -> u8 {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `RESTOW_UPDATE=1` writes the page.
    #[test]
    fn the_page_has_every_option() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compat.md");
        let page = fs::read_to_string(&path).unwrap();
        let (head, _) = page.split_once("\n## ").unwrap_or((&page, ""));
        let mut expected = head.trim_end().to_owned() + "\n";
        for program in PROGRAMS {
            expected += &format!("\n## {}\n\n", program.name);
            expected += "| option | here | note |\n|---|---|---|\n";
            for it in (program.options)() {
                let option = it.option.replace('|', "\\|");
                expected += &format!("| `{option}` | {} | {} |\n", it.state, it.note);
            }
        }
        if std::env::var_os("RESTOW_UPDATE").is_some() {
            fs::write(&path, &expected).unwrap();
        } else {
            assert_eq!(page, expected, "RESTOW_UPDATE=1 writes docs/compat.md");
        }
    }
}
