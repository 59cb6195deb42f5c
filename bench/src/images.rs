//! SquashFS and btrfs images made and unpacked, by whole processes: `restow` beside mksquashfs,
//! gensquashfs, unsquashfs and mkfs.btrfs.

use std::fs;
use std::process::Command;

use crate::options::{Options, read};
use crate::processes::{self, ProcessPeer, THREADS};
use crate::record::TableRecord;
use crate::scratch::{ScratchDir, find, version, words};

/// The usual codecs: as `--compress` takes them, and a block size after `@`.
const CODECS: [&str; 12] = [
    "zstd:1",
    "zstd:5",
    "zstd:10",
    "zstd:15",
    "zstd:16@256K",
    "gzip:9",
    "xz",
    "lz4",
    "lz4:hc",
    "lzo",
    "lzo:8",
    "none",
];

/// A codec of an image, and the size of its blocks.
struct ImageCodec<'a> {
    name: &'a str,
    compress: &'a str,
    block: &'a str,
}

impl<'a> ImageCodec<'a> {
    fn parse(name: &'a str) -> Self {
        let (compress, block) = name.split_once('@').unwrap_or((name, "128K"));
        ImageCodec {
            name,
            compress,
            block,
        }
    }

    fn parts(&self) -> (&str, Option<&str>) {
        match self.compress.split_once(':') {
            Some((codec, rest)) => (codec, Some(rest)),
            None => (self.compress, None),
        }
    }

    fn restow(&self) -> Vec<String> {
        line(&format!(
            "copy -j{THREADS} --overwrite --compress {} --block-size {}",
            self.compress, self.block
        ))
    }

    fn mksquashfs(&self) -> Vec<String> {
        let settings = match self.parts() {
            ("none", _) => "-noI -noD -noF -noX".to_owned(),
            ("lzo", None) => "-comp lzo -Xalgorithm lzo1x_1".to_owned(),
            ("lzo", Some(level)) => {
                format!("-comp lzo -Xalgorithm lzo1x_999 -Xcompression-level {level}")
            }
            ("lz4", Some(_)) => "-comp lz4 -Xhc".to_owned(),
            (codec, Some(level)) => format!("-comp {codec} -Xcompression-level {level}"),
            (codec, None) => format!("-comp {codec}"),
        };
        line(&format!(
            "-noappend -quiet -no-progress -processors {THREADS} -b {} {settings}",
            self.block
        ))
    }

    /// gensquashfs cannot store everything uncompressed.
    fn gensquashfs(&self) -> Option<Vec<String>> {
        let settings = match self.parts() {
            ("none", _) => return None,
            ("lzo", None) => "-c lzo -X algorithm=lzo1x_1,level=0".to_owned(),
            ("lzo", Some(level)) => format!("-c lzo -X algorithm=lzo1x_999,level={level}"),
            ("lz4", Some(_)) => "-c lz4 -X hc".to_owned(),
            (codec, Some(level)) => format!("-c {codec} -X level={level}"),
            (codec, None) => format!("-c {codec}"),
        };
        Some(line(&format!(
            "-q -f -j {THREADS} -b {} {settings}",
            self.block
        )))
    }
}

