//! The matrix: every option of mkfs.erofs that changes the format, of Debian 12's version and of a
//! newer one. We read the images as Linux does, and as their source is.
//!
//! The normal run tries a sample; the campaign `erofs-matrix` tries everything.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, chown, symlink};
use std::path::{Path, PathBuf};

use codec::Decoder;
use erofs::Erofs;
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool};
use tree::manifest::Manifest;
use tree::{Aspects, ExtentKind, FileId, FileKind, FileSystem, HostDir, Inventory, Limits};

use crate::hand::{RareImage, rare};
use crate::peer::as_erofs_rs_reads;
use crate::vectors::findings;

/// Of erofs-utils 1.5, which has lz4 only.
const OLD: [&str; 31] = [
    "",
    "-x-1",
    "-x0",
    "-x1",
    "-T0",
    "--ignore-mtime",
    "-Eforce-inode-compact",
    "-Eforce-inode-extended",
    "-Enoinline_data",
    "-Eforce-inode-blockmap --chunksize=4096",
    "-Eforce-chunk-indexes --chunksize=4096",
    "--chunksize=4096",
    "--chunksize=65536",
    "--chunksize=4096 --blobdev=BLOB",
    "-zlz4",
    "-zlz4 -T0",
    "-zlz4hc",
    "-zlz4hc,12 -C65536",
    "-zlz4hc -C1048576",
    "-zlz4 -Elegacy-compress",
    "-zlz4hc -Elegacy-compress -T1",
    "-zlz4 -C16384",
    "-zlz4 -Eztailpacking",
    "-zlz4hc -C65536 -Eztailpacking",
    "-zlz4 -Efragments",
    "-zlz4hc -C65536 -Efragments",
    "-zlz4hc -C65536 -Efragments,ztailpacking",
    "-zlz4hc -C65536 -Eall-fragments",
    "-zlz4hc -C65536 -Ededupe",
    "-zlz4hc -C32768 -Eall-fragments,dedupe,ztailpacking",
    "-zlz4 --max-extent-bytes=20000 -C8192",
];

/// Of erofs-utils 1.9.
const NEW: [&str; 61] = [
    "",
    "-b512",
    "-b1024 -zzstd",
    "-b2048 -zlz4hc -C8192 -Eztailpacking",
    "-E48bit",
    "-E48bit -T0",
    "-E48bit --chunksize=4096",
    "--chunksize=4096",
    "--chunksize=8192 --blobdev=BLOB",
    "--chunksize=4096 --blobdev=BLOB -E48bit",
    "--MZ",
    "--MZ=i",
    "--xattr-prefix=user.long.",
    "--xattr-prefix=user.long. -zlz4 -Efragments",
    "-Exattr-name-filter",
    "-zlz4",
    "-zlz4hc,level=12 -C65536 -Eall-fragments,dedupe",
    "-zlzma",
    "-zlzma,level=9 -C131072",
    "-zlzma -C65536 -Eall-fragments,dedupe",
    "-zlzma,dictsize=8388608 -C1048576 -Eztailpacking",
    "-zdeflate",
    "-zdeflate,level=9 -C65536",
    "-zdeflate -C65536 -Eall-fragments,dedupe",
    "-zlibdeflate,level=12 -C131072 -Eztailpacking",
    "-zzstd",
    "-zzstd,level=15 -C131072",
    "-zzstd -C131072 -T0 --all-root",
    "-zzstd -C65536 -Efragments",
    "-zzstd -C65536 -Eall-fragments",
    "-zzstd -C65536 -Ededupe",
    "-zzstd -C65536 -Eall-fragments,dedupe",
    "-zzstd -C65536 -Eztailpacking",
    "-zzstd -C65536 -Efragments,ztailpacking,dedupe",
    "-zzstd:lz4hc:deflate -C65536",
    "-zzstd -Elegacy-compress",
    "-zzstd -C131072 -E48bit",
    "-zzstd -C131072 -E48bit --max-extent-bytes=131072",
    "-zzstd,level=15 -C1048576 -E48bit --max-extent-bytes=1048576",
    "-zlz4hc -C131072 -E48bit --max-extent-bytes=131072",
    "-zdeflate -C131072 -E48bit --max-extent-bytes=131072",
    "-zlzma -C131072 -E48bit --max-extent-bytes=131072",
    "-zzstd -C131072 -E48bit,fragments --max-extent-bytes=131072",
    "-zzstd -C131072 -E48bit,all-fragments,dedupe --max-extent-bytes=131072",
    "-zlz4 -E48bit,ztailpacking,dedupe -C65536",
    "-zzstd -m4096:zstd",
    "-zlz4hc -C65536 -m16384:lz4hc",
    "-zzstd -C65536 -m65536:zstd -E48bit,all-fragments",
    "-zzstd --MZ",
    "-m4096:zstd -E48bit",
    "-zzstd --zD -C65536",
    "-zlz4hc --zD -Eall-fragments",
    "-zzstd --zD -m4096:zstd -E48bit,all-fragments,dedupe -C65536",
    "-zzstd -E48bit --max-extent-bytes=131072",
    "-zlz4hc -C65536 -E48bit,fragments,ztailpacking --max-extent-bytes=65536",
    "-zdeflate -C32768 -E48bit,all-fragments,dedupe --max-extent-bytes=20000",
    "-zzstd:lz4 -b1024 -C16384 -E48bit,dedupe --max-extent-bytes=16384",
    "--xattr-inode-digest=user.digest",
    "--root-xattr-isize=512 -zlz4",
    "--dsunit=16 -zzstd -L label",
    "-Enosbcrc -zlz4hc -C16384",
];

