//! Tips for words of other programs: the equivalents here.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};

use crate::args::Restow;
use crate::text;

/// Words that are no commands, and their meaning.
const COMMANDS: [(&[&str], &str); 13] = [
    (
        &[
            "create",
            "c",
            "pack",
            "build",
            "make",
            "archive",
            "mksquashfs",
            "mkfs",
            "tar",
        ],
        "`restow copy DIR DST` makes an archive or image; the ending of DST says which, as in `out.tar` or `out.squashfs`",
    ),
    (
        &[
            "extract",
            "x",
            "unpack",
            "untar",
            "unsquashfs",
            "restore",
            "export",
        ],
        "`restow copy SRC DIR` extracts an archive or image; `restow copy SRC DIR PATH...` a part of it",
    ),
    (
        &["list", "l", "t", "dir", "tree", "lsar"],
        "`restow ls SRC` lists a directory, `restow ls -lR SRC` all files",
    ),
    (
        &[
            "convert",
            "recompress",
            "transcode",
            "compress",
            "decompress",
        ],
        "`restow copy SRC DST` converts; `restow stream convert` changes the version or compression of a send stream",
    ),
    (
        &["verify", "test", "fsck", "scrub", "validate"],
        "`restow check IMAGE` verifies an image, `restow stream verify STREAM` a send stream",
    ),
    (&["umount"], "`restow unmount DIR` unmounts"),
    (&["cp", "sync", "rsync"], "`restow copy SRC DST` copies"),
    (&["compare", "cmp"], "`restow diff A B` compares two trees"),
    (
        &["stat", "show", "header", "inspect", "file", "du"],
        "`restow info IMAGE` describes an image; `--path PATH` shows the space of a file or directory",
    ),
    (
        &["hash", "sha256", "sha256sum", "checksum", "mtree"],
        "`restow manifest SRC` prints the SHA-256 hash of every file",
    ),
    (
        &["print", "read", "show-file"],
        "`restow cat SRC PATH` prints a file",
    ),
    (
        &["rm", "remove", "delete"],
        "`restow copy --exclude PATTERN SRC DST` leaves files out; images are not changed in place",
    ),
    (
        &["add", "append", "update", "merge"],
        "`restow copy --with SRC2 SRC DST` adds a tree, `--add LIST` single files; images are not changed in place",
    ),
];

