//! File systems in unusual states, sound and damaged: our verdict is that of `btrfs check
//! --check-data-csum`.
//!
//! The kernel or mkfs.btrfs makes an image in each state; then one thing at a time is changed, with
//! checksums recomputed. Where the verdicts may differ, the reason is a row of
//! docs/decisions/btrfs-check.md.

mod cases;
mod images;

use std::fs::File;
use std::path::Path;

use testkit::{BtrfsImage, TempDir, Tool, tool};

use crate::damage::{is_clean_to_btrfs, verdict};

use self::images::{
    balance, deleted_subvolume, fresh, log, metadata_dump, mirror, moved, nearly_a_mirror,
    no_holes, plain, quotas, space_cache, spanning,
};

/// A change of an image, and what our check says of the result.
pub(crate) struct Case {
    name: &'static str,
    edit: fn(&mut BtrfsImage),
    /// Part of a finding; empty if the image is sound.
    says: &'static str,
    /// Why `btrfs check`, or some version of it, may say something else: words of the decision
    /// page.
    differs: &'static str,
}

const fn case(name: &'static str, edit: fn(&mut BtrfsImage), says: &'static str) -> Case {
    Case {
        name,
        edit,
        says,
        differs: "",
    }
}

impl Case {
    const fn but(mut self, differs: &'static str) -> Case {
        self.differs = differs;
        self
    }
}

/// Compares the verdicts on an image with each change.
fn agree(btrfs: &Tool, image: &Path, cases: &[Case]) {
    let version = btrfs.run(["--version"]).stdout;
    let version = String::from_utf8_lossy(&version);
    let version = version.lines().next().unwrap_or_default();
    let good = BtrfsImage::read_file(image);
    let dir = TempDir::new();
    let path = dir.join("image");
    good.write_file(&path);
    let file = File::options().write(true).open(&path).unwrap();
    let mut wrong = Vec::new();
    for case in cases {
        let mut image = good.clone();
        (case.edit)(&mut image);
        let lines = verdict(&image);
        let is_so = match case.says {
            "" => lines.is_empty(),
            words => lines.iter().any(|line| line.contains(words)),
        };
        image.write_changes(&file, false);
        let is_clean = is_clean_to_btrfs(btrfs, &path);
        image.write_changes(&file, true);
        let is_documented = !case.differs.is_empty();
        if !is_so || is_clean != lines.is_empty() && !is_documented {
            let few = &lines[..lines.len().min(3)];
            wrong.push(format!(
                "{}: clean to {version}: {is_clean}; we say {few:#?}",
                case.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident: $make:ident, $cases:ident;)*) => {
        /// All changes of all images.
        const ALL: &[&[Case]] = &[$(cases::$cases),*];

        $(
            $(#[$doc])*
            #[test]
            #[ignore = "needs root"]
            fn $name() {
                let Some(btrfs) = tool("btrfs") else { return };
                let dir = TempDir::new();
                let Some(images) = $make(dir.path()) else { return };
                assert!(!images.is_empty());
                for image in images {
                    agree(&btrfs, &image, cases::$cases);
                }
            }
        )*
    };
}

states! {
    /// Data of the second chunk is verified, too.
    checksums_that_run_over_adjoining_chunks: spanning, LARGE;
    /// Trees are being relocated: their roots refer to themselves.
    images_taken_during_a_balance: balance, BALANCE;
    preallocated_bytes_that_a_balance_moves: moved, MOVED;
    /// Gaps in preallocation behind the end of a file are no damage; what is left of a file that is
    /// being deleted is none.
    files_with_items_for_holes: no_holes, HOLES;
    a_deleted_subvolume_is_an_orphan: deleted_subvolume, DELETED;
    /// What was synced since the last commit has its checksums in the log.
    checksums_of_a_log: log, LOG;
    /// Its second superblock was never written, and the content of its files is not there.
    a_restored_metadata_dump: metadata_dump, DUMP;
    /// The first of two devices, alone.
    a_mirror_without_its_second_device: mirror, MIRROR;
    /// Metadata is mirrored, but data is not.
    data_on_a_missing_device: nearly_a_mirror, NO_MIRROR;
    sizes_times_flags_names_and_types: plain, PLAIN;
    counts_of_quota_groups: quotas, QUOTAS;
    free_space_cache: space_cache, SPACE_CACHE;
    /// As mkfs.btrfs makes it.
    free_space_of_a_fresh_file_system: fresh, FRESH;
}

#[test]
fn there_are_enough_states() {
    let count: usize = ALL.iter().map(|cases| cases.len()).sum();
    assert!(count >= 70, "{count}");
}

#[test]
fn each_reason_for_another_verdict_is_documented() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/decisions/btrfs-check.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    for case in ALL.iter().copied().flatten() {
        assert!(
            page.contains(case.differs),
            "{}: {}",
            case.name,
            case.differs
        );
    }
}

/// Without root: mkfs.btrfs makes chunks of 8 MiB, one behind the other, and one checksum item for
/// what it copies.
#[test]
fn checksums_of_a_file_that_mkfs_copied_run_over_chunks() {
    let (Some(mkfs), Some(btrfs)) = (tool("mkfs.btrfs"), tool("btrfs")) else {
        return;
    };
    let dir = TempDir::new();
    let (source, image) = (dir.join("source"), dir.join("image"));
    std::fs::create_dir(&source).unwrap();
    let content = testkit::Rng::new(7).bytes(30 << 20);
    std::fs::write(source.join("large"), content).unwrap();
    File::create_new(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let mut command = mkfs.command();
    command.args(["--quiet", "--rootdir"]).arg(&source);
    testkit::run(command.arg(&image));
    agree(&btrfs, &image, cases::SPANNING);
}