/// Compressible, and with repetitions at all distances.
fn text(rng: &mut Rng, len: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..300).map(|n| rng.bytes(2 + n % 9)).collect();
    let mut text = Vec::new();
    while text.len() < len {
        text.extend(&words[rng.index(words.len())]);
    }
    text.truncate(len);
    text
}

/// A tree with everything that the options treat differently.
fn source() -> Option<TempDir> {
    let setfattr = testkit::tool("setfattr")?;
    let dir = TempDir::new();
    let mut rng = Rng::new(35);
    let write = |name: &str, content: &[u8]| fs::write(dir.join(name), content).unwrap();
    for len in [
        0, 1, 40, 511, 512, 3000, 4096, 4097, 20_000, 70_000, 300_001,
    ] {
        write(&format!("text-{len}"), &text(&mut rng, len));
    }
    write("random", &rng.bytes(50_000));
    // Compressed and plain clusters in turn.
    let mixed: Vec<u8> = (0..12)
        .flat_map(|turn| {
            let len = 5000 + 3000 * turn;
            if turn % 2 == 0 {
                rng.bytes(len)
            } else {
                text(&mut rng, len)
            }
        })
        .collect();
    write("mixed", &mixed);
    write("mixed-again", &mixed);
    write(
        "mixed-shifted",
        &[b"shifted", &mixed[..100_000], b"middle", &mixed[50_000..]].concat(),
    );
    write("zeros", &[0; 300_000]);
    let program = File::open(std::env::current_exe().unwrap()).unwrap();
    let mut code = vec![0; 300_000];
    program.read_exact_at(&mut code, 500_000).unwrap();
    write("code", &code);
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(&mixed[..9000], 200_000).unwrap();
    sparse.set_len(1 << 20).unwrap();
    fs::create_dir_all(dir.join("deep/er/and/deeper")).unwrap();
    fs::create_dir(dir.join("many")).unwrap();
    for number in 0..700 {
        let name = format!("many/{}{number}", "name".repeat(number % 20));
        write(&name, &mixed[number * 7..number * 9]);
    }
    symlink("text-40", dir.join("link")).unwrap();
    symlink("x/".repeat(1500), dir.join("long-link")).unwrap();
    fs::hard_link(dir.join("text-3000"), dir.join("deep/hard")).unwrap();
    let mknod = testkit::tool("mknod")?;
    let special = |name: &str, rest: &[&str]| {
        let path = dir.join(name);
        mknod.run([&[path.to_str().unwrap()], rest].concat());
    };
    special("fifo", &["p"]);
    // As root, files of others and device nodes.
    if chown(dir.join("deep"), Some(60_000), Some(1000)).is_ok() {
        chown(dir.join("text-40"), Some(1000), Some(65_535)).unwrap();
        special("device-b", &["b", "8", "300"]);
        special("device-c", &["c", "4095", "1048575"]);
    }
    let long = "v".repeat(700);
    for (name, value, file) in [
        ("user.a", "1", "text-1"),
        ("user.a", "1", "text-40"),
        ("user.a", "1", "text-0"),
        ("user.long.infix", "2", "text-40"),
        ("user.long.", "3", "deep"),
        ("user.value", &long, "text-40"),
        ("user.value", &long, "random"),
        ("user.value", &long, "link"),
    ] {
        let path = dir.join(file);
        if file != "link" {
            let args = ["-n", name, "-v", value, path.to_str().unwrap()];
            setfattr.run(args);
        }
    }
    Some(dir)
}

