//! Every campaign: its name, what it runs, and what that shows.

use std::fs;

use crate::environment::root;
use crate::harness::Sanitizer;
use crate::outcome::Outcome;
use crate::{archives, kmod, outside, plan};

/// A long run.
pub(super) struct Campaign {
    pub(super) name: &'static str,
    pub(super) run: Run,
    /// What is shown by it.
    pub(super) shows: &'static str,
}

pub(super) enum Run {
    /// The tests of a crate_name whose names contain the filter, with `RESTOW_CASES`.
    Tests {
        crate_name: &'static str,
        filter: &'static str,
        cases: u64,
        /// They mount.
        as_root: bool,
    },
    /// What stands in a file of its own.
    Other {
        run: fn() -> Outcome,
        words: &'static str,
        crate_name: &'static str,
    },
    /// A fuzz target under AddressSanitizer.
    Fuzz { target: &'static str, minutes: u64 },
    /// The tests of a crate_name's library whose names contain one of the filters, under Miri.
    Miri {
        crate_name: &'static str,
        filters: &'static [&'static str],
    },
    /// A fuzz harness in C, under a sanitizer.
    Harness {
        source: &'static str,
        sanitizer: Sanitizer,
        minutes: u64,
    },
    /// Changes of a crate_name's files, of which its tests must notice at least this percentage.
    Mutants {
        crate_name: &'static str,
        files: &'static [&'static str],
        caught_min: u64,
    },
}

const fn tests(crate_name: &'static str, filter: &'static str, cases: u64) -> Run {
    Run::Tests {
        crate_name,
        filter,
        cases,
        as_root: false,
    }
}

const fn kernel_tests(crate_name: &'static str, filter: &'static str, cases: u64) -> Run {
    Run::Tests {
        crate_name,
        filter,
        cases,
        as_root: true,
    }
}

const fn fuzz(target: &'static str) -> Run {
    Run::Fuzz {
        target,
        minutes: 30,
    }
}

const fn mutants_of(
    crate_name: &'static str,
    files: &'static [&'static str],
    caught_min: u64,
) -> Run {
    Run::Mutants {
        crate_name,
        files,
        caught_min,
    }
}

/// The test suite of another project, run with its programs and with ours.
const fn outside(run: fn() -> Outcome) -> Run {
    Run::Other {
        run,
        words: "the test suite of another project, as root",
        crate_name: "cli",
    }
}

const fn machine(run: fn() -> Outcome) -> Run {
    Run::Other {
        run,
        words: "kernels, built and booted in QEMU",
        crate_name: "kmod",
    }
}

const fn campaign_of(name: &'static str, run: Run, shows: &'static str) -> Campaign {
    Campaign { name, run, shows }
}

