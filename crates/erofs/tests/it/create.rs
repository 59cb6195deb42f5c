//! Images that we make hold their source, for every codec, unit size and form: as we read them, as
//! Linux does, and without a finding of fsck.erofs.
//!
//! The normal run tries a sample; the campaign `erofs-making` tries everything.

use std::fs;

use codec::Settings;
use erofs::{ErofsSummary, Kernel, Options, TrialImage, create};
use testkit::{FsType, HookedFs, MemoryFs, Mount, Rng, TempDir, golden};
use tree::manifest::Manifest;
use tree::{
    Aspects, Device, Duplicates, Error, FileKind, FileSystem, HostDir, Inventory, Limits,
    MemoryResult, NoProgress, Parallel, Result, Time,
};

use crate::vectors::{findings, open, path};

const CODECS: [Option<Settings>; 8] = [
    Some(Settings::Zstd { level: 3 }),
    Some(Settings::Lz4),
    Some(Settings::Zlib { level: 9 }),
    None,
    Some(Settings::Zstd { level: 15 }),
    Some(Settings::Lz4Hc { level: 12 }),
    Some(Settings::Zstd { level: 22 }),
    Some(Settings::Zlib { level: 1 }),
];
const KERNELS: [Kernel; 5] = [
    Kernel(6, 12),
    Kernel(6, 17),
    Kernel(6, 15),
    Kernel(6, 1),
    Kernel(5, 13),
];
const UNITS: [usize; 4] = [128 << 10, 4 << 10, 16 << 10, 1 << 20];

/// The options that are possible together, each with its number.
fn cells() -> impl Iterator<Item = (Options, usize)> {
    let all = (0..CODECS.len() * KERNELS.len() * UNITS.len()).map(|number| {
        // Each step changes all three.
        let (codec, kernel, unit) = (number % 8, number / 8 % 5, number / 40);
        let unit = UNITS[(unit + codec + kernel) % 4];
        let kernel = KERNELS[(kernel + codec) % 5];
        let options = Options::default()
            .compression(CODECS[codec])
            .min_kernel(kernel)
            .unit_bytes(unit as u32)
            .made(1_700_000_000);
        (options, unit)
    });
    all.filter(|(options, _)| match options.compression {
        Some(Settings::Zstd { .. }) => options.min_kernel >= Kernel(6, 10),
        Some(Settings::Zlib { .. }) => options.min_kernel >= Kernel(6, 6),
        _ => true,
    })
}

pub(crate) fn words(options: &Options) -> String {
    format!(
        "{:?}, {}, {}",
        options.compression, options.unit_bytes, options.min_kernel
    )
}

/// Compressible content of `len` bytes that differs with `seed`.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<Vec<u8>> = (0..200).map(|n| rng.bytes(2 + n % 7)).collect();
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        text.extend(&words[rng.index(words.len())]);
    }
    text.truncate(len);
    text
}

