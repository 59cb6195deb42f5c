//! Changed images: what our check finds nothing wrong with, Linux mounts and shows as we do.
//!
//! The parts of an image are changed field by field before they are stored, so that what changes is
//! what the field says and not what the codec makes of it. A kernel can be brought down by a
//! hostile image, and some of the changed ones are: only those are mounted that the check passes,
//! each in a process of its own with a time limit.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Output};

use squashfs::Squashfs;
use testkit::{
    FsType, KernelLog, Mount, Part, RawKind, RawNode, RawSquashfs, Rng, TempDir, cases, sample_tree,
};
use tree::{
    Aspects, CheckOptions, FileKind, FileSystem, HostDir, Inventory, Limits, NoProgress, Parallel,
    manifest,
};

use crate::fields::structure;
use crate::vectors::{CODECS, encoder};

/// The environment variable that gives the process that mounts the image's path.
const IMAGE: &str = "RESTOW_MUTANT";

/// A number in a part of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// The part, in the order in which the image is laid out.
    part: usize,
    at: usize,
    len: usize,
    structure: &'static str,
    name: &'static str,
}

impl Field {
    pub(crate) fn name(&self) -> String {
        format!("{}: {}", self.structure, self.name)
    }
}

/// Fields of a kind have values that make sense in each other.
fn kind(name: &str) -> &str {
    name.split(" (").next().unwrap_or(name)
}

/// A tree, and the fields of its image.
pub(crate) struct Subject<'a> {
    tree: RawSquashfs<'a>,
    /// By group: what is equally likely to be changed.
    groups: Vec<Vec<Field>>,
    /// The values in the unchanged image, by the field's kind.
    values: BTreeMap<&'static str, Vec<u64>>,
}