/// Every campaign.
pub(super) const CAMPAIGNS: &[Campaign] = &[
    campaign_of(
        "zstd-frames-of-c",
        tests("zstd", "differential::frames_of_c", 110_000),
        "frames by C of all strategies, parameters and dictionaries decode to their content, through a random entry point each",
    ),
    campaign_of(
        "zstd-unusual-frames",
        tests("zstd", "differential::unusual", 110_000),
        "frames that no encoder makes decode as in C and in the reference decoder",
    ),
    campaign_of(
        "zstd-damaged-frames",
        tests("zstd", "differential::damaged", 1_050_000),
        "damaged frames have the verdict of C, but for the differences in docs/formats/zstd.md",
    ),
    campaign_of(
        "zstd-small-inputs",
        tests("zstd", "encode::random_structured", 1_000_000),
        "both decoders give back what is encoded at all levels, and the frame does not depend on the workspace",
    ),
    campaign_of(
        "zstd-streams",
        tests("zstd", "encode_stream::", 10_000),
        "streams in random pieces, with random flushes, decode to their content",
    ),
    campaign_of(
        "lzo-damaged-streams",
        tests("lzo", "damaged_streams", 1_000_000),
        "damaged streams have the verdict of liblzo2 and of the slow decoder",
    ),
    campaign_of(
        "lzo-contents",
        tests("lzo", "liblzo2_reads_ours", 100_000),
        "liblzo2 decodes ours, and we decode what it makes",
    ),
    campaign_of(
        "tar-damaged-archives",
        tests("tree", "hostile::tar::", 1_000_000),
        "damaged archives are read or refused, without a panic, a hang or much memory",
    ),
    campaign_of(
        "tar-archives",
        Run::Other {
            run: archives::campaign,
            words: "the archives in RESTOW_ARCHIVES, as root",
            crate_name: "tree",
        },
        "archives of other projects that GNU tar and bsdtar read are extracted by us with what both agree on: content, modes, owners, times, links, attributes",
    ),
    campaign_of(
        "squashfs-damaged-images",
        tests("squashfs", "hostile::", 100_000),
        "damaged images of each codec are read or refused within 256 MiB of address space",
    ),
    campaign_of(
        "squashfs-rescue",
        tests("squashfs", "rescue::", 1700),
        "of damaged images of each codec, every file is read whose stored parts are intact",
    ),
    campaign_of(
        "squashfs-mutants",
        kernel_tests("squashfs", "verdicts::", 20_000),
        "what the check passes of images with changed fields, Linux mounts and shows as we do",
    ),
    campaign_of(
        "squashfs-matrix-ours",
        kernel_tests("squashfs", "matrix::what_we_write", 1680),
        "our images of all codecs, levels, block sizes and layouts, read by Linux, unsquashfs, rdsquashfs and us",
    ),
    campaign_of(
        "squashfs-matrix-mksquashfs",
        kernel_tests("squashfs", "matrix::what_mksquashfs", 2288),
        "images of mksquashfs, read by us as by Linux",
    ),
    campaign_of(
        "squashfs-matrix-gensquashfs",
        kernel_tests("squashfs", "matrix::what_gensquashfs", 448),
        "images of gensquashfs, read by us as by Linux",
    ),
    campaign_of(
        "btrfs-damaged-images",
        tests("btrfs", "hostile::", 100_000),
        "damaged images are read or refused within 256 MiB of address space",
    ),
    campaign_of(
        "btrfs-verdicts",
        tests("btrfs", "verdicts::", 3000),
        "what `btrfs check` calls damaged, `restow check` does",
    ),
    campaign_of(
        "btrfs-rescue",
        tests("btrfs", "rescue::every_file", 10_000),
        "of damaged images, every file is read as it was if each of its blocks is intact in one copy",
    ),
    campaign_of(
        "btrfs-replay",
        kernel_tests("btrfs", "replay::what_was_synced", 300),
        "what was synced and not committed is shown as Linux shows it after replaying the log",
    ),
    campaign_of(
        "btrfs-matrix",
        kernel_tests("btrfs", "kernel::ours::linux_mounts_scrubs", 120),
        "images of all algorithms, checksums and profiles, mounted, scrubbed, changed and balanced by Linux",
    ),
    campaign_of(
        "receive-into-images",
        kernel_tests("cli", "receive_image::linux_takes", 50),
        "streams of Linux, full and incremental, received into images of mkfs.btrfs and ours: checked, scrubbed, sent again and received on by Linux",
    ),
    campaign_of(
        "backup-chain",
        kernel_tests("cli", "chain::ten_days", 30),
        "daily backups of ten days are sent, converted and restored by us and by btrfs-progs; damage and changed parents are found before anything is marked",
    ),
    campaign_of(
        "send-usr-zstd",
        kernel_tests("cli", "send_usr::zstd", 30_000),
        "files of /usr under zstd, full and with changes: sent as by Linux, received by Linux and by us, and converted",
    ),
    campaign_of(
        "send-usr-lzo",
        kernel_tests("cli", "send_usr::lzo", 30_000),
        "files of /usr under lzo, full and with changes: sent as by Linux, received by Linux and by us, and converted",
    ),
    campaign_of(
        "send-usr-zlib",
        kernel_tests("cli", "send_usr::zlib", 30_000),
        "files of /usr under zlib, full and with changes: sent as by Linux, received by Linux and by us, and converted",
    ),
    campaign_of(
        "stream-lzo-tails",
        kernel_tests("cli", "lzo_tails::every_end", 20_000),
        "LZO extents that end around the end of a sector: Linux and we read, write, convert and receive the same",
    ),
    campaign_of(
        "stream-memory",
        tests("cli", "memory::", 1_000_000),
        "streams of a million files, and of 1 GB, are verified, converted and printed in at most 64 MiB",
    ),
    campaign_of(
        "btrfs-small-files",
        kernel_tests("btrfs", "many::", 200_000),
        "small files that Linux wrote with lzo, zlib and zstd are read by us, and ours by Linux",
    ),
    campaign_of(
        "btrfs-mounted-usr",
        kernel_tests("cli", "mounted::files_of_usr", 24_000),
        "compressed files of /usr go from a mounted btrfs into an image, into another mounted btrfs and on, without an extent encoded again",
    ),
    campaign_of(
        "merge-model",
        tests("tree", "merge::random_trees", 5000),
        "trees merged into directories are as a model says",
    ),
    campaign_of(
        "send-incremental",
        kernel_tests("cli", "send_incremental::random_changes", 54),
        "incremental streams of images are received by Linux, with the result of its own",
    ),
    campaign_of(
        "btrfs-progs-tests",
        outside(outside::btrfs_progs),
        "tests of btrfs-progs for send and receive that pass with it pass with restow",
    ),
    campaign_of(
        "fstests-send",
        outside(outside::fstests),
        "tests of fstests for send and receive that pass with btrfs-progs pass with restow",
    ),
    campaign_of(
        "kmod-consumers",
        machine(|| kmod::consumers(None)),
        "Linux's SquashFS, btrfs, crypto API and zram on our modules: images of ours and of the C tools are read, btrfs is written at all levels; checked by btrfs-progs and read by the host's Linux",
    ),
    campaign_of(
        "kmod-consumers-6.12",
        machine(|| kmod::consumers(Some("6.12"))),
        "the same on Linux 6.12",
    ),
    campaign_of(
        "fuzz-c-address",
        Run::Harness {
            source: "fuzz_2017",
            sanitizer: Sanitizer::Address,
            minutes: 20,
        },
        "both harnesses of 2017 through the C interface, under AddressSanitizer, in C also under UndefinedBehaviorSanitizer: no finding",
    ),
    campaign_of(
        "fuzz-c-memory",
        Run::Harness {
            source: "fuzz_2017",
            sanitizer: Sanitizer::Memory,
            minutes: 20,
        },
        "the same under MemorySanitizer: no finding",
    ),
    campaign_of(
        "fuzz-c-callers",
        Run::Harness {
            source: "fuzz_callers",
            sanitizer: Sanitizer::Address,
            minutes: 20,
        },
        "callers of the streams that keep no order, under AddressSanitizer and UndefinedBehaviorSanitizer: nothing is written outside of their buffers",
    ),
    campaign_of(
        "miri-zstd-encode",
        Run::Miri {
            crate_name: "zstd",
            filters: &["encode::tests::"],
        },
        "every strategy of the encoder, one-shot, in pieces and with dictionaries, on small inputs: no undefined behaviour",
    ),
    campaign_of(
        "miri-zstd-decode",
        Run::Miri {
            crate_name: "zstd",
            filters: &["decode::tests::", "arch::"],
        },
        "the decoder with plain pointers and in safe code, on small vectors, frames and damaged frames: no undefined behaviour",
    ),
    campaign_of(
        "mutants-xxhash",
        mutants_of("xxhash", &["crates/xxhash/src/**"], 100),
        "the tests notice every small change of the code",
    ),
    campaign_of(
        "mutants-lzo",
        mutants_of("lzo", &["crates/lzo/src/**"], 95),
        "the tests notice small changes of the code",
    ),
    campaign_of(
        "mutants-zstd",
        mutants_of(
            "zstd",
            &[
                "crates/zstd/src/frame/**",
                "crates/zstd/src/fse/**",
                "crates/zstd/src/huffman/**",
                "crates/zstd/src/literals/**",
                "crates/zstd/src/sequences/**",
            ],
            95,
        ),
        "the tests notice small changes of the code",
    ),
    campaign_of(
        "kmod-tree",
        machine(|| kmod::tree(None)),
        "the sources of Debian's kernel with the modules in lib/restow build a small kernel and the modules, without a warning; the kernel's names are exported where it has none",
    ),
    campaign_of("fuzz-btrfs", fuzz("btrfs"), "no finding"),
    campaign_of("fuzz-disk", fuzz("disk"), "no finding"),
    campaign_of("fuzz-fuse", fuzz("fuse"), "no finding"),
    campaign_of("fuzz-merge", fuzz("merge"), "no finding"),
    campaign_of("fuzz-receive", fuzz("receive"), "no finding"),
    campaign_of("fuzz-replay", fuzz("replay"), "no finding"),
    campaign_of("fuzz-resume", fuzz("resume"), "no finding"),
    campaign_of("fuzz-reuse", fuzz("reuse"), "no finding"),
    campaign_of("fuzz-seekable", fuzz("seekable"), "no finding"),
    campaign_of("fuzz-sendstream", fuzz("sendstream"), "no finding"),
    campaign_of("fuzz-squashfs-read", fuzz("squashfs_read"), "no finding"),
    campaign_of(
        "fuzz-squashfs-records",
        fuzz("squashfs_records"),
        "no finding",
    ),
    campaign_of("fuzz-tar", fuzz("tar"), "no finding"),
    campaign_of("fuzz-undump", fuzz("undump"), "no finding"),
    campaign_of("fuzz-lzo", fuzz("lzo"), "no finding"),
    campaign_of("fuzz-wrapper", fuzz("wrapper"), "no finding"),
    campaign_of("fuzz-xxhash", fuzz("xxhash"), "no finding"),
    campaign_of("fuzz-zstd-decode", fuzz("zstd_decode"), "no finding"),
    campaign_of("fuzz-zstd-encode", fuzz("zstd_encode"), "no finding"),
    campaign_of(
        "plan",
        Run::Other {
            run: plan::campaign,
            words: "the trees in RESTOW_TREES, copied with every candidate",
            crate_name: "cli",
        },
        "predicted sizes within 2 % and times within 15 % of copies, and 38 of 40 recommendations nearly the best",
    ),
];