/// Options that restow does not have, and their counterparts.
const OPTIONS: [(&[&str], &str); 38] = [
    // Of many programs.
    (
        &[
            "--level",
            "-level",
            "-l",
            "-Xcompression-level",
            "--compression-level",
        ],
        "the level follows the codec: `--compress zstd:19`",
    ),
    (
        &[
            "--compression",
            "-comp",
            "-compressor",
            "--codec",
            "--algorithm",
        ],
        "`--compress CODEC`, such as `--compress zstd:19`",
    ),
    (
        &["--format", "-F", "--type", "--output-format"],
        "`--to FORMAT`; without it, the ending of DST says which",
    ),
    (
        &["--force", "-noappend"],
        "`--overwrite` replaces a file, `--replace` a directory, and `--merge` puts files into one",
    ),
    (
        &["-f", "--file"],
        "name the archive itself: `restow copy SRC DST`; `-` is standard input or output",
    ),
    (
        &[
            "--output",
            "-o",
            "--out",
            "-d",
            "-dest",
            "--input",
            "-i",
            "-C",
            "--directory",
        ],
        "source and destination have no options: `restow copy SRC DST`",
    ),
    (
        &["--jobs", "--parallel", "-processors", "-p", "-T"],
        "`-j N` or `--threads N`",
    ),
    (
        &["--recursive", "-r", "-a", "--archive"],
        "copies always have all files below SRC, with owners, times and attributes",
    ),
    (
        &["--dry-run", "-n"],
        "`restow ls -lR SRC` lists the files of a source, `restow info` describes an image",
    ),
    (
        &[
            "--ignore-case",
            "--regex",
            "-regex",
            "-wildcards",
            "--wildcards",
        ],
        "patterns are those of a shell; `**/` stands for all directories",
    ),
    // tar's.
    (
        &["--strip"],
        "`--strip-components N` removes the first names of each path",
    ),
    (
        &["--transform", "--xform"],
        "paths stay as they are; `--root-becomes PATH` puts the whole tree into a directory",
    ),
    (
        &["-x", "--extract", "-xf", "-xvf", "-xzf"],
        "`restow copy ARCHIVE DIR` extracts",
    ),
    (
        &["-c", "--create", "-cf", "-cvf", "-czf"],
        "`restow copy DIR out.tar` makes an archive",
    ),
    (
        &["-t", "--list", "-tf", "-tvf", "-ll", "-lls", "-ls"],
        "`restow ls ARCHIVE` lists, `restow ls -lR ARCHIVE` in full",
    ),
    (
        &["-z", "--gzip", "-J", "--xz", "--zstd", "--bzip2"],
        "the ending of DST says how it is compressed: `.tar.gz`, `.tar.xz` or `.tar.zst`; sources are recognised",
    ),
    (
        &["-X", "-ef", "-excludes", "--files-from"],
        "`--exclude-from LIST` has one pattern a line; PATH arguments after DST select files",
    ),
    (&["-e"], "`--exclude PATTERN`, once for each"),
    (
        &["--owner", "-force-uid", "--same-owner", "-force-owner"],
        "owners are kept as far as they may be set; `--uid USER` sets one for all files, `--no-owners` ignores them",
    ),
    (&["--group", "-force-gid"], "`--gid GROUP`"),
    (
        &["--numeric-owner", "--numeric-ids"],
        "owners are always numbers",
    ),
    (
        &["--mtime", "-all-time"],
        "`--all-time TIME`, such as `--all-time 2020-01-01`",
    ),
    (&["--mode"], "`--file-mode MODE` and `--dir-mode MODE`"),
    (&["--sort"], "archives and images are always sorted by name"),
    (
        &["--skip-old-files", "--keep-old-files", "-k"],
        "`--merge --keep-existing`",
    ),
    (
        &["--keep-newer-files", "--update", "-u"],
        "`--merge --keep-newer`",
    ),
    (
        &[
            "-S",
            "--sparse",
            "--acls",
            "--selinux",
            "--preserve-permissions",
            "--hard-links",
        ],
        "holes, attributes, access control lists and hard links are always kept",
    ),
    (
        &["--xattrs-include", "-xattrs-include"],
        "`--xattrs PATTERN`",
    ),
    (
        &["--xattrs-exclude", "-xattrs-exclude", "-no-xattrs"],
        "`--exclude-xattrs PATTERN`, or `--no-xattrs`",
    ),
    (
        &["-O", "--to-stdout", "-cat"],
        "`restow cat SRC PATH` prints a file",
    ),
    // mksquashfs' and unsquashfs'.
    (
        &["-b", "-block-size", "--block"],
        "`--block-size BYTES` of a SquashFS image, `--nodesize BYTES` of a btrfs image",
    ),
    (
        &["-no-fragments", "-always-use-fragments", "-tailends"],
        "`--fragments none`, `small` or `all`",
    ),
    (
        &[
            "-no-duplicates",
            "-no-exports",
            "-all-root",
            "-mkfs-time",
            "-offset",
            "-sort",
            "-root-becomes",
            "-one-file-system",
            "-ignore-zeros",
            "-quiet",
            "-no-progress",
        ],
        "the same with two hyphens",
    ),
    (&["-pf", "-pseudo"], "`--add LIST`"),
    (
        &["-info", "--list-files"],
        "`-v` lists the files that are copied",
    ),
    (
        &["-mem"],
        "`--memory BYTES`; without it, a SquashFS image takes about 10 MB",
    ),
    // mkfs.btrfs'.
    (
        &[
            "--rootdir",
            "--byte-count",
            "-L",
            "-U",
            "--csum",
            "--subvol",
            "--shrink",
            "-m",
        ],
        "`restow copy DIR out.btrfs` with `--size`, `--label`, `--uuid`, `--checksum`, `--as-subvolume` or `--metadata`",
    ),
    (&["-nopad"], "`--no-padding`"),
];

/// Adds a tip to an error of the command line, if a word on it is one of another program.
pub(crate) fn with_tip(mut error: Error, typed: &[OsString]) -> Error {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = text_of(&error, ContextKind::InvalidSubcommand);
            find(&COMMANDS, &word).or_else(|| of_typo(&word))
        }
        ErrorKind::UnknownArgument => {
            let wrong = text_of(&error, ContextKind::InvalidArg);
            // clap names the first letter of `-comp`.
            let words = typed.iter().filter_map(|word| word.to_str());
            let words = words.map(|word| word.split('=').next().unwrap_or(word));
            let mut words = words.filter(|word| word.starts_with(&*wrong));
            let of_word = words.find_map(|word| find(&OPTIONS, word));
            of_word.or_else(|| of_second_path(&wrong, typed))
        }
        _ => None,
    };
    // A typo must not lead to an option that deletes.
    let suggested = error.get(ContextKind::SuggestedArg);
    let deletes = |word: &&ContextValue| {
        let word = word.to_string();
        ["--replace", "--overwrite"].contains(&&*word)
    };
    if suggested.filter(deletes).is_some() {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::Usage); // It names the option, too.
    }
    escape_typed(&mut error);
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        let tip = vec![StyledStr::from(tip)];
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tip));
    }
    error
}

