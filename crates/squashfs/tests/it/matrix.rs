//! The matrix: every codec, several levels, block sizes and everything that changes the layout. Our
//! images are read by Linux, unsquashfs and rdsquashfs; we read images of mksquashfs and
//! gensquashfs as Linux does.
//!
//! The normal run tries a sample that covers every codec, level, block size and layout; the
//! campaigns `squashfs-matrix-…` try everything. docs/log/squashfs.md has the results.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use codec::{Filters, Settings};
use squashfs::{Fragments, Options, Squashfs};
use testkit::{FsType, Mount, TempDir, Tool};
use tree::manifest::Manifest;
use tree::{Aspects, CheckOptions, FileSystem, HostDir, Limits, NoProgress, Parallel};

use crate::create::image_of;
use crate::sources::nasty_with;

const BLOCK_SIZES: [usize; 4] = [4 << 10, 128 << 10, 256 << 10, 1 << 20];

/// Offsets of images that do not start at the first byte.
const OFFSET: u64 = 12_345;

/// `count` of the numbers below `end`, evenly spread.
fn spread(end: usize, count: usize) -> Vec<usize> {
    let is_coprime = |step: &usize| {
        let (mut a, mut b) = (*step, end);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    // Steps of the golden ratio soon reach every part of the range.
    let step = (end * 618 / 1000..=end).find(is_coprime).unwrap_or(1);
    let numbers = (0..end).map(|number| number * step % end);
    numbers.take(count).collect()
}

/// The cells to try, as coordinates in a matrix with axes of these lengths. However few they are,
/// they cover all parts of the matrix.
fn cells<const N: usize>(axes: [usize; N], usually: usize) -> Vec<[usize; N]> {
    let all = axes.iter().product();
    let coordinates = |mut number: usize| {
        // The last axis varies fastest.
        let mut cell = [0; N];
        for (at, values) in cell.iter_mut().zip(axes).rev() {
            *at = number % values;
            number /= values;
        }
        cell
    };
    let numbers = spread(all, testkit::cases(usually as u64) as usize);
    numbers.into_iter().map(coordinates).collect()
}

#[expect(
    clippy::print_stdout,
    reason = "shown if the cell fails, whatever fails"
)]
fn tell(number: usize, count: usize, what: &str) {
    println!("{number} of {count}: {what}");
}

/// The source trees, by block size.
#[derive(Default)]
struct Sources {
    made: HashMap<usize, Source>,
}

struct Source {
    dir: TempDir,
    manifest: Manifest,
}

impl Sources {
    /// A tree for blocks of this size: difficult cases for writers, and machine code.
    fn of(&mut self, block: usize) -> &Source {
        self.made.entry(block).or_insert_with(|| {
            // Enough names for a directory of several metadata blocks.
            let dir = nasty_with(block, 500).expect("setfattr and touch are there");
            let program = File::open(std::env::current_exe().unwrap()).unwrap();
            let mut code = vec![0; 3 * block + 100];
            program.read_exact_at(&mut code[..64], 0).unwrap();
            let middle = program.metadata().unwrap().len() / 3;
            program.read_exact_at(&mut code[64..], middle).unwrap();
            let file = File::create(dir.join("code")).unwrap();
            file.write_all_at(&code, 0).unwrap();
            for path in [dir.join("code"), dir.path().to_owned()] {
                let second = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
                let times = fs::FileTimes::new().set_modified(second);
                File::open(path).unwrap().set_times(times).unwrap();
            }
            // Before anything else: this reads all links. mksquashfs also compares access times,
            // and would treat the names of a link that it is the first to read as different files.
            let manifest = of_dir(dir.path());
            Source { dir, manifest }
        })
    }
}

fn manifest(fs: &dyn FileSystem) -> Manifest {
    Manifest::of(fs, &Aspects::default()).unwrap()
}

fn of_dir(path: &Path) -> Manifest {
    manifest(&HostDir::open(path).unwrap())
}

