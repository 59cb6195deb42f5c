//! Each field of each structure is changed, or random ones are: the verdict of `restow check` is
//! compared with that of unsquashfs, and what it passes with what Linux or unsquashfs shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use squashfs::Squashfs;
use testkit::{
    KernelLog, Part, RawKind, RawNode, RawSquashfs, Rng, TempDir, Tool, cases, newer_tool,
    sample_tree, tool,
};
use tree::Aspects;

use crate::vectors::{CODECS, encoder};
use crate::verdicts::{
    Field, Subject, ask_linux, build, different, extend, fewer, fields_of, number, verdict,
};

/// The forms of inodes in an image.
#[derive(Clone, Copy)]
enum Forms {
    Basic,
    Mixed,
    Extended,
}

/// The codec, as an index of `CODECS`, and the forms of inodes of each image.
const IMAGES: [(usize, Forms); 3] = [
    (0, Forms::Basic),    // uncompressed
    (3, Forms::Extended), // xz, which has options
    (4, Forms::Mixed),    // LZ4, which must have options
];

/// Gives all inodes a form.
fn convert(node: &mut RawNode, forms: Forms, number: &mut u32) {
    *number += 1;
    match forms {
        Forms::Mixed => return,
        // A file with two names must be extended.
        Forms::Basic => node.extended = node.name == "blocks",
        Forms::Extended => {
            node.extended = true;
            node.xattrs = (!number.is_multiple_of(4)).then_some(*number % 3);
        }
    }
    if !node.extended {
        node.xattrs = None;
    }
    if let RawKind::Directory(nodes) = &mut node.kind {
        for node in nodes {
            convert(node, forms, number);
        }
    }
}

const INODES: [&str; 14] = [
    "directory inode",
    "file inode",
    "symbolic link inode",
    "block device inode",
    "character device inode",
    "fifo inode",
    "socket inode",
    "extended directory inode",
    "extended file inode",
    "extended symbolic link inode",
    "extended block device inode",
    "extended character device inode",
    "extended fifo inode",
    "extended socket inode",
];

/// The name of a part's structure; none for those that are like another.
pub(crate) fn structure(part: Part<'_>, bytes: &[u8]) -> Option<&'static str> {
    Some(match part {
        Part::Superblock => "superblock",
        Part::Options => "compressor options",
        Part::Block(..) => "data block",
        Part::Fragment(_) => "fragment block",
        Part::Inode(path) if path.starts_with("big/") => return None,
        Part::Inode(_) => INODES[usize::from(bytes[0]) - 1],
        Part::Listing(_) => "directory",
        Part::Table("fragments") => "fragment table",
        Part::Table("exports") => "export table",
        Part::Table("ids") => "ID table",
        Part::Table("xattr ids") => "table of attribute sets",
        Part::Table(_) => "attributes",
        Part::List("fragments") => "list of fragment table blocks",
        Part::List("exports") => "list of export table blocks",
        Part::List("ids") => "list of ID table blocks",
        Part::List(_) => "list of attribute set blocks",
        Part::Metadata(..) => "metadata block",
    })
}

/// A field with another value.
struct Change {
    structure: &'static str,
    field: &'static str,
    part: usize,
    at: usize,
    len: usize,
    value: u64,
}

impl Change {
    fn apply(&self, tree: &RawSquashfs<'_>) -> Vec<u8> {
        let mut parts = 0;
        build(tree, &mut |_, bytes| {
            if parts == self.part {
                let value = &self.value.to_le_bytes()[..self.len];
                bytes[self.at..self.at + self.len].copy_from_slice(value);
            }
            parts += 1;
        })
    }

    fn name(&self) -> String {
        format!("{}: {}", self.structure, self.field)
    }
}

/// Other values: 0, 1, one more, all ones, and with another lowest, middle or highest bit.
fn values(old: u64, len: usize) -> BTreeSet<u64> {
    let all = u64::MAX >> (64 - 8 * len);
    let flipped = [0, 4 * len + 1, 8 * len - 1].map(|bit| old ^ 1 << bit);
    let mut values = BTreeSet::from(flipped);
    values.extend([0, 1, old.wrapping_add(1) & all, all]);
    values.remove(&old);
    values
}

/// The changes of an image: of each field of each structure, two at most.
fn changes(tree: &RawSquashfs<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut seen: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut parts = 0;
    build(tree, &mut |part, bytes| {
        if let Some(structure) = structure(part, bytes) {
            for (at, len, field) in fields_of(part, bytes) {
                let count = seen.entry((structure, field)).or_default();
                *count += 1;
                // What is stored has no fields: some of its bytes.
                if *count > if field == "stored" { 12 } else { 2 } {
                    continue;
                }
                let values = values(number(bytes, at, len), len);
                changes.extend(values.into_iter().map(|value| Change {
                    structure,
                    field,
                    part: parts,
                    at,
                    len,
                    value,
                }));
            }
        }
        parts += 1;
    });
    changes
}

/// Runs unsquashfs. Some damage makes it hang, and some take all memory.
fn run_unsquashfs(unsquashfs: &Tool, options: &[&str], out: &Path, image: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["20", "prlimit", "--as=4000000000", "--core=0"]);
    command.arg(unsquashfs.path());
    command.args(["-quiet", "-no-progress", "-strict-errors"]);
    let output = command.args(options).arg(out).arg(image).output();
    output.expect("start unsquashfs")
}

