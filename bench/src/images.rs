//! SquashFS and btrfs images made and unpacked, by whole processes: `restow` beside mksquashfs, gensquashfs, unsquashfs and
//! mkfs.btrfs.

use std::fs;
use std::process::Command;

use crate::options::Options;
use crate::processes::{Peer, Place, THREADS, find, rounds, row, trees, words};
use crate::table::{Form, Table};

/// What is measured when nothing else is asked for: as `--compress` takes it, and a block size after `@`.
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

/// A way to make an image.
struct Codec<'a> {
    name: &'a str,
    compress: &'a str,
    block: &'a str,
}

impl<'a> Codec<'a> {
    fn parse(name: &'a str) -> Self {
        let (compress, block) = name.split_once('@').unwrap_or((name, "128K"));
        Codec {
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
        words(&format!(
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
        words(&format!(
            "-noappend -quiet -no-progress -processors {THREADS} -b {} {settings}",
            self.block
        ))
    }

    /// gensquashfs has no way to store all as it is.
    fn gensquashfs(&self) -> Option<Vec<String>> {
        let settings = match self.parts() {
            ("none", _) => return None,
            ("lzo", None) => "-c lzo -X algorithm=lzo1x_1,level=0".to_owned(),
            ("lzo", Some(level)) => format!("-c lzo -X algorithm=lzo1x_999,level={level}"),
            ("lz4", Some(_)) => "-c lz4 -X hc".to_owned(),
            (codec, Some(level)) => format!("-c {codec} -X level={level}"),
            (codec, None) => format!("-c {codec}"),
        };
        Some(words(&format!(
            "-q -f -j {THREADS} -b {} {settings}",
            self.block
        )))
    }
}

fn bytes(file: &str) -> Result<usize, String> {
    let metadata = fs::metadata(file).map_err(|error| format!("{file}: {error}"))?;
    Ok(metadata.len() as usize)
}

/// The directories that are packed, their names, and the codecs.
fn work(options: &Options) -> Result<Vec<(String, String, String)>, String> {
    let usual = CODECS.map(str::to_owned).to_vec();
    let codecs = if options.codecs.is_empty() {
        usual
    } else {
        options.codecs.clone()
    };
    let mut work = Vec::new();
    for (tree, name) in trees(options)? {
        for codec in &codecs {
            work.push((tree.clone(), name.clone(), codec.clone()));
        }
    }
    if options.one_row() {
        work.truncate(1);
    }
    Ok(work)
}

/// SquashFS images made: `restow copy` with and without `--no-verify`, beside mksquashfs and gensquashfs.
pub(crate) fn squashfs(options: &Options) -> Result<Table, String> {
    let mksquashfs = find("mksquashfs").ok_or("mksquashfs is not in PATH")?;
    let gensquashfs = find("gensquashfs");
    let place = Place::new()?;
    let names = ["mksquashfs", "restow", "restow verifying", "gensquashfs"];
    let names = names.map(str::to_owned);
    let mut table = Table::new(
        Form::Squashfs,
        &names[..3 + usize::from(gensquashfs.is_some())],
    );
    for (tree, name, codec) in work(options)? {
        let codec = Codec::parse(&codec);
        let images = ["m", "r", "v", "g"].map(|name| place.path(&format!("{name}.sqfs")));
        let [theirs, ours, verified, third] = &images;
        let with = |args: Vec<String>, more: &[&str]| {
            args.into_iter()
                .chain(more.iter().map(|word| (*word).to_owned()))
                .collect::<Vec<_>>()
        };
        let args = [vec![tree.clone(), theirs.clone()], codec.mksquashfs()].concat();
        let unverified = with(codec.restow(), &["--no-verify", &tree, ours]);
        let mut peers = vec![
            Peer::new("mksquashfs", &mksquashfs, args),
            Peer::new("restow", &place.restow, unverified),
            Peer::new(
                "restow, verifying",
                &place.restow,
                with(codec.restow(), &[&tree, verified]),
            ),
        ];
        if let (Some(program), Some(args)) = (&gensquashfs, codec.gensquashfs()) {
            let args = with(args, &["-D", &tree, third]);
            peers.push(Peer::new("gensquashfs", program, args));
        }
        let rounds = rounds(&mut peers, options.seconds)?;
        place.verify(&tree, ours)?;
        let read = |path: &String| fs::read(path).map_err(|error| format!("read {path}: {error}"));
        if read(ours)? != read(verified)? {
            return Err("verifying changes the image".into());
        }
        let sizes: Result<Vec<_>, _> = images[..peers.len()]
            .iter()
            .map(|path| bytes(path))
            .collect();
        table.print_and_add(row(name, codec.name, rounds, &peers, sizes?));
    }
    Ok(table)
}

/// Images of mksquashfs unpacked: `restow copy` beside unsquashfs.
pub(crate) fn unsquashfs(options: &Options) -> Result<Table, String> {
    let mksquashfs = find("mksquashfs").ok_or("mksquashfs is not in PATH")?;
    let unsquashfs = find("unsquashfs").ok_or("unsquashfs is not in PATH")?;
    let place = Place::new()?;
    let mut table = Table::new(Form::Unpacked, &["unsquashfs", "restow"].map(str::to_owned));
    for (tree, name, codec) in work(options)? {
        let codec = Codec::parse(&codec);
        let image = place.path("m.sqfs");
        let args = [vec![tree.clone(), image.clone()], codec.mksquashfs()].concat();
        Peer::new("mksquashfs", &mksquashfs, args).run()?;
        let (theirs, ours) = (place.path("u"), place.path("r"));
        let args = ["-q", "-n", "-p", THREADS, "-d", &theirs, &image].map(str::to_owned);
        let our_args = ["copy", "-j", THREADS, &image, &ours].map(str::to_owned);
        let mut peers = vec![
            Peer::new("unsquashfs", &unsquashfs, args.to_vec()),
            Peer::new("restow", &place.restow, our_args.to_vec()),
        ];
        peers[0].makes = Some(theirs.into());
        peers[1].makes = Some(ours.clone().into());
        let rounds = rounds(&mut peers, options.seconds)?;
        place.verify(&tree, &ours)?;
        table.print_and_add(row(name, codec.name, rounds, &peers, Vec::new()));
    }
    Ok(table)
}

/// btrfs images made: `restow copy` beside `mkfs.btrfs --rootdir`.
pub(crate) fn btrfs(options: &Options) -> Result<Table, String> {
    let mkfs = find("mkfs.btrfs").ok_or("mkfs.btrfs is not in PATH")?;
    let help = Command::new(&mkfs).arg("--help").output();
    let help = help.map_err(|error| format!("run mkfs.btrfs: {error}"))?;
    let compresses = [help.stdout, help.stderr]
        .iter()
        .any(|text| String::from_utf8_lossy(text).contains("--compress"));
    let place = Place::new()?;
    let mut table = Table::new(Form::Btrfs, &["mkfs.btrfs", "restow"].map(str::to_owned));
    for (tree, name, codec) in work(options)? {
        let codec = Codec::parse(&codec);
        if codec.compress != "none" && !compresses {
            return Err("this mkfs.btrfs has no --compress, which came with 6.12".into());
        }
        let (theirs, ours) = (place.path("m.btrfs"), place.path("r.btrfs"));
        let mut args = words("-q --shrink --rootdir");
        args.push(tree.clone());
        if compresses {
            let named = if codec.compress == "none" {
                "no"
            } else {
                codec.compress
            };
            args.extend(["--compress", named].map(str::to_owned));
        }
        args.push(theirs.clone());
        let mut our_args = words(&format!(
            "copy -j{THREADS} --overwrite --compress {}",
            codec.compress
        ));
        our_args.extend([&tree, &ours].map(String::clone));
        let mut peers = vec![
            Peer::new("mkfs.btrfs", &mkfs, args),
            Peer::new("restow", &place.restow, our_args),
        ];
        // It refuses to make another file system where one is.
        peers[0].makes = Some(theirs.clone().into());
        let rounds = rounds(&mut peers, options.seconds)?;
        place.verify(&tree, &ours)?;
        let sizes = vec![bytes(&theirs)?, bytes(&ours)?];
        table.print_and_add(row(name, codec.name, rounds, &peers, sizes));
    }
    Ok(table)
}
