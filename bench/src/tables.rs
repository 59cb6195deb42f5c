//! All tables and work, and how they are measured.

use clap::Parser;

use crate::options::Options;
use crate::page::{PageFiles, circumstances, render};
use crate::record::TableRecord;
use crate::table::{Page, TableSpec};
use crate::{
    blocks, codec_table, hash, images, kinds, mount, process_table, published, streams, trees,
};

/// Tables in the order of their pages, then work.
pub(crate) const TABLES: &[TableSpec] = &[
    TableSpec {
        page: Page::Benchmarks,
        name: "decode-128k",
        help: "frames of 128 KiB decoded",
        measure: blocks::decode,
        runs: &["--corpus dickens mr ooffice xml linux.tar usrlib.tar --peers c,ours,portable"],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "decode-1m",
        help: "frames of 1 MiB decoded",
        measure: blocks::decode,
        runs: &["--block 1M --corpus dickens mr ooffice xml linux.tar usrlib.tar"],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "stream-decode",
        help: "one frame made by C, decoded in 4096-byte pieces",
        measure: blocks::decode,
        runs: &["--pieces --corpus dickens mr ooffice xml linux.tar usrlib.tar"],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "decode-kinds",
        help: "frames of many kinds of data decoded",
        measure: blocks::decode,
        runs: &[
            "--by-size --corpus reporting --block 4K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --corpus reporting --block 8K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --corpus reporting --block 16K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --corpus reporting --block 32K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --corpus reporting --block 64K --sample 1M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --corpus reporting --block 128K --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --corpus reporting --block 256K --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --corpus reporting --block 1M --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
            "--by-size --pieces --corpus reporting --sample 2M --seconds 0.25 --levels -5,1,3,9,19",
        ],
        show: kinds::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "encode-128k",
        help: "frames of 128 KiB encoded",
        measure: blocks::encode,
        runs: &[
            "--corpus dickens mr ooffice xml linux.tar usrlib.tar --levels -5,1,3,5,6,9,12,15,19,22",
        ],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "encode-1m",
        help: "frames of 1 MiB encoded",
        measure: blocks::encode,
        runs: &[
            "--corpus dickens mr ooffice xml linux.tar usrlib.tar --levels 1,3,5,10,15,19 --block 1M --seconds 0.4 --sample 3M",
        ],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "stream-encode",
        help: "one frame, encoded in 4096-byte pieces",
        measure: blocks::encode,
        runs: &[
            "--pieces --corpus dickens mr ooffice xml linux.tar usrlib.tar --levels 1,3,5,10,15,19 --seconds 0.5 --sample 4M",
        ],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "encode-kinds",
        help: "frames of many kinds of data encoded",
        measure: blocks::encode,
        runs: &[
            "--by-size --corpus reporting --block 4K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "--by-size --corpus reporting --block 8K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "--by-size --corpus reporting --block 16K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "--by-size --corpus reporting --block 32K --sample 512K --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "--by-size --corpus reporting --block 64K --sample 1M --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "--by-size --corpus reporting --block 128K --sample 1M --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,13,15,19,22",
            "--by-size --corpus reporting --block 256K --sample 1M --seconds 0.25 --levels -5,-1,1,3,5,7,10,12,15,19",
            "--by-size --corpus reporting --block 1M --sample 2M --seconds 0.25 --levels -5,1,3,5,10,15,19",
            "--by-size --pieces --corpus reporting --sample 2M --seconds 0.25 --levels -5,1,3,5,10,15,19",
        ],
        show: kinds::show,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "squashfs",
        help: "SquashFS images of directories, beside mksquashfs and gensquashfs",
        measure: images::squashfs,
        runs: &[
            "--corpus usr --codecs zstd:1,zstd:5,lz4 --seconds 4",
            "--corpus linux --codecs zstd:1,zstd:5,zstd:10,lz4,lzo --seconds 4",
            "--corpus part --codecs zstd:1,zstd:5,zstd:10,zstd:15,zstd:16@256K,lz4,gzip:9,lz4:hc,lzo,lzo:8 --seconds 4",
            "--corpus three --codecs zstd:10 --seconds 4",
        ],
        show: process_table::squashfs,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "unsquashfs",
        help: "SquashFS images unpacked, beside unsquashfs",
        measure: images::unsquashfs,
        runs: &["--corpus part --codecs zstd:15,gzip:9,xz,lz4 --seconds 4"],
        show: process_table::unsquashfs,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "btrfs",
        help: "btrfs images of directories, beside mkfs.btrfs",
        measure: images::btrfs,
        runs: &["--corpus usr --codecs zstd:3,zstd:15,lzo,none --seconds 4"],
        show: process_table::btrfs,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "trees",
        help: "directories and archives, beside GNU tar, cp and diff",
        measure: trees::of_host,
        runs: &["--corpus source usr --seconds 8"],
        show: process_table::trees,
    },
    TableSpec {
        page: Page::Benchmarks,
        name: "mount",
        help: "mounts, beside Linux, squashfuse_ll and erofsfuse (as root, on a quiet machine)",
        measure: mount::measure,
        runs: &[""],
        show: mount::show,
    },
    TableSpec {
        page: Page::Published,
        name: "devices",
        help: "Ratio against speed of each method through a device, in both directions",
        measure: published::devices::measure,
        runs: &[""],
        show: published::devices::show,
    },
    TableSpec {
        page: Page::Published,
        name: "squashfs",
        help: "Ratio of SquashFS images against the speed of making and of reading them",
        measure: published::squashfs::measure,
        runs: &[""],
        show: published::squashfs::show,
    },
    TableSpec {
        page: Page::Published,
        name: "hash",
        help: "Speed of hashes by the size of the buffer",
        measure: published::hash::measure,
        runs: &[""],
        show: published::hash::show,
    },
    TableSpec {
        page: Page::Published,
        name: "levels",
        help: "Ratio against speed of levels -15 to 15, in both directions",
        measure: published::levels::measure,
        runs: &[""],
        show: published::levels::show,
    },
    TableSpec {
        page: Page::Published,
        name: "streams",
        help: "Elapsed time of sending and receiving, by mode",
        measure: streams::measure,
        runs: &[""],
        show: streams::show,
    },
    TableSpec {
        page: Page::Published,
        name: "btrfs",
        help: "Ratio on btrfs against the speed of writing and of reading",
        measure: published::btrfs::measure,
        runs: &[""],
        show: published::btrfs::show,
    },
    TableSpec {
        page: Page::Published,
        name: "extract",
        help: "Time to copy a tar archive, to extract it and to read the tree",
        measure: published::extract::measure,
        runs: &[""],
        show: published::extract::show,
    },
    TableSpec {
        page: Page::Printed,
        name: "decode",
        help: "independent frames made by C, decoded",
        measure: blocks::decode,
        runs: &[""],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Printed,
        name: "encode",
        help: "independent frames, encoded",
        measure: blocks::encode,
        runs: &[""],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Printed,
        name: "hash",
        help: "XXH32 and XXH64 of 4 KiB, 128 KiB and 10 MB, beside two crates",
        measure: hash::hash,
        runs: &[""],
        show: codec_table::show,
    },
    TableSpec {
        page: Page::Printed,
        name: "streams",
        help: "send streams of --corpus DIR, beside btrfs-progs (as root)",
        measure: streams::measure,
        runs: &[""],
        show: streams::show,
    },
];

