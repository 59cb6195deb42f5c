//! Appending to SquashFS images, compared with mksquashfs.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use restow::{CopyOptions, CopySummary, NoProgress, SourceTree};
use testkit::{Rng, TempDir, Tool};
use tree::Aspects;
use tree::edit::{Edited, Edits};
use tree::manifest::Manifest;

/// Appends a directory to an image, with the options of the image.
fn append(dir: &Path, image: &Path, root_becomes: Option<&[u8]>) -> CopySummary {
    let old = restow::open(image).unwrap();
    let options = CopyOptions::default().like(old.squashfs().unwrap());
    let options = options.unwrap();
    let added = restow::open(dir).unwrap();
    let added = Edited::new(Arc::clone(added.tree()), Edits::default()).unwrap();
    let (source, _) = old.append(added, root_becomes).unwrap();
    restow::copy(source, image, &options, &NoProgress).unwrap()
}

fn same_trees(ours: &Path, theirs: &Path, what: &str) {
    let of = |image| {
        let source: SourceTree = restow::open(image).unwrap();
        Manifest::of(&**source.tree(), &Aspects::default()).unwrap()
    };
    let (ours, theirs) = (of(ours), of(theirs));
    assert!(ours == theirs, "{what}:\n{}", ours.difference(&theirs));
}

fn mksquashfs(tool: &Tool, dir: &Path, image: &Path, options: &str) {
    let quiet = "-quiet -no-progress -no-recovery";
    let options = quiet.split(' ').chain(options.split_whitespace());
    let paths = [dir, image].map(Path::as_os_str);
    tool.run(paths.into_iter().chain(options.map(AsRef::as_ref)));
}

/// The stored blocks of an image's data, before its tables.
fn stored_blocks(image: &Path) -> HashSet<Vec<u8>> {
    let source = restow::open(image).unwrap();
    let inventory = tree::Inventory::of(&**source.tree(), &tree::Limits::default()).unwrap();
    let mut blocks = HashSet::new();
    for file in inventory.files() {
        let ino = inventory.ino(file);
        if inventory.kind(file) != tree::FileKind::Regular {
            continue;
        }
        for extent in source.tree().extents(ino, 0).unwrap() {
            if let tree::ExtentKind::Encoded(encoding) = extent.kind {
                let mut stored = vec![0; encoding.stored_len as usize];
                source
                    .tree()
                    .read_encoded(ino, &extent, &mut stored)
                    .unwrap();
                blocks.insert(stored);
            }
        }
    }
    blocks
}

#[test]
fn twenty_appends_give_the_tree_of_mksquashfs_and_keep_all_blocks() {
    let Some(tool) = testkit::tool("mksquashfs") else {
        return;
    };
    let out = TempDir::new();
    let (dir, ours, theirs) = (out.join("dir"), out.join("ours"), out.join("theirs"));
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(dir.join("linked"), "two names").unwrap();
    fs::hard_link(dir.join("linked"), dir.join("other name")).unwrap();
    let mut rng = Rng::new(33);
    let mut content = |len: usize| -> Vec<u8> {
        let words = (0..len / 8).flat_map(|_| (rng.below(300) * 7919).to_le_bytes());
        words.collect()
    };
    fs::write(dir.join("large"), content(40_000)).unwrap();
    mksquashfs(
        &tool,
        &dir,
        &ours,
        "-b 16K -comp zstd -Xcompression-level 3",
    );
    fs::copy(&ours, &theirs).unwrap();
    for round in 0..20 {
        fs::write(dir.join("changed"), content(500 + round * 3000)).unwrap();
        fs::write(dir.join(format!("new {round}")), content(600)).unwrap();
        fs::write(dir.join("sub/below"), round.to_string()).unwrap();
        if round == 10 {
            fs::remove_file(dir.join("new 9")).unwrap();
        }
        let before = stored_blocks(&ours);
        let summary = append(&dir, &ours, None);
        let after = stored_blocks(&ours);
        assert!(before.is_subset(&after), "round {round}");
        assert!(
            summary.kept.count >= before.len() as u64,
            "round {round}: {} of {} kept",
            summary.kept.count,
            before.len()
        );
        mksquashfs(&tool, &dir, &theirs, "");
    }
    same_trees(&ours, &theirs, "twenty times");
    let [ours_bytes, theirs_bytes] = [&ours, &theirs].map(|it| fs::metadata(it).unwrap().len());
    assert!(ours_bytes <= theirs_bytes + theirs_bytes / 16);

    append(&dir, &ours, Some(b"large"));
    mksquashfs(&tool, &dir, &theirs, "-root-becomes large");
    same_trees(&ours, &theirs, "the old root is a directory");
}

#[test]
fn an_image_stays_as_it_is_made() {
    let Some(tool) = testkit::tool("mksquashfs") else {
        return;
    };
    let out = TempDir::new();
    let (dir, image) = (out.join("dir"), out.join("image"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "content ".repeat(9000)).unwrap();
    for options in [
        "-b 4K -comp gzip -Xcompression-level 3 -noI -noX",
        "-comp xz -Xbcj x86 -Xdict-size 50% -no-fragments",
        "-comp lz4 -Xhc -always-use-fragments -no-duplicates",
        "-comp lzo -Xalgorithm lzo1x_1 -no-exports -noF",
        "-comp lzo -Xcompression-level 5 -noD",
        "-comp zstd",
    ] {
        mksquashfs(&tool, &dir, &image, &format!("{options} -noappend"));
        let made = |image: &Path| {
            let source = restow::open(image).unwrap();
            let image = source.squashfs().unwrap();
            let superblock = image.superblock();
            let without = !squashfs::flags::NO_XATTRS;
            let words = (superblock.block_bytes, superblock.flags & without);
            (image.compressor(), words)
        };
        let before = made(&image);
        append(&dir, &image, None);
        assert_eq!(made(&image), before, "{options}");
    }
}