/// What Linux finds in the image that starts at byte `offset` of a file.
fn of_linux(image: &Path, offset: u64) -> Manifest {
    let there = File::open(image).unwrap();
    let mut bytes = vec![0; (there.metadata().unwrap().len() - offset) as usize];
    there.read_exact_at(&mut bytes, offset).unwrap();
    // Linux reads devices in units of 4 KiB, hence the padding.
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    let out = TempDir::new();
    fs::write(out.join("image"), bytes).unwrap();
    let mount = Mount::read_only(out.join("image"), FsType::Squashfs);
    let found = of_dir(mount.path());
    mount.unmount();
    found
}

/// Whether Linux can read the result of these arguments. It supports neither lzma nor, any longer,
/// the filter for ia64.
fn is_for_linux(codec: &str) -> bool {
    !codec.contains("lzma") && !codec.contains("ia64")
}

fn of_unsquashfs(unsquashfs: &Tool, image: &Path, offset: u64) -> Manifest {
    let out = TempDir::new();
    let (there, offset) = (out.join("there"), offset.to_string());
    let mut args: Vec<&OsStr> = ["-q", "-n", "-o", &offset, "-d"].map(OsStr::new).to_vec();
    args.extend([there.as_os_str(), image.as_os_str()]);
    unsquashfs.run(args);
    of_dir(&there)
}

/// Removes from lines what rdsquashfs does not restore: the root's own metadata, and which names
/// are hard links.
fn without_root_and_links(fs: &dyn FileSystem) -> Vec<String> {
    let aspects = Aspects {
        hard_links: false,
        ..Aspects::default()
    };
    let manifest = Manifest::of(fs, &aspects).unwrap();
    let lines = manifest.lines().filter(|line| !line.starts_with(". "));
    lines.map(str::to_owned).collect()
}

fn of_rdsquashfs(rdsquashfs: &Tool, image: &Path, offset: u64) -> Vec<String> {
    let out = TempDir::new();
    let (there, cut) = (out.join("there"), out.join("image"));
    let bytes = fs::read(image).unwrap();
    fs::write(&cut, &bytes[offset as usize..]).unwrap();
    let mut args: Vec<&OsStr> = ["-q", "-X", "-T", "-C", "-O", "-u", "/", "-p"]
        .map(OsStr::new)
        .to_vec();
    args.extend([there.as_os_str(), cut.as_os_str()]);
    rdsquashfs.run(args);
    without_root_and_links(&HostDir::open(&there).unwrap())
}

fn open(image: &Path, offset: u64) -> Squashfs {
    Squashfs::open_at(File::open(image).unwrap(), offset, &Limits::default()).unwrap()
}

/// The findings of our check.
fn findings(image: &Squashfs) -> Vec<String> {
    let mut found = Vec::new();
    let options = CheckOptions::EVERYTHING;
    let mut tell = |finding: tree::Finding| found.push(finding.to_string());
    let checked = image.check(options, Parallel::new(2), &NoProgress, &mut tell);
    assert_eq!(checked.unwrap().findings, found.len() as u64);
    found
}

/// A codec with its settings for a block size, and whether filters are chosen by file type.
type Setting = fn(u32) -> (Option<Settings>, bool);

fn zstd<const LEVEL: i32>(_: u32) -> (Option<Settings>, bool) {
    (Some(Settings::Zstd { level: LEVEL }), false)
}

fn gzip<const LEVEL: u8>(_: u32) -> (Option<Settings>, bool) {
    (Some(Settings::Zlib { level: LEVEL }), false)
}

fn lz4_hc<const LEVEL: u8>(_: u32) -> (Option<Settings>, bool) {
    (Some(Settings::Lz4Hc { level: LEVEL }), false)
}

fn xz<const LEVEL: u8, const FILTERS: u32, const CODE: bool>(
    block: u32,
) -> (Option<Settings>, bool) {
    let settings = Settings::Xz {
        level: LEVEL,
        extreme: false,
        dictionary_bytes: block.max(8192),
        filters: Filters(FILTERS),
    };
    (Some(settings), CODE)
}

/// A dictionary of half the size is recorded in the options.
fn xz_small(block: u32) -> (Option<Settings>, bool) {
    let settings = Settings::Xz {
        level: 1,
        extreme: true,
        dictionary_bytes: (block / 4 * 3).max(8192),
        filters: Filters(0),
    };
    (Some(settings), false)
}