impl Run {
    /// The names of the crates that are tried, or paths of other files.
    pub(super) fn tries(&self) -> Vec<String> {
        match self {
            Run::Tests { crate_name, .. }
            | Run::Miri { crate_name, .. }
            | Run::Mutants { crate_name, .. } => vec![(*crate_name).to_owned()],
            // The modules are built from the crate behind the C interface.
            Run::Other {
                crate_name: "kmod", ..
            } => ["kmod/", "ffi"].map(str::to_owned).into(),
            Run::Other { crate_name, .. } => vec![(*crate_name).to_owned()],
            Run::Harness { .. } => vec!["ffi".to_owned()],
            Run::Fuzz { target, .. } => {
                let path = format!("fuzz/targets/{target}.rs");
                let text = fs::read_to_string(root().join(&path)).unwrap_or_default();
                let is_name = |char: char| char.is_alphanumeric() || char == '_';
                let before =
                    |part: &str| part.rsplit(|char| !is_name(char)).next().map(str::to_owned);
                text.split("::").filter_map(before).chain([path]).collect()
            }
        }
    }

    /// What is run, for people.
    pub(super) fn words(&self) -> String {
        match self {
            Run::Tests {
                crate_name,
                filter,
                cases,
                as_root,
            } => {
                let root = if *as_root { ", as root" } else { "" };
                format!("{filter} of {crate_name}, {} cases{root}", grouped(*cases))
            }
            Run::Other { words, .. } => (*words).to_owned(),
            Run::Fuzz { target, minutes } => format!("fuzz target {target}, {minutes} minutes"),
            Run::Miri {
                crate_name,
                filters,
            } => {
                format!("{} of {crate_name}, under Miri", filters.join(", "))
            }
            Run::Harness {
                source, minutes, ..
            } => format!("{source} in C, {minutes} minutes"),
            Run::Mutants { crate_name, .. } => {
                format!("mutants of {crate_name}, all of its tests each")
            }
        }
    }
}