fn manifest(fs: &dyn FileSystem, aspects: &Aspects) -> Result<Manifest, tree::Error> {
    Manifest::of(fs, aspects)
}

/// The further device of an image, if it has one.
fn device(image: &Path) -> Option<PathBuf> {
    Some(image.with_file_name("blob")).filter(|blob| blob.exists())
}

fn open(path: &Path) -> Result<Erofs, tree::Error> {
    let mut sources: Vec<Box<dyn tree::ReadAt>> = vec![Box::new(File::open(path)?)];
    if let Some(device) = device(path) {
        sources.push(Box::new(File::open(device)?));
    }
    Erofs::open(sources)
}

/// The files of which an encoded extent does not decode to the content of the file.
fn misencoded(image: &Erofs) -> String {
    let inventory = Inventory::of(image, &Limits::default()).unwrap();
    let (mut words, mut stored) = (String::new(), Vec::new());
    let regular = |file: &FileId| inventory.kind(*file) == FileKind::Regular;
    for file in inventory.files().filter(regular) {
        let ino = inventory.ino(file);
        for extent in image.extents(ino, 0).unwrap() {
            let ExtentKind::Encoded(encoding) = extent.kind else {
                continue;
            };
            image.read_encoded(ino, &extent, &mut stored).unwrap();
            let mut shown = vec![0; extent.len as usize];
            image.read_at(ino, extent.offset, &mut shown).unwrap();
            let mut decoded = vec![0; encoding.unencoded_len as usize];
            let len = Decoder::new().decompress(encoding.algorithm, &mut decoded, &stored);
            if len != Ok(decoded.len()) || !decoded.starts_with(&shown) {
                words += &format!("{file:?}: {extent:?}: {len:?}\n");
            }
        }
    }
    words
}

/// `count` of the options, evenly spread.
fn sample<'a>(options: &[&'a str], usually: usize) -> Vec<&'a str> {
    let count = testkit::cases(usually as u64) as usize;
    let step = options.len().div_ceil(count.clamp(1, options.len()));
    options.iter().copied().step_by(step).collect()
}