const SETTINGS: [(&str, Setting); 20] = [
    ("zstd 1", zstd::<1>),
    ("zstd 3", zstd::<3>),
    ("zstd 5", zstd::<5>),
    ("zstd 10", zstd::<10>),
    ("zstd 15", zstd::<15>),
    ("zstd 19", zstd::<19>),
    ("zstd 22", zstd::<22>),
    ("gzip 1", gzip::<1>),
    ("gzip 6", gzip::<6>),
    ("gzip 9", gzip::<9>),
    ("gzip 12", gzip::<12>),
    ("lzo", |_| (Some(Settings::Lzo), false)),
    ("lz4", |_| (Some(Settings::Lz4), false)),
    ("lz4 hc 3", lz4_hc::<3>),
    ("lz4 hc 12", lz4_hc::<12>),
    ("xz 1", xz::<1, 0, false>),
    ("xz 6, x86", xz::<6, 1, false>),
    ("xz 1, code", xz::<1, 0, true>),
    ("xz 1, three quarters of a dictionary", xz_small),
    ("none", |_| (None, false)),
];

const FRAGMENTS: [Fragments; 3] = [Fragments::None, Fragments::SmallFiles, Fragments::Always];

type Change = fn(&mut Options);

/// Everything else that changes the layout.
const CHANGES: [(&str, Change); 7] = [
    ("usual", |_| {}),
    ("no attributes", |options| options.xattrs = false),
    ("no exports", |options| options.exportable = false),
    ("no padding", |options| options.padding = false),
    ("no duplicates", |options| options.duplicates = false),
    ("offset", |options| options.offset = OFFSET),
    ("sorted", |options| {
        // More than the number of files.
        options.priorities = (0..5000).map(|n| (n * 7919 % 1009) as i16).collect();
    }),
];

#[test]
#[ignore = "needs root"]
fn what_we_write_is_read_alike_by_all() {
    let tools = ["unsquashfs", "rdsquashfs", "setfattr", "touch"].map(testkit::tool);
    let [Some(unsquashfs), Some(rdsquashfs), Some(_), Some(_)] = tools else {
        return;
    };
    let mut sources = Sources::default();
    let out = TempDir::new();
    let image = out.join("image");
    let axes = [
        BLOCK_SIZES.len(),
        FRAGMENTS.len(),
        CHANGES.len(),
        SETTINGS.len(),
    ];
    let cells = cells(axes, 20);
    for (number, &[block, fragments, change, setting]) in (1..).zip(&cells) {
        let block_bytes = BLOCK_SIZES[block];
        let (codec, settings) = SETTINGS[setting];
        let (compression, filter_code) = settings(block_bytes as u32);
        let mut options = Options::default()
            .compression(compression)
            .filter_code(filter_code)
            .block_bytes(block_bytes as u32)
            .fragments(FRAGMENTS[fragments]);
        let (name, change) = CHANGES[change];
        change(&mut options);
        let what = format!("{codec}, {:?}, {name}, {block_bytes}", options.fragments);
        tell(number, cells.len(), &what);

        let source = sources.of(block_bytes);
        let summary = image_of(source.dir.path(), &image, &options, 2);
        let ours = open(&image, options.offset);
        let without;
        let must = if options.xattrs {
            &source.manifest
        } else {
            let aspects = Aspects {
                xattrs: false,
                ..Aspects::default()
            };
            let source = HostDir::open(source.dir.path()).unwrap();
            without = Manifest::of(&source, &aspects).unwrap();
            &without
        };
        let same = |is: &Manifest, who: &str| {
            assert!(is == must, "{what}, {who}:\n{}", is.difference(must));
        };
        same(&manifest(&ours), "read by us");
        same(&of_linux(&image, options.offset), "read by Linux");
        same(
            &of_unsquashfs(&unsquashfs, &image, options.offset),
            "read by unsquashfs",
        );
        let theirs = of_rdsquashfs(&rdsquashfs, &image, options.offset);
        assert_eq!(theirs, without_root_and_links(&ours), "{what}, rdsquashfs");
        assert_eq!(findings(&ours), [""; 0], "{what}");
        let bytes = fs::metadata(&image).unwrap().len() - options.offset;
        assert_eq!(summary.image.image_bytes, bytes, "{what}");
    }
}