/// Whether unsquashfs reads all of an image.
fn is_clean(unsquashfs: &Tool, image: &Path, out: &Path) -> bool {
    let output = run_unsquashfs(unsquashfs, &["-pf"], out, image);
    let _ = fs::remove_file(out);
    output.status.success()
}

/// What unsquashfs extracts in another way than we read it, or its error. Without attributes, which
/// not every file system can hold.
fn extracted_otherwise(unsquashfs: &Tool, image: &Path, out: &Path) -> Option<String> {
    let ours = Squashfs::open(fs::read(image).unwrap()).unwrap();
    let output = run_unsquashfs(unsquashfs, &["-no-xattrs", "-d"], out, image);
    let aspects = Aspects {
        xattrs: false,
        ..Aspects::default()
    };
    let different = if output.status.success() {
        different(&aspects, out, &ours)
    } else {
        Some(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let _ = fs::remove_dir_all(out);
    different
}

/// Fields whose damage unsquashfs finds and we do not: Linux shows what we read. The reason.
const MISSED: &[(&str, &str)] = &[
    (
        "list of attribute set blocks: position",
        "Linux reads the metadata block that begins there, of which no file has a set",
    ),
    (
        "list of attribute set blocks: xattr",
        "Linux counts sets that no file has",
    ),
    (
        "superblock: flags",
        "Linux does not look at the bits of attributes and options",
    ),
    ("superblock: id", "Linux counts owners that no file has"),
    (
        "table of attribute sets: xattr count",
        "Linux shows a set of no attributes; only the newer version finds it",
    ),
];

/// Findings of `restow check` alone, by the reason for them.
const ALONE: &[(&str, &[&str])] = &[
    (
        "Linux fails to read it: squashfs_xattr_lookup",
        &["index of extended attributes is too large"],
    ),
    (
        "Linux fails to read it: squashfs_frag_lookup",
        &["fragment index is too large"],
    ),
    (
        "Linux fails to read it: squashfs_block_size",
        &["stored block size is impossible"],
    ),
    (
        "Linux fails to read it: squashfs_read_metadata",
        &[
            "reference lies beyond its table",
            "metadata continues after a block that is not full",
            "metadata block does not fit in its table",
        ],
    ),
    (
        "Linux ends or misreads the listing: squashfs_readdir",
        &[
            "directory entry's type is unknown",
            "directory record does not fit in its listing",
        ],
    ),
    (
        "Linux lists another number or type than it shows of the file",
        &[
            "directory entry has the wrong inode number",
            "a file's type differs from its directory entry",
            "directory entry's inode number is impossible",
        ],
    ),
    (
        "Linux shows it, and programs that trust it err: link counts, numbers, `..`",
        &[
            "file's inode has the wrong number of names",
            "inode has a link count of 0",
            "two inodes have the same number",
            "directory's inode names the wrong parent",
            "image has the wrong number of inodes",
        ],
    ),
    (
        "Linux mixes the bits with the type of the inode",
        &["inode's mode has bits of a file type"],
    ),
    (
        "Linux exports another file over NFS: squashfs_export_iget",
        &["export table has the inode elsewhere"],
    ),
    (
        "format: the parts of a file fit its size, and lie among data",
        &[
            "data block's content is not as long as the file says",
            "file without a tail has a fragment",
            "file has more blocks than the inode table can hold",
            "file's block lies where no data can be",
            "fragment lies where no data can be",
            "block begins within another one",
            "tail does not fit in a fragment",
            "fragment block is shorter than its tails",
        ],
    ),
    (
        "format: namespaces and names of attributes",
        &[
            "extended attribute's namespace is unknown",
            "extended attribute's name is not valid",
        ],
    ),
    (
        "a limit (docs/limits.md)",
        &[
            "an extended attribute's value is too long",
            "a directory listing of more than 256 MiB",
        ],
    ),
    (
        "format: the entries of a directory's index lie in its listing",
        &["directory index is impossible"],
    ),
    (
        "Linux ends the target there",
        &["symbolic link's target contains a NUL"],
    ),
    (
        "Linux refuses to mount it: its options, tables or root",
        &[
            "xz options are out of range",
            "compressor's options are not stored as they must be",
            "table's list does not end where the next begins",
            "squashfs root's inode lies outside the inode table",
            "not a directory",
        ],
    ),
    (
        "Linux fails to read it: the data does not decode to its size",
        &[
            "lz4 block is corrupt or too long",
            "not a zstd frame",
            "xz stream is corrupt",
            "zlib stream is corrupt",
            "compressed block holds more than it may",
        ],
    ),
    (
        "Linux: an owner that is none (INVALID_UID)",
        &["file's owner is the reserved number 2^32 - 1"],
    ),
    (
        "Linux has no decompressor for LZMA",
        &["Linux does not know this codec"],
    ),
];

/// How often a field was changed, each version of unsquashfs found it, Linux refused it or showed
/// something else, and we found it.
#[derive(Clone, Default)]
struct Counts {
    changes: u32,
    theirs: Vec<u32>,
    linux: u32,
    ours: u32,
}

/// The beginning of the page.
const HEAD: &str = "\
# Fields of SquashFS, and the checks that look at them

Generated by `RESTOW_UPDATE=1 cargo xtask campaign squashfs-fields`, which changes each field of three images (0, 1, one more, all ones, three bits
flipped) before it is compressed. The columns count the changes, those that unsquashfs of two versions reports, those with `restow check` clean that Linux
refuses or shows in another way, and those that `restow check` reports. Linux mounts nothing that `restow check` refuses. Many values are sound, such as
another owner or time.
";

/// The page docs/formats/squashfs-fields.md.
fn page(counts: &BTreeMap<String, Counts>, alone: &BTreeMap<(String, String), u32>) -> String {
    let mut page = HEAD.to_owned();
    page += "\n| field | changes | unsquashfs 4.5.1 | newer | Linux | `restow check` |\n";
    page += "|---|---|---|---|---|---|\n";
    for (name, count) in counts {
        let of = |found: &u32| match *found {
            0 => " - |".to_owned(),
            all if all == count.changes => " all |".to_owned(),
            some => format!(" {some} |"),
        };
        let found = count.theirs.iter().chain([&count.linux, &count.ours]);
        let cells: String = found.map(of).collect();
        let _ = writeln!(page, "| {name} | {} |{cells}", count.changes);
    }
    page +=
        "\n## Findings of unsquashfs alone\n\nLinux shows these images as restow reads them.\n\n";
    page += "| field | reason |\n|---|---|\n";
    for (name, reason) in MISSED {
        let _ = writeln!(page, "| {name} | {reason} |");
    }
    page += "\n## Findings of `restow check` alone\n\n";
    page += "The first finding of each change that neither version of unsquashfs reports.\n\n";
    page += "| field | changes | finding | reason |\n|---|---|---|---|\n";
    for ((name, words), count) in alone {
        let reason = reason(words).unwrap_or("?");
        let _ = writeln!(page, "| {name} | {count} | {words} | {reason} |");
    }
    page
}

/// Why only we report this.
fn reason(words: &str) -> Option<&'static str> {
    let mut reasons = ALONE.iter().filter(|(_, all)| all.contains(&words));
    reasons.next().map(|(reason, _)| *reason)
}

/// The broken rule, without the value, the place and the path.
fn words(finding: &str) -> String {
    let words = finding.trim_start_matches("cannot be opened: ");
    let words = words.trim_start_matches("limit reached: ");
    let words = words.split(" (found ").next().unwrap_or(words);
    words.split(", in ").next().unwrap_or(words).to_owned()
}

#[test]
#[ignore = "needs root"]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn the_verdict_on_each_changed_field_is_that_of_unsquashfs_and_linux() {
    let Some(unsquashfs) = tool("unsquashfs") else {
        return;
    };
    let encoders = CODECS.map(|(codec, settings)| (codec, encoder(settings)));
    let trees = IMAGES.map(|(index, forms)| {
        let (codec, encode) = &encoders[index];
        let mut tree = fewer(sample_tree(*codec, encode));
        convert(&mut tree.root, forms, &mut 0);
        tree
    });
    let lists = trees.each_ref().map(changes);
    let total: usize = lists.iter().map(Vec::len).sum();
    let step = total.div_ceil(cases(24) as usize).max(1);
    let mut judges = vec![unsquashfs];
    if step == 1 {
        judges.extend(newer_tool("unsquashfs"));
    }
    let dir = TempDir::new();
    let (path, out) = (dir.join("image"), dir.join("out"));
    let mut log = KernelLog::watch();
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    let mut alone: BTreeMap<(String, String), u32> = BTreeMap::new();
    let (mut missed, mut unexplained) = (Vec::new(), Vec::new());
    let (mut mounted, mut number) = (0, 0);
    for (tree, changes) in trees.iter().zip(&lists) {
        let good = build(tree, &mut |_, _| {});
        fs::write(&path, &good).unwrap();
        assert_eq!(verdict(&good), [""; 0]);
        assert!(judges.iter().all(|judge| is_clean(judge, &path, &out)));
        for change in changes {
            number += 1;
            if number % step != 0 {
                continue;
            }
            let image = change.apply(tree);
            fs::write(&path, &image).unwrap();
            let lines = verdict(&image);
            let judges = judges.iter();
            let found: Vec<bool> = judges.map(|judge| !is_clean(judge, &path, &out)).collect();
            let any = found.contains(&true);
            let name = change.name();
            let place = format!("{name} of part {}, {:#x}", change.part, change.value);
            let mut refusal = None;
            if lines.is_empty() {
                mounted += 1;
                let output = ask_linux(&path);
                let mut crashes = log.crashes();
                // Of unsquashfs.
                crashes.retain(|line| !line.contains(";traps: "));
                assert!(crashes.is_empty(), "{place}: Linux: {crashes:?}");
                if !output.status.success() {
                    refusal = Some(String::from_utf8_lossy(&output.stderr).into_owned());
                }
            }
            let count = counts.entry(name.clone()).or_default();
            count.changes += 1;
            count.theirs.resize(found.len(), 0);
            (count.theirs.iter_mut().zip(&found)).for_each(|(sum, is)| *sum += u32::from(*is));
            count.linux += u32::from(refusal.is_some());
            count.ours += u32::from(!lines.is_empty());
            if let Some(words) = refusal {
                missed.push(format!("{place}: Linux: {words}"));
            }
            match lines.first() {
                None if any && MISSED.iter().all(|(known, _)| *known != name) => {
                    missed.push(format!("{place}: unsquashfs: {found:?}"));
                }
                Some(line) if !any => {
                    let words = words(line);
                    if reason(&words).is_none() {
                        unexplained.push(format!("{place}: {line}"));
                    }
                    *alone.entry((name, words)).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    let tried: u32 = counts.values().map(|count| count.changes).sum();
    println!(
        "campaign: {tried} changes of {} fields, {mounted} mounted: {} missed, {} found only by us ({} kinds)",
        counts.len(),
        missed.len(),
        alone.values().sum::<u32>(),
        alone.len(),
    );
    // Without the newer version a column is missing.
    if step == 1 && judges.len() > 1 {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/squashfs-fields.md");
        testkit::golden(&path, page(&counts, &alone).as_bytes());
    }
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
    let is_explained = unexplained.is_empty() || step > 1;
    assert!(is_explained, "no reason for {unexplained:#?}");
}

#[test]
#[ignore = "needs root"]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn random_changes_that_unsquashfs_finds_are_found() {
    let Some(unsquashfs) = tool("unsquashfs") else {
        return;
    };
    let count = cases(20_u64);
    let mut judges = vec![unsquashfs];
    if count > 20 {
        judges.extend(newer_tool("unsquashfs"));
    }
    let encoders = CODECS.map(|(codec, settings)| (codec, encoder(settings)));
    let dir = TempDir::new();
    let (path, out) = (dir.join("image"), dir.join("out"));
    let mut counts: BTreeMap<(Vec<bool>, bool), u32> = BTreeMap::new();
    let mut alone: BTreeMap<String, u32> = BTreeMap::new();
    let (mut missed, mut unexplained) = (Vec::new(), Vec::new());
    for case in 0..count {
        let mut rng = Rng::new(13_000 + case);
        let (codec, encode) = &encoders[rng.index(encoders.len())];
        let mut tree = fewer(sample_tree(*codec, encode));
        let sets = tree.xattrs.len() as u32;
        extend(&mut tree.root, &mut rng, sets);
        let subject = Subject::new(tree);
        let (image, changed) = if rng.chance(2) {
            subject.mutant(&mut rng)
        } else {
            subject.overwritten(&mut rng)
        };
        fs::write(&path, &image).unwrap();
        let lines = verdict(&image);
        let mut faults = Vec::new();
        let judged = judges.iter().map(|judge| {
            let is_found = !is_clean(judge, &path, &out);
            let fault = (lines.is_empty() && !is_found)
                .then(|| extracted_otherwise(judge, &path, &out))
                .flatten();
            let is_fault = is_found || fault.is_some();
            faults.extend(fault);
            is_fault
        });
        let found: Vec<bool> = judged.collect();
        let names: Vec<String> = changed.iter().map(Field::name).collect();
        let is_known = |name: &String| MISSED.iter().any(|(known, _)| *known == name);
        match lines.first() {
            None if found.contains(&true) && !names.iter().all(is_known) => {
                missed.push(format!("{case}: {changed:?}: {found:?} {faults:?}"));
            }
            Some(line) if !found.contains(&true) => {
                let words = words(line);
                if reason(&words).is_none() {
                    unexplained.push(format!("{case}: {changed:?}: {line}"));
                }
                *alone.entry(words).or_default() += 1;
            }
            _ => {}
        }
        *counts.entry((found, !lines.is_empty())).or_default() += 1;
    }
    println!("campaign: unsquashfs and restow find something: {counts:?}; only restow: {alone:?}");
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
    assert!(unexplained.is_empty(), "no reason for {unexplained:#?}");
}