/// A tree of difficult cases for units of this size.
fn source(unit: usize, kernel: Kernel) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let noise = |seed: u64, len: usize| Rng::new(seed).bytes(len);
    let lens = [
        0,
        1,
        24,
        4095,
        4096,
        4097,
        4200,
        unit - 1,
        unit,
        unit + 1,
        2 * unit,
        3 * unit + 777,
    ];
    let lens: std::collections::BTreeSet<usize> = lens.into_iter().collect();
    for len in lens {
        fs.add_file(root, format!("text-{len}"), &text(len as u64, len));
        fs.add_file(root, format!("noise-{len}"), &noise(len as u64, len));
        fs.add_file(root, format!("zeros-{len}"), &vec![0; len]);
    }
    // Compressed and plain units in turn, equal to earlier ones, and zeros between them.
    let mixed = [
        text(1, unit),
        noise(2, unit),
        vec![0; 2 * unit],
        text(1, unit),
        noise(2, unit),
        text(3, 5000),
    ];
    fs.add_file(root, "mixed", &mixed.concat());
    let again = fs.add_file(root, "mixed again", &mixed.concat());
    fs.add_xattr(again, b"user.a", &[b'v'; 3000]);
    fs.link(root, "mixed linked", again);
    // The first bytes of the second unit begin a deflate stream with a stored block.
    fs.add_file(
        root,
        "noise then text",
        &[noise(9, unit / 2), text(9, unit)].concat(),
    );
    let step = unit.min(16 << 10) as u64;
    let comb: Vec<(u64, Vec<u8>)> = (0..40)
        .map(|n| (n * 3 * step + 5000, text(n, 4096)))
        .collect();
    let pieces: Vec<(u64, &[u8])> = comb.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
    fs.add_sparse(root, "comb", 200 * step + 3, &pieces);
    fs.add_sparse(root, "hole", 5 << 20, &[]);
    let far = (1 << 40) - 5000;
    // Older ones would need an index of 2 GiB.
    if kernel >= Kernel(5, 15) {
        fs.add_sparse(
            root,
            "terabyte",
            1 << 40,
            &[(0, b"begin"), (1 << 33, &mixed[0]), (far, &mixed[5])],
        );
    }
    let dir = fs.add_dir(root, "names");
    for byte in (1..=255).filter(|byte| *byte != b'/') {
        if byte != b'.' {
            fs.add_file(dir, [byte], &[byte]);
        }
        fs.add_file(dir, [b'.', byte, byte], &text(byte.into(), 100));
    }
    fs.add_dir(dir, [b'n'; 255]);
    let many = fs.add_dir(root, "many");
    for number in 0..700 {
        let name = format!("{}{number}", "name".repeat(number % 20));
        let content = &mixed[0][number..number + number % 2000];
        fs.add_file(many, name, &content[..content.len().min(unit)]);
    }
    let mut deep = root;
    for name in ["deep", "er", "and", "deeper"] {
        deep = fs.add_dir(deep, name);
    }
    fs.add_symlink(root, "link", b"text-1");
    let long = fs.add_symlink(root, "long link", &[b'l'; 4095]);
    fs.add_xattr(long, b"trusted.of-a-link", b"1");
    fs.add_symlink(deep, "bytes", b"\xff\n");
    for (name, kind) in [
        ("block", FileKind::BlockDevice),
        ("char", FileKind::CharDevice),
        ("fifo", FileKind::Fifo),
        ("socket", FileKind::Socket),
    ] {
        let (major, minor) = if kind.is_device() {
            (259, 70_000)
        } else {
            (0, 0)
        };
        let file = fs.add_special(deep, name, kind, Device { major, minor });
        fs.metadata_mut(file).permissions = 0o6_001;
    }
    for number in 0..30_u8 {
        let file = fs.add_file(
            deep,
            [b'x', number + b'a'],
            &text(number.into(), 300 * usize::from(number)),
        );
        fs.add_xattr(file, b"security.selinux", b"system_u:object_r:usr_t:s0");
        fs.add_xattr(file, b"user.number", &[number]);
        fs.add_xattr(file, b"user.empty", b"");
        let metadata = fs.metadata_mut(file);
        (metadata.uid, metadata.gid) = (65_535 + u32::from(number), 70_000 - u32::from(number));
        metadata.mtime = Time {
            seconds: [1_700_000_000, -1, 1 << 33, 0][usize::from(number) % 4],
            nanoseconds: [0, 999_999_999][usize::from(number) % 8 / 4],
        };
    }
    let wide = fs.add_file(root, "wide", b"attributes of more than a block");
    for number in 0..300 {
        fs.add_xattr(
            wide,
            format!("user.{number}").as_bytes(),
            &noise(number, number as usize),
        );
        fs.add_xattr(
            deep,
            format!("user.{number}").as_bytes(),
            &noise(number, number as usize),
        );
    }
    fs
}

/// Images of a small tree in all forms.
pub(crate) fn small_images() -> impl Iterator<Item = Vec<u8>> {
    KERNELS.into_iter().map(|kernel| {
        let mut fs = MemoryFs::new();
        let root = fs.root();
        let dir = fs.add_dir(root, "dir");
        for number in 0..300 {
            fs.add_file(dir, format!("file number {number}"), &text(number, 20));
        }
        for len in [10, 700, 5000, 40_000] {
            let file = fs.add_file(root, format!("text-{len}"), &text(len, len as usize));
            fs.add_xattr(file, b"user.of-all", b"value");
            fs.add_file(
                root,
                format!("noise-{len}"),
                &Rng::new(len).bytes(len as usize),
            );
        }
        fs.add_sparse(root, "sparse", 300_000, &[(200_000, b"data")]);
        fs.add_symlink(root, "link", b"text-10");
        let codec = if kernel < Kernel(6, 10) {
            CODECS[1]
        } else {
            CODECS[0]
        };
        let options = Options::default().compression(codec).min_kernel(kernel);
        make(&fs, &options.unit_bytes(16 << 10), 1).unwrap().0
    })
}