/// As mksquashfs accepts them. A dictionary is at most a block, and at least 8 KiB.
const MKSQUASHFS_CODECS: [&str; 26] = [
    "gzip",
    "gzip -Xcompression-level 1 -Xwindow-size 8",
    "gzip -Xcompression-level 6 -Xstrategy default,filtered,huffman_only",
    "gzip -Xstrategy run_length_encoded,fixed",
    "lzo",
    "lzo -Xcompression-level 1",
    "lzo -Xalgorithm lzo1x_1",
    "lzo -Xalgorithm lzo1x_1_11",
    "lzo -Xalgorithm lzo1x_1_12",
    "lzo -Xalgorithm lzo1x_1_15",
    "lz4",
    "lz4 -Xhc",
    "xz",
    "xz -Xbcj x86",
    "xz -Xbcj arm,armthumb",
    "xz -Xbcj powerpc,sparc",
    "xz -Xbcj ia64",
    "xz -Xdict-size 8192",
    "zstd",
    "zstd -Xcompression-level 1",
    "zstd -Xcompression-level 3",
    "zstd -Xcompression-level 5",
    "zstd -Xcompression-level 10",
    "zstd -Xcompression-level 19",
    "zstd -Xcompression-level 22",
    "lzma",
];

const MKSQUASHFS_LAYOUTS: [&str; 22] = [
    "",
    "-no-fragments",
    "-always-use-fragments",
    "-no-duplicates",
    "-noI",
    "-noId",
    "-noD",
    "-noF",
    "-noX",
    "-noI -noD -noF -noX",
    "-noD -noF -always-use-fragments",
    "-no-exports",
    "-no-sparse",
    "-nopad",
    "-no-xattrs",
    "-no-xattrs -no-exports -no-fragments -nopad",
    "-no-hardlinks",
    "-keep-as-directory -all-root",
    "-force-uid 70000 -force-gid 3 -root-mode 0711",
    "-processors 1 -always-use-fragments -no-duplicates",
    "-offset 12345",
    "-root-becomes before",
];

#[test]
#[ignore = "needs root"]
fn what_mksquashfs_writes_is_read_by_us_as_by_linux() {
    let tools = ["mksquashfs", "unsquashfs", "setfattr", "touch"].map(testkit::tool);
    let [Some(mksquashfs), Some(unsquashfs), Some(_), Some(_)] = tools else {
        return;
    };
    let mut sources = Sources::default();
    let out = TempDir::new();
    let (image, added) = (out.join("image"), out.join("added"));
    fs::create_dir(&added).unwrap();
    fs::write(added.join("late"), "later").unwrap();
    let axes = [
        BLOCK_SIZES.len(),
        MKSQUASHFS_LAYOUTS.len(),
        MKSQUASHFS_CODECS.len(),
    ];
    let cells = cells(axes, 25);
    let is_sample = cells.len() < axes.iter().product();
    for (number, &[block, layout, codec]) in (1..).zip(&cells) {
        let (mut block, layout, codec) = (
            BLOCK_SIZES[block],
            MKSQUASHFS_LAYOUTS[layout],
            MKSQUASHFS_CODECS[codec],
        );
        // Every filter is tried on every block. One cell of the largest ones takes half a minute,
        // longer than all others of a sample.
        if is_sample && codec.contains("-Xbcj") {
            block = block.min(256 << 10);
        }
        let what = format!("{codec}, {layout}, {block}");
        tell(number, cells.len(), &what);
        if block == 4096 && codec.contains("-Xdict-size") {
            continue; // it requires a dictionary of at most a block, and of at least 8 KiB
        }

        let make = |from: &Path, options: &str| {
            let mut args: Vec<&OsStr> = vec![from.as_os_str(), image.as_os_str()];
            args.extend(["-quiet", "-no-progress"].map(OsStr::new));
            args.extend(options.split_whitespace().map(OsStr::new));
            mksquashfs.run(args);
        };
        let new = format!("-noappend -b {block} -comp {codec}");
        let source = sources.of(block);
        // Only an existing image is turned into a directory.
        if layout.starts_with("-root-becomes") {
            make(source.dir.path(), &new);
            make(&added, layout);
        } else {
            make(source.dir.path(), &format!("{new} {layout}"));
        }
        let offset = if layout.starts_with("-offset") {
            OFFSET
        } else {
            0
        };
        let ours = open(&image, offset);
        // With filters it records a dictionary of 4 KiB, with which Linux cannot decode metadata.
        let is_mountable = block > 4096 || !codec.contains("-Xbcj");
        let must = if is_mountable && is_for_linux(codec) {
            of_linux(&image, offset)
        } else {
            of_unsquashfs(&unsquashfs, &image, offset)
        };
        let is = manifest(&ours);
        assert!(is == must, "{what}:\n{}", is.difference(&must));
        let found = findings(&ours);
        assert_eq!(found.is_empty(), is_mountable, "{what}: {found:?}");
        if layout.is_empty() {
            let must = &source.manifest;
            assert!(is == *must, "{what}:\n{}", is.difference(must));
        }
    }
}