/// Places and lengths of the fields of a record, one after another.
fn record(at: &mut usize, fields: &[(usize, &'static str)]) -> Vec<(usize, usize, &'static str)> {
    let mut found = Vec::new();
    for &(len, name) in fields {
        found.push((*at, len, name));
        *at += len;
    }
    found
}

/// In parentheses: which of several fields with values that make sense in each other.
const SUPERBLOCK: &[(usize, &str)] = &[
    (4, "magic"),
    (4, "inode count"),
    (4, "time"),
    (4, "block size"),
    (4, "fragment"),
    (2, "codec"),
    (2, "block log"),
    (2, "flags"),
    (2, "id"),
    (2, "version (major)"),
    (2, "version (minor)"),
    (8, "inode reference"),
    (8, "position (end)"),
    (8, "position (ids)"),
    (8, "position (xattrs)"),
    (8, "position (inodes)"),
    (8, "position (directories)"),
    (8, "position (fragments)"),
    (8, "position (exports)"),
];
const INODE: &[(usize, &str)] = &[
    (2, "inode type"),
    (2, "mode"),
    (2, "id (owner)"),
    (2, "id (group)"),
    (4, "time"),
    (4, "number"),
];
/// By inode type: the fields behind those that all have.
const BODIES: [&[(usize, &str)]; 14] = [
    &[
        (4, "listing block"),
        (4, "nlink"),
        (2, "listing size"),
        (2, "offset"),
        (4, "number (parent)"),
    ],
    &[
        (4, "data start"),
        (4, "fragment"),
        (4, "tail offset"),
        (4, "file size"),
    ],
    &[(4, "nlink"), (4, "target size")],
    &[(4, "nlink"), (4, "device")],
    &[(4, "nlink"), (4, "device")],
    &[(4, "nlink")],
    &[(4, "nlink")],
    &[
        (4, "nlink"),
        (4, "listing size"),
        (4, "listing block"),
        (4, "number (parent)"),
        (2, "index count"),
        (2, "offset"),
        (4, "xattr"),
    ],
    &[
        (8, "data start"),
        (8, "file size"),
        (8, "sparse"),
        (4, "nlink"),
        (4, "fragment"),
        (4, "tail offset"),
        (4, "xattr"),
    ],
    &[(4, "nlink"), (4, "target size")],
    &[(4, "nlink"), (4, "device"), (4, "xattr")],
    &[(4, "nlink"), (4, "device"), (4, "xattr")],
    &[(4, "nlink"), (4, "xattr")],
    &[(4, "nlink"), (4, "xattr")],
];

pub(crate) fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut value = [0; 8];
    value[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(value)
}

/// The fields of a part: place, length, name.
pub(crate) fn fields_of(part: Part<'_>, bytes: &[u8]) -> Vec<(usize, usize, &'static str)> {
    let mut at = 0;
    let mut found = Vec::new();
    let rest = |at: &mut usize, fields: &[(usize, &'static str)]| {
        let len: usize = fields.iter().map(|(len, _)| len).sum();
        let mut found = Vec::new();
        while *at + len <= bytes.len() {
            found.extend(record(at, fields));
        }
        found
    };
    match part {
        Part::Superblock => found.extend(record(&mut at, SUPERBLOCK)),
        Part::Options => found.extend(rest(&mut at, &[(2, "header"), (4, "option")])),
        Part::Inode(_) => {
            found.extend(record(&mut at, INODE));
            let inode_type = usize::from(bytes[0]);
            found.extend(record(&mut at, BODIES[inode_type - 1]));
            match inode_type {
                2 | 9 => found.extend(rest(&mut at, &[(4, "size word")])),
                3 | 10 => {
                    while at + 4 < bytes.len() {
                        found.extend(record(&mut at, &[(1, "byte")]));
                    }
                    if inode_type == 10 {
                        found.push((bytes.len() - 4, 4, "xattr"));
                    }
                }
                8 => {
                    while at + 12 <= bytes.len() {
                        let name = number(bytes, at + 8, 4) as usize + 1;
                        let fields = [
                            (4, "listing offset"),
                            (4, "listing block"),
                            (4, "name size"),
                        ];
                        found.extend(record(&mut at, &fields));
                        found.extend([(at, 1, "byte"), (at + name - 1, 1, "byte")]);
                        at += name;
                    }
                }
                _ => {}
            }
        }
        Part::Listing(_) => {
            while at < bytes.len() {
                let count = number(bytes, at, 4) + 1;
                let fields = [(4, "run count"), (4, "inode block"), (4, "number")];
                found.extend(record(&mut at, &fields));
                for _ in 0..count {
                    let name = number(bytes, at + 6, 2) as usize + 1;
                    let fields = [
                        (2, "inode offset"),
                        (2, "number delta"),
                        (2, "inode type"),
                        (2, "name size"),
                    ];
                    found.extend(record(&mut at, &fields));
                    found.extend([(at, 1, "byte"), (at + name - 1, 1, "byte")]);
                    at += name;
                }
            }
        }
        Part::Table("fragments") => {
            let fields = [(8, "data start"), (4, "size word"), (4, "unused")];
            found.extend(rest(&mut at, &fields));
        }
        Part::Table("exports") => found.extend(rest(&mut at, &[(8, "inode reference")])),
        Part::Table("ids") => found.extend(rest(&mut at, &[(4, "owner")])),
        Part::Table("xattr ids") => {
            let fields = [
                (8, "xattr reference"),
                (4, "xattr count"),
                (4, "xattr size"),
            ];
            found.extend(rest(&mut at, &fields));
        }
        Part::Table(_) => {
            while at + 4 <= bytes.len() {
                let name = number(bytes, at + 2, 2) as usize;
                found.extend(record(&mut at, &[(2, "namespace"), (2, "name size")]));
                found.extend([(at, 1, "byte"), (at + name - 1, 1, "byte")]);
                at += name;
                let value = number(bytes, at, 4) as usize;
                found.extend(record(&mut at, &[(4, "value size")]));
                if value == 8 {
                    found.push((at, 8, "xattr reference"));
                }
                at += value;
            }
        }
        Part::List("xattr ids") => {
            let fields = [(8, "position (values)"), (4, "xattr"), (4, "unused")];
            found.extend(record(&mut at, &fields));
            found.extend(rest(&mut at, &[(8, "position")]));
        }
        Part::List(_) => found.extend(rest(&mut at, &[(8, "position")])),
        Part::Metadata(..) => {
            found.extend(record(&mut at, &[(2, "header")]));
            found.extend((2..bytes.len()).step_by(97).map(|at| (at, 1, "stored")));
            found.extend((2..bytes.len().min(20)).map(|at| (at, 1, "stored")));
        }
        Part::Block(..) | Part::Fragment(_) => {
            found.extend((0..bytes.len().min(12)).map(|at| (at, 1, "stored")));
            found.extend((0..bytes.len()).step_by(199).map(|at| (at, 1, "stored")));
        }
    }
    found.retain(|&(at, len, _)| at + len <= bytes.len());
    found
}

/// What is equally likely to be changed.
fn group_of(part: &Part<'_>) -> usize {
    match part {
        Part::Superblock => 0,
        Part::Options => 1,
        Part::Inode(path) if path.starts_with("big/") => 2,
        Part::Inode("" | "big") => 3,
        Part::Inode(path) if path.contains("sub") => 4,
        Part::Inode(_) => 5,
        Part::Listing("big") => 6,
        Part::Listing(_) => 7,
        Part::Table("fragments" | "ids") => 8,
        Part::Table("exports") => 9,
        Part::Table(_) => 10,
        Part::List(_) => 11,
        Part::Metadata(..) => 12,
        Part::Block(..) | Part::Fragment(_) => 13,
    }
}
const GROUPS: usize = 14;

/// The sample with fewer files, since each is looked at for every image; the names in `big` are
/// longer instead.
pub(crate) fn fewer(mut tree: RawSquashfs<'_>) -> RawSquashfs<'_> {
    let RawKind::Directory(nodes) = &mut tree.root.kind else {
        panic!("the root is a directory");
    };
    for node in nodes {
        if let ("big", RawKind::Directory(nodes)) = (&*node.name, &mut node.kind) {
            nodes.truncate(50);
            for node in nodes {
                node.name += &"x".repeat(170);
            }
        }
    }
    tree
}

/// Gives some files the extended form, and some of these attributes.
pub(crate) fn extend(node: &mut RawNode, rng: &mut Rng, sets: u32) {
    if rng.chance(3) {
        node.extended = true;
        if rng.chance(2) {
            node.xattrs = Some(rng.below(sets.into()) as u32);
        }
    }
    if let RawKind::Directory(nodes) = &mut node.kind {
        for node in nodes {
            extend(node, rng, sets);
        }
    }
}

impl<'a> Subject<'a> {
    pub(crate) fn new(tree: RawSquashfs<'a>) -> Subject<'a> {
        let mut groups = vec![Vec::new(); GROUPS];
        let mut values: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut parts = 0;
        build(&tree, &mut |part, bytes| {
            let group = group_of(&part);
            let structure = structure(part, bytes).unwrap_or("inode of a small file");
            for (at, len, name) in fields_of(part, bytes) {
                values
                    .entry(kind(name))
                    .or_default()
                    .push(number(bytes, at, len));
                groups[group].push(Field {
                    part: parts,
                    at,
                    len,
                    structure,
                    name,
                });
            }
            parts += 1;
        });
        groups.retain(|fields| !fields.is_empty());
        Subject {
            tree,
            groups,
            values,
        }
    }

    /// Another value for a field.
    fn value(&self, rng: &mut Rng, field: Field, old: u64) -> u64 {
        let edges = [
            0,
            1,
            2,
            3,
            255,
            256,
            4095,
            4096,
            8191,
            8192,
            0x7fff,
            0x8000,
            0xffff,
            0x1_0000,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            1 << 40,
            i64::MAX as u64,
            u64::MAX,
        ];
        let bits = field.len as u64 * 8;
        match rng.below(8) {
            0 => old ^ 1 << rng.below(bits),
            1 => old.wrapping_add(1 + rng.below(3)),
            2 => old.wrapping_sub(1 + rng.below(3)),
            3 => edges[rng.index(edges.len())],
            4 => rng.next_u64() >> rng.below(64),
            5 => old.wrapping_add(1 << rng.below(bits)),
            _ => {
                let values = &self.values[kind(field.name)];
                values[rng.index(values.len())]
            }
        }
    }

    fn field(&self, rng: &mut Rng) -> Field {
        let group = &self.groups[rng.index(self.groups.len())];
        group[rng.index(group.len())]
    }

    /// An image with up to 16 random bytes where a field begins, and that field.
    pub(crate) fn overwritten(&self, rng: &mut Rng) -> (Vec<u8>, Vec<Field>) {
        let field = self.field(rng);
        let mut parts = 0;
        let image = build(&self.tree, &mut |_, bytes| {
            if parts == field.part {
                let len = (1 + rng.index(16)).min(bytes.len() - field.at);
                bytes[field.at..field.at + len].copy_from_slice(&rng.bytes(len));
            }
            parts += 1;
        });
        (image, vec![field])
    }

    /// An image with one to three fields changed, and these.
    pub(crate) fn mutant(&self, rng: &mut Rng) -> (Vec<u8>, Vec<Field>) {
        let count = [1, 1, 1, 1, 1, 2, 2, 3][rng.index(8)];
        let chosen: Vec<Field> = (0..count)
            .map(|_| {
                loop {
                    let field = self.field(rng);
                    // What may have any value shows little.
                    if !["time", "unused", "stored", "owner"].contains(&field.name) || rng.chance(4)
                    {
                        return field;
                    }
                }
            })
            .collect();
        let mut parts = 0;
        let image = build(&self.tree, &mut |_, bytes| {
            for field in chosen.iter().filter(|field| field.part == parts) {
                if field.at + field.len <= bytes.len() {
                    let old = number(bytes, field.at, field.len);
                    let new = self.value(rng, *field, old).to_le_bytes();
                    bytes[field.at..field.at + field.len].copy_from_slice(&new[..field.len]);
                }
            }
            parts += 1;
        });
        (image, chosen)
    }
}

/// Lays out an image with a record of options where Linux wants or knows one.
pub(crate) fn build(
    tree: &RawSquashfs<'_>,
    edit: &mut dyn FnMut(Part<'_>, &mut Vec<u8>),
) -> Vec<u8> {
    let image = tree.build(&mut |part, bytes| {
        if part == Part::Options {
            match tree.codec {
                4 => bytes.extend([8, 0x80, 0, 32, 0, 0, 0, 0, 0, 0]),
                5 => bytes.extend([8, 0x80, 1, 0, 0, 0, 0, 0, 0, 0]),
                _ => {}
            }
        }
        edit(part, bytes);
    });
    image.bytes
}

/// The findings of the check in an image, or the error on opening it.
pub(crate) fn verdict(image: &[u8]) -> Vec<String> {
    let image = match Squashfs::open(image.to_vec()) {
        Ok(image) => image,
        Err(error) => return vec![format!("cannot be opened: {error}")],
    };
    if image.superblock().algorithm == codec::Algorithm::Lzma {
        return vec!["Linux does not know this codec".to_owned()];
    }
    let everything = CheckOptions::EVERYTHING;
    let mut lines = Vec::new();
    let mut report = |finding: tree::Finding| lines.push(finding.to_string());
    let summary = image.check(everything, Parallel::new(1), &NoProgress, &mut report);
    assert_eq!(summary.unwrap().findings > 0, !lines.is_empty());
    lines
}

/// Whether the file system layer of Linux hides attributes of this tree, whatever the format: those
/// in the namespace `user` belong to regular files and directories.
fn has_hidden_xattrs(fs: &dyn FileSystem, inventory: &Inventory) -> bool {
    inventory.files().any(|file| {
        let is_plain = matches!(
            inventory.kind(file),
            FileKind::Regular | FileKind::Directory
        );
        let xattrs = fs.xattrs(inventory.ino(file)).unwrap();
        !is_plain && xattrs.iter().any(|xattr| xattr.name.starts_with(b"user."))
    })
}

/// The lines of a directory's manifest that ours lacks, and ours, unless they are equal.
pub(crate) fn different(aspects: &Aspects, dir: &Path, ours: &Squashfs) -> Option<String> {
    let text = |fs: &dyn FileSystem| {
        let (inventory, mut text) = (Inventory::of(fs, &Limits::default()).unwrap(), Vec::new());
        let one = Parallel::new(1);
        manifest::write(&inventory, aspects, one, &NoProgress, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    let (is, must) = (text(&HostDir::open(dir).unwrap()), text(ours));
    let different = is.lines().filter(|line| !must.contains(line));
    (is != must).then(|| different.collect::<Vec<_>>().join("\n") + "\nwe:\n" + &must)
}

/// Panics if Linux does not mount the image, or shows another tree than we do.
fn assert_linux_agrees(image: &Path) {
    let ours = Squashfs::open(fs::read(image).unwrap()).unwrap();
    let inventory = Inventory::of(&ours, &Limits::default()).unwrap();
    let mount = Mount::read_only(image, FsType::Squashfs);
    let aspects = Aspects {
        xattrs: !has_hidden_xattrs(&ours, &inventory),
        ..Aspects::default()
    };
    if let Some(different) = different(&aspects, mount.path(), &ours) {
        panic!("Linux: {different}");
    }
    for entry in inventory.names() {
        let (file, name) = (inventory.file(entry), inventory.path(entry));
        let path = mount.path().join(std::ffi::OsStr::from_bytes(&name));
        let (is, must) = (path.symlink_metadata().unwrap(), inventory.metadata(file));
        let ino = inventory.ino(file);
        let is = (is.ino(), is.nlink(), is.mode());
        let mode = must.kind.mode_bits() | u32::from(must.permissions);
        let number = ours.number(ino).unwrap();
        let must = (number.into(), must.nlink.into(), mode);
        assert_eq!(is, must, "number, nlink, mode of {}", name.escape_ascii());
        if inventory.kind(file) != FileKind::Directory {
            continue;
        }
        // What a listing says without looking at the inodes.
        let mut listed: Vec<_> = fs::read_dir(&path).unwrap().map(Result::unwrap).collect();
        listed.sort_by_key(fs::DirEntry::file_name);
        for (is, must) in listed.iter().zip(ours.read_dir(ino).unwrap()) {
            let kind = is.metadata().unwrap().file_type();
            assert_eq!(is.ino(), ours.number(must.ino).unwrap().into());
            assert_eq!(is.file_type().unwrap(), kind);
        }
    }
    mount.unmount();
}

/// Compares an image with Linux, in another process.
pub(crate) fn ask_linux(image: &Path) -> Output {
    let mut child = Command::new("timeout");
    child.args(["--kill-after=5", "60"]);
    child.arg(std::env::current_exe().unwrap());
    child.args(["verdicts::linux_shows_what_the_check_passes", "--exact"]);
    child.args(["--include-ignored", "--nocapture"]);
    child.env(IMAGE, image).output().unwrap()
}

/// `RESTOW_CASES` counts images that are mounted.
#[test]
#[ignore = "needs root"]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn linux_shows_what_the_check_passes() {
    if let Some(image) = std::env::var_os(IMAGE) {
        return assert_linux_agrees(Path::new(&image));
    }
    let out = TempDir::new();
    let path = out.join("image");
    let mut log = KernelLog::watch();
    let (mut refused, mut different) = (0, Vec::new());
    let mut mounted = HashSet::new();
    let mut fields: BTreeMap<&str, u32> = BTreeMap::new();
    let count: usize = cases(60);
    // Another number of cases gives other cases.
    let mut rng = Rng::new(count as u64);
    let encoders = CODECS.map(|(codec, settings)| (codec, encoder(settings)));
    // Uncompressed is as likely as all codecs together.
    for round in 0.. {
        let (codec, encode) = &encoders[if round % 2 == 0 { 0 } else { 1 + round / 2 % 5 }];
        let mut tree = fewer(sample_tree(*codec, encode));
        let sets = tree.xattrs.len() as u32;
        extend(&mut tree.root, &mut rng, sets);
        let subject = Subject::new(tree);
        for _ in 0..count.clamp(10, 2000) / 10 * 3 {
            if mounted.len() == count {
                break;
            }
            let (image, changed) = subject.mutant(&mut rng);
            if !verdict(&image).is_empty() {
                refused += 1;
                continue;
            }
            if !mounted.insert(xxhash::xxh64(&image, 0)) {
                continue;
            }
            for field in &changed {
                *fields.entry(field.name).or_default() += 1;
            }
            fs::write(&path, &image).unwrap();
            let output = ask_linux(&path);
            let crashes = log.crashes();
            assert!(crashes.is_empty(), "{changed:?}: Linux: {crashes:?}");
            if !output.status.success() {
                let kept = std::env::temp_dir().join(format!("mutant-{}", different.len()));
                if testkit::updates() {
                    fs::write(&kept, &image).unwrap();
                }
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                different.push(format!(
                    "codec {codec}, {changed:?}, {}: {said}",
                    output.status
                ));
            }
        }
        if mounted.len() == count {
            break;
        }
    }
    println!("campaign: {refused} refused, {count} mounted, by field: {fields:?}");
    assert!(
        different.is_empty(),
        "{} of {count}:\n{}",
        different.len(),
        different.join("\n")
    );
}