/// Makes an image with each of the options, and calls `each` with it, which returns the faults.
fn with_images(
    tool: &Tool,
    options: &[&str],
    source: &Path,
    each: &mut dyn FnMut(&Path, &str) -> String,
) {
    // Version 1.5 copies chunks from a file there, and cannot copy to another file system.
    let out = TempDir::new_in(Path::new("/tmp")).unwrap();
    let mut wrong = String::new();
    for options in options {
        let image = out.join("image");
        let mut command = tool.command();
        let blob = out.join("blob");
        let named = options.replace("BLOB", blob.to_str().unwrap());
        command.args(["--quiet"]).args(named.split_whitespace());
        let result = command.arg(&image).arg(source).output().unwrap();
        let found = if result.status.success() {
            each(&image, options)
        } else {
            String::from_utf8_lossy(&result.stderr).into_owned()
        };
        if !found.is_empty() {
            wrong += &format!("{options}:\n{}\n", &found[..found.len().min(2000)]);
        }
        let _ = (fs::remove_file(image), fs::remove_file(blob));
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The differences between an image and its files by fsck.erofs.
fn unlike_extracted(fsck: &Tool, path: &Path, image: &Erofs) -> tree::Result<String> {
    let dir = TempDir::new();
    let extract = format!("--extract={}", dir.path().display());
    let mut command = fsck.command();
    let output = command.args([&extract, "--overwrite"]).arg(path).output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Ok(format!("fsck.erofs: {words}"));
    }
    let aspects = Aspects {
        owner: false,
        mtime: false,
        xattrs: false,
        hard_links: false,
        ..Aspects::default()
    };
    let is = manifest(&HostDir::open(dir.path())?, &aspects)?;
    Ok(manifest(image, &aspects)?.difference(&is))
}

/// The differences between an image and its files by erofs-rs.
fn unlike_erofs_rs(path: &Path, image: &Erofs) -> tree::Result<String> {
    let device = device(path).map(fs::read).transpose()?;
    let peer = match as_erofs_rs_reads(&fs::read(path)?, device.as_deref()) {
        Ok(peer) => peer,
        Err(error) => return Ok(format!("erofs-rs: {error}\n")),
    };
    let all = Aspects::default();
    Ok(manifest(image, &all)?.difference(&manifest(&peer, &all)?))
}

/// Options that erofs-rs cannot read: device tables without lengths, of version 1.5, and the
/// settings of libdeflate, without a window.
const UNREAD: [&str; 2] = ["--chunksize=4096 --blobdev=BLOB", "-zlibdeflate,level=12"];
/// Options that fsck.erofs 1.9.4 extracts wrongly: files that end in a hole on a further device,
/// and small files of a metabox.
const MISEXTRACTED: [&str; 2] = ["BLOB", "-m"];

/// Compares images with their source, and with two other readers: erofs-rs, and fsck.erofs, which
/// extracts all images in a campaign, and otherwise one, because that takes long.
fn images_equal_their_source(tool: &Tool, fsck: &Tool, options: &[&str]) {
    let Some(source) = source() else { return };
    let dir = HostDir::open(source.path()).unwrap();
    let mut extractions = testkit::cases(1);
    with_images(tool, options, source.path(), &mut |path, options| {
        let aspects = Aspects {
            // Compact inodes have no times, or whole seconds: Linux judges them.
            mtime: false,
            xattrs: !options.contains("-x-1") && !options.contains("digest"),
            owner: !options.contains("--all-root"),
            ..Aspects::default()
        };
        let has = |part: &&str| options.contains(part);
        let mut compare = || {
            let image = open(path)?;
            let must = manifest(&dir, &aspects)?;
            let mut found = must.difference(&manifest(&image, &aspects)?);
            found += &(findings(&image) + &misencoded(&image));
            if !UNREAD.iter().any(has) {
                found += &unlike_erofs_rs(path, &image)?;
            }
            if extractions > 0 && !MISEXTRACTED.iter().any(has) {
                extractions -= 1;
                found += &unlike_extracted(fsck, path, &image)?;
            }
            Ok(found)
        };
        compare().unwrap_or_else(|error: tree::Error| format!("{error}"))
    });
}

#[test]
fn images_of_mkfs_erofs_equal_their_source() {
    if let (Some(tool), Some(fsck)) = (testkit::tool("mkfs.erofs"), testkit::tool("fsck.erofs")) {
        images_equal_their_source(&tool, &fsck, &sample(&OLD, 10));
    }
}

#[test]
fn images_of_a_newer_mkfs_erofs_equal_their_source() {
    let newer = |name| testkit::newer_tool(name);
    if let (Some(tool), Some(fsck)) = (newer("mkfs.erofs"), newer("fsck.erofs")) {
        images_equal_their_source(&tool, &fsck, &sample(&NEW, 10));
    }
}

/// Neither of them knows counts of 0 blocks, and erofs-rs no marks of holes. erofs-utils reads
/// blocks of up to 4 KiB.
#[test]
fn rare_forms_are_read_as_by_others() {
    let fsck = testkit::newer_tool("fsck.erofs");
    let dir = TempDir::new();
    for block_log2 in 12..=16 {
        for RareImage { name, image, .. } in rare(1 << block_log2) {
            let path = dir.join("image");
            fs::write(&path, &image).unwrap();
            let image = open(&path).unwrap();
            let mut found = String::new();
            if !name.starts_with("holes") {
                found += &unlike_erofs_rs(&path, &image).unwrap();
            }
            if let Some(fsck) = &fsck
                && block_log2 == 12
                && name != "holes by a count"
            {
                found += &unlike_extracted(fsck, &path, &image).unwrap();
            }
            assert_eq!(found, "", "{name}, blocks of 2^{block_log2} bytes");
        }
    }
}

fn images_are_read_as_by_linux(tool: &Tool, options: &[&str]) {
    let Some(source) = source() else { return };
    with_images(tool, options, source.path(), &mut |path, _| {
        let all = Aspects::default();
        let attach =
            |path: &Path| LoopDevice::attach(BackingFile::existing(path), Access::ReadOnly);
        let device = device(path).map(|path| attach(&path));
        let options = (device.as_ref()).map(|device| format!("device={}", device.path().display()));
        let mount = Mount::new(attach(path), FsType::Erofs, &options.unwrap_or_default());
        let linux = manifest(&HostDir::open(mount.path()).unwrap(), &all).unwrap();
        drop(mount);
        match open(path).and_then(|image| manifest(&image, &all)) {
            Ok(is) => linux.difference(&is),
            Err(error) => format!("{error}"),
        }
    });
}

#[test]
#[ignore = "needs root"]
fn linux_mounts_images_of_mkfs_erofs_with_what_we_read() {
    if let Some(tool) = testkit::tool("mkfs.erofs") {
        images_are_read_as_by_linux(&tool, &sample(&OLD, 6));
    }
}

#[test]
#[ignore = "needs root"]
fn linux_mounts_images_of_a_newer_mkfs_erofs_with_what_we_read() {
    if let Some(tool) = testkit::newer_tool("mkfs.erofs") {
        images_are_read_as_by_linux(&tool, &sample(&NEW, 6));
    }
}