pub(crate) fn make(
    fs: &dyn FileSystem,
    options: &Options,
    threads: usize,
) -> Result<(Vec<u8>, ErofsSummary)> {
    let inventory = Inventory::of(fs, &Limits::default())?;
    let result = MemoryResult::default();
    let mut output = result.output();
    let parallel = Parallel::new(threads);
    let summary = create(&inventory, options, parallel, &NoProgress, &mut output)?;
    output.commit()?;
    Ok((result.take(), summary))
}

pub(crate) fn manifest(fs: &dyn FileSystem) -> Manifest {
    Manifest::of(fs, &Aspects::default()).unwrap()
}

#[test]
fn what_we_write_is_its_source() {
    let count = testkit::cases(8) as usize;
    for (number, (options, unit)) in cells().take(count).enumerate() {
        let fs = source(unit, options.min_kernel);
        let (image, summary) = make(&fs, &options, 1 + number % 3).unwrap();
        assert_eq!(summary.image.image_bytes, image.len() as u64);
        let image = open(image).unwrap();
        let (is, must) = (manifest(&image), manifest(&fs));
        assert!(is == must, "{}:\n{}", words(&options), must.difference(&is));
        assert_eq!(findings(&image), "", "{}", words(&options));
        let needed = image.superblock().min_kernel();
        assert!(
            needed <= options.min_kernel,
            "{}: {needed}",
            words(&options)
        );
    }
}

/// Reads parts of all files at random places, and compares them with the source.
pub(crate) fn read_randomly(mounted: &HostDir, fs: &MemoryFs, reads: u64) {
    let (ours, theirs) = (
        Inventory::of(fs, &Limits::default()).unwrap(),
        Inventory::of(mounted, &Limits::default()).unwrap(),
    );
    let regular = ours
        .files()
        .filter(|&file| ours.size(file) > 0 && ours.kind(file) == FileKind::Regular);
    let files: Vec<_> = regular.collect();
    let mut rng = Rng::new(reads);
    for _ in 0..reads {
        let file = files[rng.index(files.len())];
        let path = ours.path(ours.first_name(file));
        let other = theirs.file(theirs.find(&path).unwrap());
        let at = rng.below(ours.size(file));
        let mut must = vec![0; rng.index(30_000)];
        let mut is = vec![1; must.len()];
        let len = fs.read_at(ours.ino(file), at, &mut must).unwrap();
        let read = mounted.read_at(theirs.ino(other), at, &mut is).unwrap();
        assert_eq!(
            (len, &must[..len]),
            (read, &is[..read]),
            "{} at {at}",
            path.escape_ascii()
        );
    }
}

#[test]
#[ignore = "needs root"]
fn linux_reads_what_we_write() {
    let (count, reads) = (testkit::cases(6) as usize, testkit::cases(500));
    let out = TempDir::new();
    for (options, unit) in cells().take(count) {
        let fs = source(unit, options.min_kernel);
        let (image, _) = make(&fs, &options, 2).unwrap();
        fs::write(out.join("image"), image).unwrap();
        let mount = Mount::read_only(out.join("image"), FsType::Erofs);
        let dir = HostDir::open(mount.path()).unwrap();
        let (is, must) = (manifest(&dir), manifest(&fs));
        assert!(is == must, "{}:\n{}", words(&options), must.difference(&is));
        read_randomly(&dir, &fs, reads);
        drop(dir);
        mount.unmount();
    }
}

/// Linux reads a deflate stream whose last bytes, which hold nothing but its end, lie in a page of
/// their own.
#[test]
#[ignore = "needs root"]
fn linux_reads_deflate_that_ends_behind_a_page() {
    let unit = 128 << 10;
    let options = Options::default()
        .compression(Some(Settings::Zlib { level: 9 }))
        .min_kernel(Kernel(6, 15))
        .unit_bytes(unit as u32);
    // The second unit is compressed, and the third, which is plain, begins where it ends.
    let made = |before: usize| {
        let mut content = Rng::new(1).bytes(before);
        content.resize(unit, 0);
        content.extend(text(1, unit));
        content.extend(Rng::new(2).bytes(unit));
        let mut fs = MemoryFs::new();
        fs.add_file(fs.root(), "file", &content);
        let (image, _) = make(&fs, &options, 1).unwrap();
        let opened = open(image.clone()).unwrap();
        let file = opened.lookup(opened.root(), b"file").unwrap();
        let plain = opened.extents(file.ino, 2 * unit as u64).unwrap();
        assert_eq!(plain[0].offset, 2 * unit as u64);
        (fs, image, plain[0].id.unwrap().0 as usize % 4096)
    };
    let out = TempDir::new();
    for behind in [1, 2, 3] {
        let mut before = 5000;
        let found = (0..100).find_map(|_| {
            let (fs, image, end) = made(before);
            // A byte more in the first unit moves the second one by about a byte.
            before = 5000 + (before + behind + 4096 - end - 5000) % 4096;
            (end == behind).then_some((fs, image))
        });
        let (fs, image) = found.expect("an image with this end");
        fs::write(out.join("image"), image).unwrap();
        let mount = Mount::read_only(out.join("image"), FsType::Erofs);
        let dir = HostDir::open(mount.path()).unwrap();
        assert!(manifest(&dir) == manifest(&fs), "{behind} bytes");
        drop(dir);
        mount.unmount();
    }
}

