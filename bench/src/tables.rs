//! What can be measured, and the tables of docs/BENCHMARKS.md made of it.

use clap::Parser;

use crate::kinds::AT;
use crate::options::Options;
use crate::published::PUBLISHED;
use crate::table::{Form, Table};
use crate::{blocks, hash, images, record, stream, trees};

/// Measures what the options ask for, printing each row when it is there.
type Work = fn(&Options) -> Result<Table, String>;

/// What can be measured: a name, and one line of help. A table that is called like its work is made of it alone.
pub(crate) const WORK: &[(&str, Work, &str)] = &[
    (
        "decode",
        blocks::decode,
        "independent frames made by C, decoded",
    ),
    ("encode", blocks::encode, "independent frames, encoded"),
    (
        "stream-decode",
        stream::decode,
        "one frame made by C, decoded in 4096-byte pieces",
    ),
    (
        "stream-encode",
        stream::encode,
        "one frame, encoded in 4096-byte pieces",
    ),
    (
        "hash",
        hash::hash,
        "XXH32 and XXH64 of 4 KiB, 128 KiB and 10 MB",
    ),
    (
        "squashfs",
        images::squashfs,
        "SquashFS images of directories, beside mksquashfs and gensquashfs",
    ),
    (
        "unsquashfs",
        images::unsquashfs,
        "SquashFS images unpacked, beside unsquashfs",
    ),
    (
        "btrfs",
        images::btrfs,
        "btrfs images of directories, beside mkfs.btrfs",
    ),
    (
        "trees",
        trees::of_host,
        "directories and archives, beside GNU tar, cp and diff",
    ),
];

/// Measures what the command line names: a table for the page, or anything with options.
pub(crate) fn measure(arguments: &[String]) -> Result<(), String> {
    let name = &arguments[0];
    let options = &arguments[1..];
    let published = PUBLISHED.iter().find(|table| table.name == name);
    let Some(published) = published else {
        return run(name, options).map(drop);
    };
    let is_another = asks_for_another(options);
    let mut tables = Vec::new();
    // Other runs would do the same once more if the options replace what is different in them.
    for words in &published.runs[..if is_another { 1 } else { published.runs.len() }] {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let mut table = run(&words[0], &[&words[1..], options].concat())?;
        if published.form == Form::Kinds {
            let size = frame_size(&words);
            for row in &mut table.rows {
                row.level = format!("{}{AT}{size}", row.level);
            }
        }
        tables.push(table);
    }
    if is_another {
        return Ok(());
    }
    let table = Table::joined(tables).ok_or("a table has no runs")?;
    record::store(name, &table)?;
    record::splice(name)
}

/// How large the frames of a run are, as its words say it.
fn frame_size(words: &[String]) -> &str {
    let mut after = words.iter().skip_while(|word| *word != "--block").skip(1);
    let block = after.next().map_or("128K", String::as_str);
    if words[0].starts_with("stream") {
        "stream"
    } else {
        block
    }
}

/// All tables of the page.
pub(crate) fn all(options: &[String]) -> Result<(), String> {
    for table in PUBLISHED {
        println!("\n{}\n", table.name);
        measure(&[&[table.name.to_owned()], options].concat())?;
    }
    Ok(())
}

/// Does the named work.
fn run(name: &str, options: &[String]) -> Result<Table, String> {
    let words = ["cargo xtask bench", name].map(str::to_owned);
    let options = Options::parse_from(words.iter().chain(options)).settle()?;
    let Some((_, work, _)) = WORK.iter().find(|(work, ..)| *work == name) else {
        return Err("no table and no work has that name".into());
    };
    work(&options)
}

/// Whether options make another table than the page's: all do but those that say where and how.
fn asks_for_another(options: &[String]) -> bool {
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--corpora" | "--cpu" => drop(options.next()),
            option if option.starts_with("--corpora=") || option.starts_with("--cpu=") => {}
            _ => return true,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_understood() {
        for table in PUBLISHED {
            for words in table.runs {
                let options = Options::try_parse_from(["x"].into_iter().chain(words.split(' ')));
                let options = options.unwrap().settle().unwrap();
                let is_there = WORK.iter().any(|(work, ..)| *work == options.name);
                assert!(is_there, "{words}");
            }
        }
    }

    #[test]
    fn only_options_about_the_place_keep_the_table() {
        let asks = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            asks_for_another(&words)
        };
        assert!(!asks("") && !asks("--corpora x --cpu 1") && !asks("--corpora=x"));
        assert!(asks("--quick") && asks("--corpora x --levels 1"));
    }
}