const GENSQUASHFS_CODECS: [&str; 14] = [
    "-c gzip",
    "-c gzip -X level=3,window=10",
    "-c gzip -X filtered,huffman,rle",
    "-c lzo",
    "-c lzo -X algorithm=lzo1x_1,level=0",
    "-c lz4",
    "-c lz4 -X hc",
    "-c xz",
    "-c xz -X x86,armthumb",
    "-c xz -X dictsize=8192,level=1,lc=1,lp=2,pb=0",
    "-c zstd",
    "-c zstd -X level=1",
    "-c zstd -X level=19",
    "-c lzma",
];

/// `-S` takes a list of priorities. `nosparse` must not be in it: nothing can read how it stores
/// zeros.
const GENSQUASHFS_LAYOUTS: [&str; 8] = [
    "",
    "-e",
    "-T",
    "-e -T -j 1",
    "-B 65536",
    "-u 70000 -g 3",
    "-j 4 -Q 100",
    "-S",
];

#[test]
#[ignore = "needs root"]
fn what_gensquashfs_writes_is_read_by_us_as_by_linux() {
    let tools = ["gensquashfs", "unsquashfs", "setfattr", "touch"].map(testkit::tool);
    let [Some(gensquashfs), Some(unsquashfs), Some(_), Some(_)] = tools else {
        return;
    };
    let mut sources = Sources::default();
    let out = TempDir::new();
    let (image, order) = (out.join("image"), out.join("order"));
    fs::write(
        &order,
        "-5 [glob] text-*\n7 [dont_compress] equal/large-1\n3 [dont_fragment] text-1\n",
    )
    .unwrap();
    let axes = [
        BLOCK_SIZES.len(),
        GENSQUASHFS_LAYOUTS.len(),
        GENSQUASHFS_CODECS.len(),
    ];
    let cells = cells(axes, 14);
    for (number, &[block, layout, codec]) in (1..).zip(&cells) {
        let (block, layout, codec) = (
            BLOCK_SIZES[block],
            GENSQUASHFS_LAYOUTS[layout],
            GENSQUASHFS_CODECS[codec],
        );
        let what = format!("{codec}, {layout}, {block}");
        tell(number, cells.len(), &what);

        let source = sources.of(block);
        let options = format!("-q -f -k -x -b {block} {codec} {layout}");
        let mut args: Vec<PathBuf> = options.split_whitespace().map(PathBuf::from).collect();
        if layout == "-S" {
            args.push(order.clone());
        }
        args.extend(["-D".into(), source.dir.path().to_owned(), image.clone()]);
        gensquashfs.run(args);
        let ours = open(&image, 0);
        let must = if is_for_linux(codec) {
            of_linux(&image, 0)
        } else {
            of_unsquashfs(&unsquashfs, &image, 0)
        };
        let is = manifest(&ours);
        assert!(is == must, "{what}:\n{}", is.difference(&must));
        assert_eq!(findings(&ours), [""; 0], "{what}");
    }
}