#[test]
fn fsck_erofs_finds_nothing_in_what_we_write() {
    let Some(fsck) = testkit::newer_tool("fsck.erofs") else {
        return;
    };
    let out = TempDir::new();
    for (options, unit) in cells().take(testkit::cases(12) as usize) {
        let mut fs = source(unit, options.min_kernel);
        // It reads holes.
        let root = fs.root();
        if let Ok(huge) = fs.lookup(root, b"terabyte") {
            fs.metadata_mut(huge.ino).size = 100;
        }
        let (image, _) = make(&fs, &options, 2).unwrap();
        fs::write(out.join("image"), image).unwrap();
        let result = fsck
            .command()
            .args(["--extract", "-d3"])
            .arg(out.join("image"))
            .output()
            .unwrap();
        let words_of_it = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(
            result.status.success(),
            "{}: {words_of_it}",
            words(&options)
        );
    }
}

/// The lengths of a real run give the size of the real image, for all forms.
#[test]
fn an_image_of_the_lengths_of_its_units_has_its_size() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let dir = fs.add_dir(root, "dir");
    for number in 0..300 {
        let len = 1 + 7 * number as usize;
        fs.add_file(
            dir,
            format!("a small file, number {number}"),
            &text(number, len),
        );
    }
    fs.add_file(root, "text", &text(1, 300_000));
    fs.add_file(root, "again", &text(1, 300_000));
    fs.add_file(root, "noise", &Rng::new(2).bytes(200_000));
    fs.add_file(root, "zeros", &vec![0; 150_000]);
    fs.add_sparse(
        root,
        "sparse",
        900_000,
        &[(0, &text(3, 70_000)), (500_000, b"data")],
    );
    fs.add_symlink(root, "link", &[b'l'; 4095]);
    let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
    let parallel = Parallel::new(2);
    let duplicates = Duplicates::find(&inventory, parallel).unwrap();
    for (number, kernel) in KERNELS.into_iter().enumerate() {
        let (codec, old) = (CODECS[number % 3], kernel < Kernel(6, 10));
        for compression in [if old { CODECS[1] } else { codec }, None] {
            let options = Options::default()
                .compression(compression)
                .min_kernel(kernel)
                .unit_bytes(16 << 10);
            let (real, _) = make(&fs, &options, 2).unwrap();
            let trial = TrialImage::new(&inventory, &duplicates, options, parallel).unwrap();
            let options = trial.options(compression);
            let mut worker = trial.worker(&options);
            let lens = trial.units().iter().map(|unit| {
                let result = worker.encode(unit).unwrap();
                let len = result.len as u32;
                worker.recycle(result);
                len
            });
            let lens: Vec<u32> = lens.collect();
            let bytes = trial.image_bytes(compression, &lens, parallel).unwrap();
            assert_eq!(bytes, real.len() as u64, "{}", words(&options));
        }
    }
}