/// A number with a comma before each three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 999, 1000, 1_050_000].map(grouped),
            ["0", "999", "1,000", "1,050,000"]
        );
    }

    fn files_in(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// A campaign that no longer finds its tests would be missed only when somebody runs it.
    #[test]
    fn campaigns_name_what_is_there() {
        for campaign in CAMPAIGNS {
            match campaign.run {
                Run::Tests {
                    crate_name, filter, ..
                } => {
                    let (modules, function) = filter.rsplit_once("::").unwrap_or(("", filter));
                    let folder = root().join("crates").join(crate_name).join("tests/it");
                    let file = folder.join(modules.replace("::", "/"));
                    let files = match modules {
                        "" => files_in(&folder),
                        _ => vec![file.with_extension("rs"), file.join("mod.rs")],
                    };
                    let is_there = files.iter().any(|path| {
                        let text = fs::read_to_string(path).unwrap_or_default();
                        text.contains(&format!("fn {function}"))
                    });
                    assert!(is_there, "{}", campaign.name);
                }
                Run::Other { .. } => {}
                Run::Miri {
                    crate_name,
                    filters,
                } => {
                    for filter in filters {
                        let module = filter.trim_end_matches("::").replace("::", "/");
                        let path = root()
                            .join("crates")
                            .join(crate_name)
                            .join("src")
                            .join(module);
                        let is_there = path.is_dir() || path.with_extension("rs").is_file();
                        assert!(is_there, "{}", campaign.name);
                    }
                }
                Run::Fuzz { target, .. } => {
                    let path = root().join(format!("fuzz/targets/{target}.rs"));
                    assert!(path.is_file(), "{}", campaign.name);
                }
                Run::Harness { source, .. } => {
                    let path = root().join(format!("crates/ffi/tests/c/{source}.c"));
                    assert!(path.is_file(), "{}", campaign.name);
                }
                Run::Mutants { files, .. } => {
                    let is_there = |file: &&str| {
                        let file = file.trim_end_matches("/**");
                        root().join(file).exists()
                    };
                    assert!(files.iter().all(is_there), "{}", campaign.name);
                }
            }
        }
    }
}