/// Escapes the words of the user in an error: a terminal obeys control characters.
fn escape_typed(error: &mut Error) {
    let is_harmful = |words: &String| words.contains(char::is_control);
    let typed: Vec<_> = (error.context())
        .filter_map(|(kind, value)| match value {
            ContextValue::String(words) if is_harmful(words) => {
                Some((kind, ContextValue::String(text::of_name(words.as_bytes()))))
            }
            _ => None,
        })
        .collect();
    for (kind, value) in typed {
        error.insert(kind, value);
        error.remove(ContextKind::Suggested); // It shows the words, too.
    }
}

/// The tip for a word that is a typo of one in the table, unless it is a typo of a command.
fn of_typo(word: &str) -> Option<&'static str> {
    let restow = Restow::command();
    let mut commands = restow.get_subcommands().map(clap::Command::get_name);
    if word.len() < 4 || commands.any(|command| is_typo(word, command)) {
        return None;
    }
    let known = COMMANDS
        .iter()
        .find(|(words, _)| words.iter().any(|known| is_typo(word, known)));
    known.map(|(_, tip)| *tip)
}

/// Whether a letter is missing, added or wrong, or two letters are exchanged.
fn is_typo(typed: &str, meant: &str) -> bool {
    let (a, b) = (typed.as_bytes(), meant.as_bytes());
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    match (&a[same..], &b[same..]) {
        ([_, a @ ..], b) if a == b => true,
        (a, [_, b @ ..]) if a == b => true,
        ([_, a @ ..], [_, b @ ..]) if a == b => true,
        ([a0, a1, a @ ..], [b0, b1, b @ ..]) => (a0, a1, a) == (b1, b0, b),
        _ => false,
    }
}

/// A path too many where another command would have a source.
fn of_second_path(wrong: &str, typed: &[OsString]) -> Option<&'static str> {
    let is_path = !wrong.starts_with('-');
    let is_receive = typed.iter().any(|word| word == "receive");
    (is_path && is_receive).then_some("the stream follows an option: `restow receive -f FILE DIR`")
}

fn text_of(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(words)) => words.clone(),
        _ => String::new(),
    }
}

fn find(table: &[(&[&'static str], &'static str)], word: &str) -> Option<&'static str> {
    let mut rows = table.iter();
    rows.find(|(words, _)| words.contains(&word))
        .map(|(_, tip)| *tip)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word in both would never be found; an option that a tip names exists.
    #[test]
    fn tips_name_what_there_is_and_no_word_has_two() {
        let mut command = Restow::command();
        command.build();
        let copy = command.find_subcommand("copy").unwrap();
        let known = |word: &str| {
            let mut all = command
                .get_subcommands()
                .flat_map(clap::Command::get_arguments);
            let mut nested = copy.get_arguments();
            let is = |arg: &clap::Arg| arg.get_long() == word.strip_prefix("--");
            all.any(is) || nested.any(is)
        };
        for table in [&COMMANDS[..], &OPTIONS] {
            let mut words: Vec<&str> = table
                .iter()
                .flat_map(|(words, _)| *words)
                .copied()
                .collect();
            let count = words.len();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), count);
            for (_, tip) in table {
                for code in tip
                    .split('`')
                    .skip(1)
                    .step_by(2)
                    .filter(|code| !code.contains(" tar "))
                {
                    for word in code.split(' ').filter(|word| word.starts_with("--")) {
                        assert!(known(word), "{word} in {tip}");
                    }
                    let mut words = code.split(' ');
                    if words.next() == Some("restow") {
                        let name = words.next().unwrap();
                        assert!(command.find_subcommand(name).is_some(), "{tip}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_typo_gets_the_tip_of_the_word_or_that_of_a_command() {
        for (typed, tip) in [
            ("creat", "copy"),
            ("exract", "extracts"),
            ("vreify", "check"),
        ] {
            assert!(of_typo(typed).is_some_and(|it| it.contains(tip)), "{typed}");
        }
        for typed in ["sen", "strem", "usag", "created2", "cxxx"] {
            assert_eq!(of_typo(typed), None, "{typed}");
        }
    }
}