/// All tables of a page.
pub(crate) fn of_page(page: Page) -> impl Iterator<Item = &'static TableSpec> {
    TABLES.iter().filter(move |table| table.page == page)
}

/// Measures the table of docs/BENCHMARKS.md or the work that is named first, or `tables`, which is
/// all of the page.
pub(crate) fn bench(arguments: &[String]) -> Result<(), String> {
    let name = &arguments[0];
    if name == "tables" {
        return of_page(Page::Benchmarks).try_for_each(|table| measure(table, &arguments[1..]));
    }
    let mut all = of_page(Page::Benchmarks).chain(of_page(Page::Printed));
    let table = all.find(|table| table.name == name);
    measure(
        table.ok_or("no table and no work has that name")?,
        &arguments[1..],
    )
}

/// Measures the named tables of docs/published.md, or all.
pub(crate) fn published(arguments: &[String]) -> Result<(), String> {
    let options = parse("", arguments)?;
    let of_name = |name: &String| {
        let table = of_page(Page::Published).find(|table| table.name == name);
        table.ok_or_else(|| {
            let names: Vec<&str> = of_page(Page::Published).map(|table| table.name).collect();
            format!("no table is called {name}; there are {}", names.join(", "))
        })
    };
    let mut tables = options
        .names
        .iter()
        .map(of_name)
        .collect::<Result<Vec<_>, _>>()?;
    if tables.is_empty() {
        tables.extend(of_page(Page::Published));
    }
    for table in tables {
        let files = PageFiles::new(&options);
        if options.again {
            files.put(table)?;
        } else {
            measure(table, arguments)?;
        }
    }
    Ok(())
}