/// The words of a line.
fn line(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Adds the sizes of the images of the peers.
fn add_sizes(
    record: &mut TableRecord,
    [part, row]: [&str; 2],
    peers: &[ProcessPeer],
    images: &[&String],
) -> Result<(), String> {
    for (peer, image) in peers.iter().zip(images) {
        let metadata = fs::metadata(image).map_err(|error| format!("{image}: {error}"))?;
        record.add(part, row, peer.name, "bytes", metadata.len() as f64);
    }
    Ok(())
}

/// The directories to be packed, their names, and the codecs.
fn combinations(options: &Options) -> Result<Vec<(String, String, String)>, String> {
    let mut codecs = options.codecs.clone();
    if codecs.is_empty() {
        codecs = words(&CODECS);
    }
    let mut all = Vec::new();
    for (tree, name) in options.directories()? {
        for codec in &codecs {
            all.push((tree.clone(), name.clone(), codec.clone()));
        }
    }
    if options.one_row() {
        all.truncate(1);
    }
    Ok(all)
}

/// SquashFS images made: `restow copy` with and without `--no-verify`, beside mksquashfs and
/// gensquashfs.
pub(crate) fn squashfs(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let mksquashfs = find("mksquashfs")?;
    let gensquashfs = find("gensquashfs").ok();
    let scratch = ScratchDir::new(options)?;
    let mut peers = version(&mksquashfs, "-version");
    if let Some(program) = &gensquashfs {
        peers += &format!(", {}", version(program, "--version"));
    }
    record.say("peers", peers);
    let images = ["m", "r", "v", "g"].map(|name| scratch.path(&format!("{name}.sqfs")));
    let [theirs, ours, verified, third] = &images;
    for (tree, name, codec) in combinations(options)? {
        let codec = ImageCodec::parse(&codec);
        let args = [vec![tree.clone(), theirs.clone()], codec.mksquashfs()].concat();
        let unverified = [codec.restow(), words(&["--no-verify", &tree, ours])].concat();
        let verifying = [codec.restow(), words(&[&tree, verified])].concat();
        let mut peers = vec![
            ProcessPeer::new("mksquashfs", &mksquashfs, args),
            ProcessPeer::new("restow", &scratch.restow, unverified),
            ProcessPeer::new("restow verifying", &scratch.restow, verifying),
        ];
        if let (Some(program), Some(args)) = (&gensquashfs, codec.gensquashfs()) {
            let args = [args, words(&["-D", &tree, third])].concat();
            peers.push(ProcessPeer::new("gensquashfs", program, args));
        }
        let row = [&*name, codec.name];
        processes::measure(record, row, &mut peers, options.seconds)?;
        scratch.verify(&tree, ours)?;
        if read(ours.as_ref())? != read(verified.as_ref())? {
            return Err("verifying changes the image".into());
        }
        add_sizes(record, row, &peers, &images.each_ref())?;
    }
    Ok(())
}

/// Images of mksquashfs unpacked: `restow copy` beside unsquashfs.
pub(crate) fn unsquashfs(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let (mksquashfs, unsquashfs) = (find("mksquashfs")?, find("unsquashfs")?);
    let scratch = ScratchDir::new(options)?;
    record.say("peers", version(&mksquashfs, "-version"));
    let [image, theirs, ours] = ["m.sqfs", "u", "r"].map(|name| scratch.path(name));
    for (tree, name, codec) in combinations(options)? {
        let codec = ImageCodec::parse(&codec);
        let args = [vec![tree.clone(), image.clone()], codec.mksquashfs()].concat();
        ProcessPeer::new("mksquashfs", &mksquashfs, args).run()?;
        let args = words(&["-q", "-n", "-p", THREADS, "-d", &theirs, &image]);
        let our_args = words(&["copy", "-j", THREADS, &image, &ours]);
        let mut peers = [
            ProcessPeer::new("unsquashfs", &unsquashfs, args).making(&theirs),
            ProcessPeer::new("restow", &scratch.restow, our_args).making(&ours),
        ];
        processes::measure(record, [&name, codec.name], &mut peers, options.seconds)?;
        scratch.verify(&tree, &ours)?;
    }
    Ok(())
}

/// btrfs images made: `restow copy` beside `mkfs.btrfs --rootdir`.
pub(crate) fn btrfs(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let mkfs = find("mkfs.btrfs")?;
    let help = Command::new(&mkfs).arg("--help").output();
    let help = help.map_err(|error| format!("run mkfs.btrfs: {error}"))?;
    let compresses = [help.stdout, help.stderr]
        .iter()
        .any(|text| String::from_utf8_lossy(text).contains("--compress"));
    let scratch = ScratchDir::new(options)?;
    record.say("peers", version(&mkfs, "--version"));
    let [theirs, ours] = ["m.btrfs", "r.btrfs"].map(|name| scratch.path(name));
    for (tree, name, codec) in combinations(options)? {
        let codec = ImageCodec::parse(&codec);
        let mut args = words(&["-q", "--shrink", "--rootdir", &tree]);
        match codec.compress {
            "none" if compresses => args.extend(words(&["--compress", "no"])),
            "none" => {}
            named if compresses => args.extend(words(&["--compress", named])),
            _ => return Err("this mkfs.btrfs has no --compress, which came with 6.12".into()),
        }
        args.push(theirs.clone());
        let our_args = [
            "copy",
            "-j",
            THREADS,
            "--overwrite",
            "--compress",
            codec.compress,
        ];
        let our_args = words(&[&our_args[..], &[&tree, &ours]].concat());
        let mut peers = [
            // It refuses to make another file system where one is.
            ProcessPeer::new("mkfs.btrfs", &mkfs, args).making(&theirs),
            ProcessPeer::new("restow", &scratch.restow, our_args),
        ];
        let row = [&*name, codec.name];
        processes::measure(record, row, &mut peers, options.seconds)?;
        scratch.verify(&tree, &ours)?;
        add_sizes(record, row, &peers, &[&theirs, &ours])?;
    }
    Ok(())
}