#[test]
fn the_same_bytes_for_any_number_of_threads() {
    let mut digests = String::new();
    for (options, _) in cells().take(6) {
        let fs = source(options.unit_bytes as usize, options.min_kernel);
        let (first, summary) = make(&fs, &options, 1).unwrap();
        for threads in [2, 8] {
            let (image, _) = make(&fs, &options, threads).unwrap();
            assert!(first == image, "{threads} threads, {}", words(&options));
        }
        let digest = tree::sha256(&first)[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        digests += &format!(
            "{digest} {} {}\n",
            summary.image.image_bytes,
            words(&options)
        );
    }
    golden(path("made", "digests"), digests);
}

#[test]
fn files_that_cannot_be_read_are_left_out_and_listed() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    for len in [100, 3000, 300_000] {
        fs.add_file(root, format!("good-{len}"), &text(7, len));
    }
    let good = manifest(&fs);
    let mut bad = Vec::new();
    for (name, len) in [("bad", 200), ("bad-large", 400_000), ("bad-noise", 500_000)] {
        let content = if name == "bad-noise" {
            Rng::new(8).bytes(len)
        } else {
            text(8, len)
        };
        bad.push(fs.add_file(root, name, &content));
        bad.push(fs.add_file(root, format!("{name}-equal"), &content));
    }
    // The ends of large files, of which a part is written then.
    let hooked = HookedFs::new(fs, move |ino, offset| {
        let number = bad.iter().position(|&bad| bad == ino);
        if number.is_some_and(|number| number < 2 || offset > 0) {
            return Err(Error::Unreadable("a test"));
        }
        Ok(())
    });
    for (options, _) in cells().take(8) {
        let options = options.unit_bytes(16 << 10);
        assert!(make(&hooked, &options, 2).is_err());
        let options = options.skip_unreadable(true);
        let (image, summary) = make(&hooked, &options, 2).unwrap();
        assert_eq!(summary.image.unreadable.len(), 6, "{}", words(&options));
        let image = open(image).unwrap();
        assert!(manifest(&image) == good, "{}", words(&options));
        assert_eq!(findings(&image), "", "{}", words(&options));
    }
}

#[test]
fn impossible_options_are_refused() {
    let fs = MemoryFs::new();
    let usual = Options::default;
    for (options, words) in [
        (usual().unit_bytes(5000), "the unit size is not"),
        (usual().unit_bytes(2 << 20), "the unit size is not"),
        (
            usual().min_kernel(Kernel(6, 9)),
            "zstd in EROFS needs Linux 6.10",
        ),
        (usual().min_kernel(Kernel(5, 3)), "for Linux 5.4 or newer"),
        (usual().compression(Settings::Lzo), "EROFS has no codec but"),
        (
            usual().compression(Settings::Zstd { level: -1 }),
            "has levels 1 to 22",
        ),
        (usual().label(vec![b'x'; 17]), "a label in EROFS has"),
        (
            usual().compression(Settings::Lz4).min_kernel(Kernel(5, 12)),
            "needs Linux 5.13",
        ),
        (
            usual()
                .compression(Settings::Zlib { level: 1 })
                .min_kernel(Kernel(6, 5)),
            "needs Linux 6.6",
        ),
    ] {
        let error = make(&fs, &options, 1).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!("6.12.3".parse::<Kernel>().unwrap(), Kernel(6, 12));
    for wrong in ["6", "", "6.x", "6.1.2.3", "-6.1"] {
        assert!(wrong.parse::<Kernel>().is_err(), "{wrong}");
    }
}

/// The digests of files are those of their contents, also as mkfs.erofs would store them.
#[test]
fn files_have_the_digests_of_their_contents() {
    let unit = 16 << 10;
    for (options, _) in cells().take(10) {
        let mut fs = source(unit, Kernel(5, 13));
        let root = fs.root();
        fs.add_file(root, "flat", &Rng::new(50).bytes(100_000));
        fs.add_sparse(root, "large hole", 1 << 40, &[(1 << 39, b"data")]);
        let options = options.unit_bytes(unit as u32).content_digest(true);
        if options.min_kernel < Kernel(6, 4) {
            assert!(make(&fs, &options, 1).is_err());
            continue;
        }
        let (image, _) = make(&fs, &options, 2).unwrap();
        let image = open(image).unwrap();
        assert_eq!(findings(&image), "", "{}", words(&options));
        let inventory = Inventory::of(&image, &Limits::default()).unwrap();
        let mut count = 0;
        for file in inventory.files() {
            let xattrs = image.xattrs(inventory.ino(file)).unwrap();
            let digest = xattrs
                .iter()
                .find(|xattr| *xattr.name == *b"trusted.erofs.fingerprint");
            let has_digest = inventory.size(file) < 1 << 40;
            if inventory.kind(file) != FileKind::Regular || !has_digest {
                assert_eq!(digest, None);
                continue;
            }
            let mut content = vec![0; inventory.size(file) as usize];
            image.read_at(inventory.ino(file), 0, &mut content).unwrap();
            let must = [&b"sha256:"[..], &tree::sha256(&content)].concat();
            assert_eq!(*digest.unwrap().value, *must, "{}", words(&options));
            count += 1;
        }
        assert!(count > 500);
    }
}