/// Puts all tables of docs/BENCHMARKS.md into the page again.
pub(crate) fn report(arguments: &[String]) -> Result<(), String> {
    let files = PageFiles::new(&parse("", arguments)?);
    of_page(Page::Benchmarks).try_for_each(|table| files.put(table))
}

/// Reads options, the later ones replacing the earlier ones.
fn parse(run: &str, arguments: &[String]) -> Result<Options, String> {
    let words = ["cargo xtask bench"]
        .into_iter()
        .chain(run.split_whitespace());
    let words = words.map(str::to_owned).chain(arguments.iter().cloned());
    Options::parse_from(words).settle()
}

/// Measures a table, prints it, and puts it into its page.
fn measure(table: &TableSpec, arguments: &[String]) -> Result<(), String> {
    println!("{}: {}", table.name, table.help);
    let is_printed = match table.page {
        Page::Printed => true,
        Page::Benchmarks => asks_for_another(arguments),
        Page::Published => false,
    };
    // Other runs would do the same once more if the options replace the differences.
    let runs = if is_printed {
        &table.runs[..1]
    } else {
        table.runs
    };
    let mut record = TableRecord::default();
    circumstances(&mut record);
    let options = parse(runs[0], arguments)?;
    for run in runs {
        let options = parse(run, arguments)?;
        (table.measure)(&options, &mut record).map_err(|why| format!("{}: {why}", table.name))?;
    }
    // The table is made of the numbers that are kept.
    let record = TableRecord::parse(&record.text())?;
    println!("\n{}", render(table, &record).text);
    if is_printed {
        return Ok(());
    }
    PageFiles::new(&options).keep(table, &record)
}

/// Whether options make another table than the page's: all do but those that say where and how.
fn asks_for_another(options: &[String]) -> bool {
    const NEUTRAL: [&str; 4] = ["--corpora", "--cpu", "--dir", "--out"];
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let (name, has_value) = match option.split_once('=') {
            Some((name, _)) => (name, true),
            None => (option.as_str(), false),
        };
        if !NEUTRAL.contains(&name) {
            return true;
        }
        if !has_value {
            options.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::assert_is_in_page;

    #[test]
    fn runs_are_understood_and_names_are_unique() {
        for (index, table) in TABLES.iter().enumerate() {
            for run in table.runs {
                parse(run, &[]).unwrap();
            }
            let is_same = |other: &&TableSpec| (other.page, other.name) == (table.page, table.name);
            assert!(
                !TABLES[..index].iter().any(|other| is_same(&other)),
                "{}",
                table.name
            );
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

    /// The pages show their records: `bench report` and `tables --again` change nothing.
    #[test]
    fn pages_show_their_records() {
        for table in TABLES.iter().filter(|table| table.page != Page::Printed) {
            assert_is_in_page(table);
        }
    }

    /// A table without figures has no wrong numbers, and a plot that a reader can draw.
    #[test]
    fn empty_records_are_shown() {
        for table in TABLES {
            let shown = render(table, &TableRecord::default());
            let drawn = shown.plot.map_or(String::new(), |plot| plot.document());
            for wrong in ["NaN", "inf"] {
                let text = &shown.text;
                assert!(!drawn.contains(wrong) && !text.contains(wrong), "{text}");
            }
        }
    }
}
