//! Disk files of virtual machines, compared with the raw disks of qemu-img.

use std::fs;
use std::path::Path;

use restow::{Container, Input, OpenOptions};
use testkit::{Rng, TempDir, Tool, tool};
use tree::ReadAt;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Images that `qemu-img convert` makes: the format, whether it compresses, the options.
const QCOW2: &[(&str, bool, &str)] = &[
    ("qcow2", false, "cluster_size=512"),
    ("qcow2", false, "cluster_size=512,compat=0.10"),
    ("qcow2", false, "cluster_size=4k"),
    ("qcow2", false, "cluster_size=64k"),
    ("qcow2", false, "cluster_size=64k,compat=0.10"),
    ("qcow2", false, "cluster_size=2M"),
    ("qcow2", false, "cluster_size=2M,compat=0.10"),
    ("qcow2", false, "extended_l2=on,cluster_size=16k"),
    ("qcow2", false, "extended_l2=on,cluster_size=64k"),
    ("qcow2", false, "extended_l2=on,cluster_size=2M"),
    ("qcow2", false, "preallocation=metadata"),
    ("qcow2", false, "lazy_refcounts=on,refcount_bits=1"),
    ("qcow2", true, "cluster_size=512"),
    ("qcow2", true, "cluster_size=64k"),
    ("qcow2", true, "cluster_size=2M,compat=0.10"),
    ("qcow2", true, "cluster_size=512,compression_type=zstd"),
    ("qcow2", true, "cluster_size=64k,compression_type=zstd"),
    ("qcow2", true, "cluster_size=2M,compression_type=zstd"),
    ("qcow2", true, "extended_l2=on"),
    ("qcow2", true, "extended_l2=on,compression_type=zstd"),
];
const OTHERS: &[(&str, bool, &str)] = &[
    ("vmdk", false, "subformat=monolithicSparse"),
    ("vmdk", false, "subformat=monolithicSparse,zeroed_grain=on"),
    ("vmdk", false, "subformat=monolithicSparse,compat6=on"),
    ("vmdk", false, "subformat=streamOptimized"),
    ("vpc", false, "subformat=dynamic"),
    ("vpc", false, "subformat=dynamic,force_size=on"),
    ("vhdx", false, "subformat=dynamic"),
    ("vhdx", false, "subformat=dynamic,block_size=1M"),
    ("vhdx", false, "subformat=dynamic,block_size=32M"),
    ("vhdx", false, "subformat=fixed,block_size=2M"),
];

/// A disk with noise, text, holes and zeros, that ends within a cluster.
fn content(rng: &mut Rng) -> Vec<u8> {
    let mut disk = vec![0; 5 * MIB + 301 * KIB + 512];
    rng.fill(&mut disk[..MIB]);
    let text = b"words that are easy to compress ".repeat(20 * KIB);
    disk[2 * MIB..2 * MIB + text.len()].copy_from_slice(&text);
    for _ in 0..40 {
        let (at, len) = (rng.index(disk.len() - 20 * KIB), 1 + rng.index(20 * KIB));
        rng.fill(&mut disk[at..at + len]);
    }
    let end = disk.len();
    rng.fill(&mut disk[end - 700..]);
    disk
}

struct Disks {
    dir: TempDir,
    img: Tool,
    io: Tool,
    rng: Rng,
}

impl Disks {
    fn new(seed: u64) -> Option<Disks> {
        let (img, io) = (tool("qemu-img")?, tool("qemu-io")?);
        let (dir, mut rng) = (TempDir::new(), Rng::new(seed));
        fs::write(dir.join("raw"), content(&mut rng)).unwrap();
        Some(Disks { dir, img, io, rng })
    }

    /// Runs qemu-img with words, in the directory.
    fn img(&self, line: &str) {
        let mut command = self.img.command();
        command
            .current_dir(self.dir.path())
            .args(line.split_whitespace());
        testkit::run(&mut command);
    }

    /// Runs commands of qemu-io on an image.
    fn io(&self, image: &str, lines: &[&str]) {
        let mut command = self.io.command();
        command.current_dir(self.dir.path()).args(["-t", "unsafe"]);
        for line in lines {
            command.args(["-c", line]);
        }
        testkit::run(command.arg(image));
    }

    fn convert(&self, (format, is_compressed, options): (&str, bool, &str), to: &str) {
        let flag = if is_compressed { "-c" } else { "" };
        let line = format!("convert -t unsafe -f raw -O {format} {flag} -o {options} raw {to}");
        self.img(&line);
    }

    /// Compares a disk with that of qemu-img, as a whole and at some places.
    fn same(&mut self, image: &str, what: &str) {
        self.same_state(image, None, what);
    }

    /// The same for a snapshot.
    fn same_state(&mut self, image: &str, snapshot: Option<&str>, what: &str) {
        let option = snapshot.map_or(String::new(), |it| format!("-l {it}"));
        self.img(&format!(
            "convert -t unsafe {option} -O raw {image} expected"
        ));
        let expected = fs::read(self.dir.join("expected")).unwrap();
        let options = OpenOptions::default().disk_snapshot(snapshot.map(Into::into));
        let disk = open(&self.dir.join(image), &options);
        let disk = disk.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert_eq!(disk.size().unwrap(), expected.len() as u64, "{what}");
        let mut found = vec![1; expected.len()];
        disk.read_exact_at(&mut found, 0).unwrap();
        let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{what}");
        for _ in 0..20 {
            let at = self.rng.index(expected.len());
            let len = self.rng.index((expected.len() - at).min(200 * KIB));
            let mut part = vec![1; len];
            disk.read_exact_at(&mut part, at as u64).unwrap();
            assert!(
                part == expected[at..at + len],
                "{what}: {len} bytes at {at}"
            );
        }
        let end = expected.len() as u64;
        assert!(disk.read_exact_at(&mut [0], end).is_err(), "{what}");
    }
}

fn open(path: &Path, options: &OpenOptions) -> restow::Result<std::sync::Arc<restow::DiskFile>> {
    let mut input = Input::open(path)?;
    input.open_disk_file(options)?;
    Ok(std::sync::Arc::clone(
        input.disk_file().expect("it is a disk file"),
    ))
}

#[test]
fn qcow2_is_read_as_by_qemu() {
    let Some(mut disks) = Disks::new(1) else {
        return;
    };
    for &form in QCOW2 {
        disks.convert(form, "image");
        disks.same("image", &format!("{form:?}"));
    }
    // Zeros, discarded and rewritten clusters, behind two snapshots.
    disks.img("convert -f raw -O qcow2 -c raw image");
    for (number, lines) in [
        [
            "write -P 1 100k 300k",
            "write -z 1M 256k",
            "discard 2M 128k",
        ],
        ["write -P 2 0 70k", "write -z -u 3M 64k", "write -P 3 5M 1k"],
    ]
    .into_iter()
    .enumerate()
    {
        disks.img(&format!("snapshot -c state{number} image"));
        disks.io("image", &lines);
        disks.same("image", "snapshots");
    }
    let disk = open(&disks.dir.join("image"), &OpenOptions::default()).unwrap();
    assert_eq!(disk.layers()[0].snapshots, 2);
    assert_eq!(disk.layers()[0].format, "qcow2 version 3");
}

#[test]
fn snapshots_are_read_by_id_and_by_name() {
    let Some(mut disks) = Disks::new(4) else {
        return;
    };
    disks.img("convert -f raw -O qcow2 raw base");
    for options in [
        "cluster_size=64k",
        "cluster_size=2M",
        "cluster_size=4k,compat=0.10",
        "extended_l2=on,backing_file=base,backing_fmt=qcow2",
    ] {
        disks.img(&format!("create -q -f qcow2 -o {options} image 6M"));
        for (number, lines) in [
            ["write -P 1 100k 300k", "write -P 4 5M 64k"],
            ["write -z 0 256k", "discard 5M 64k"],
            ["write -P 2 0 70k", "write -P 3 5M 1k"],
        ]
        .into_iter()
        .enumerate()
        {
            disks.io("image", &lines);
            // The name of the last one is the ID of the first one.
            disks.img(&format!(
                "snapshot -c {} image",
                ["old", "new", "1"][number]
            ));
        }
        disks.io("image", &["write -P 5 0 6M"]);
        for snapshot in ["old", "new", "1", "3"] {
            disks.same_state("image", Some(snapshot), &format!("{options} {snapshot}"));
        }
        disks.same("image", options);
        let wanted = OpenOptions::default().disk_snapshot(Some("4".into()));
        let words = open(&disks.dir.join("image"), &wanted).err().unwrap();
        let words = format!("{words:#}");
        let list = "snapshot 4 does not exist; there are 1 (old), 2 (new), 3 (1)";
        assert!(words.contains(list), "{words}");
    }
    // The size is that of the snapshot, where qemu-img shows zeros behind it.
    let wanted = OpenOptions::default().disk_snapshot(Some("old".into()));
    disks.img("resize -q image 7M");
    disks.img("convert -l old -O raw image expected");
    let expected = fs::read(disks.dir.join("expected")).unwrap();
    let mut found = vec![1; 6 * MIB];
    let disk = open(&disks.dir.join("image"), &wanted).unwrap();
    assert_eq!(disk.size().unwrap(), 6 << 20);
    disk.read_exact_at(&mut found, 0).unwrap();
    assert!(found == expected[..6 * MIB]);
    // Beyond the limits of QEMU, and an entry outside of the file.
    let image = fs::read(disks.dir.join("image")).unwrap();
    for (at, bytes) in [(60, [0, 1, 0, 1]), (64, [0x7f; 4])] {
        let mut image = image.clone();
        image[at..at + 4].copy_from_slice(&bytes);
        fs::write(disks.dir.join("changed"), image).unwrap();
        let wanted = OpenOptions::default().disk_snapshot(Some("1".into()));
        assert!(open(&disks.dir.join("changed"), &wanted).is_err());
    }
}

#[test]
fn vmdk_vhd_and_vhdx_are_read_as_by_qemu() {
    let Some(mut disks) = Disks::new(2) else {
        return;
    };
    for &form in OTHERS {
        disks.convert(form, "image");
        disks.same("image", &format!("{form:?}"));
    }
    // As VMware writes a stream: the grain directory is known at the end, where the header is
    // repeated between two markers.
    disks.convert(("vmdk", false, "subformat=streamOptimized"), "image");
    let mut stream = fs::read(disks.dir.join("image")).unwrap();
    let header = stream[..512].to_vec();
    stream[56..64].fill(0xff);
    stream.resize(stream.len().next_multiple_of(512), 0);
    let mut marker = [0; 512];
    (marker[0], marker[12]) = (1, 3);
    stream.extend([&marker[..], &header, &[0; 512]].concat());
    fs::write(disks.dir.join("image"), stream).unwrap();
    disks.same("image", "a footer");
    for (format, options) in [
        ("vmdk", "subformat=monolithicFlat"),
        ("vmdk", "subformat=twoGbMaxExtentSparse"),
    ] {
        disks.convert((format, false, options), "refused.vmdk");
        let mut input = Input::open(&disks.dir.join("refused.vmdk")).unwrap();
        input.open_disk_file(&OpenOptions::default()).unwrap();
        assert!(input.disk_file().is_none(), "{options}");
    }
    let extent = open(
        &disks.dir.join("refused-s001.vmdk"),
        &OpenOptions::default(),
    );
    let words = format!("{:#}", extent.err().unwrap());
    assert!(words.contains("one of several extents"), "{words}");
}

#[test]
fn chains_are_read_as_by_qemu() {
    let Some(mut disks) = Disks::new(3) else {
        return;
    };
    fs::create_dir(disks.dir.join("below")).unwrap();
    disks.img("convert -f raw -O qcow2 -c raw below/base");
    disks.img("convert -f raw -O vmdk raw base.vmdk");
    disks.img("convert -f raw -O vhdx raw base.vhdx");
    disks.img("convert -f raw -O vpc raw base.vpc");
    let lines = [
        "write -P 7 1000k 100k",
        "write -z 64k 64k",
        "write -P 8 2500k 4k",
    ];
    for (number, (base, options)) in [
        ("-b raw -F raw", ""),
        ("-b below/base -F qcow2", "-o extended_l2=on"),
        ("-b base.vmdk -F vmdk", "-o cluster_size=512"),
        ("-b base.vhdx -F vhdx", "-o cluster_size=2M"),
        ("-b base.vpc -F vpc", ""),
        ("-b top1 -F qcow2", "-o cluster_size=4k"),
    ]
    .into_iter()
    .enumerate()
    {
        let top = format!("top{number}");
        disks.img(&format!("create -q -f qcow2 {options} {base} {top}"));
        disks.same(&top, base);
        disks.io(&top, &lines);
        disks.same(&top, base);
    }
    let chain = open(&disks.dir.join("top5"), &OpenOptions::default()).unwrap();
    let files = chain
        .layers()
        .iter()
        .map(|layer| layer.path.file_name().unwrap());
    assert_eq!(files.collect::<Vec<_>>(), ["top5", "top1", "base"]);
    // Disks that are larger or smaller than the one behind them.
    for size in ["9M", "2M"] {
        disks.img(&format!("create -q -f qcow2 -b top5 -F qcow2 other {size}"));
        disks.same("other", size);
        disks.img("create -q -f qcow2 -b other -F qcow2 over 12M");
        disks.io("over", &["write -P 9 1M 1k"]);
        disks.same("over", size);
    }
}

/// Changes a byte or word of the tables, and mends the checksums that VHD has.
fn change(image: &mut [u8], rng: &mut Rng) {
    for _ in 0..=rng.below(3) {
        // Most tables are at the beginning, and tables are seldom zero.
        let end = if rng.chance(2) {
            1024
        } else {
            image.len().min(512 * KIB)
        };
        let mut at = rng.index(end);
        for _ in 0..50 {
            if image[at] != 0 {
                break;
            }
            at = rng.index(end);
        }
        match rng.below(4) {
            0 => image[at] ^= 1 << rng.below(8),
            1 => image[at] = rng.below(256) as u8,
            2 => image[at] = 0xff,
            _ => {
                let at = (at & !7).min(image.len() - 8);
                let word = rng.next_u64() >> rng.below(64);
                image[at..at + 8].copy_from_slice(&word.to_be_bytes());
            }
        }
    }
    if image.starts_with(b"conectix") {
        for (at, len, sum_at) in [(0, 512, 64), (512, 1024, 36)] {
            let header = &mut image[at..at + len];
            header[sum_at..sum_at + 4].fill(0);
            let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
            header[sum_at..sum_at + 4].copy_from_slice(&(!sum).to_be_bytes());
        }
    }
}

#[test]
fn changed_tables_are_refused_or_read_in_bounds() {
    let Some(mut disks) = Disks::new(4) else {
        return;
    };
    if !testkit::is_bounded(
        "disk_files::changed_tables_are_refused_or_read_in_bounds",
        600,
    ) {
        return;
    }
    let raw = fs::read(disks.dir.join("raw")).unwrap();
    fs::write(disks.dir.join("raw"), &raw[900 * KIB..2300 * KIB]).unwrap();
    let mut images = Vec::new();
    for (format, is_compressed, options) in [
        ("qcow2", false, "cluster_size=4k"),
        ("qcow2", true, "compat=0.10"),
        (
            "qcow2",
            true,
            "compression_type=zstd,extended_l2=on,cluster_size=16k",
        ),
        ("vmdk", false, "subformat=monolithicSparse"),
        ("vmdk", false, "subformat=streamOptimized"),
        ("vpc", false, "subformat=dynamic"),
        ("vhdx", false, "block_size=1M,log_size=1M"),
    ] {
        disks.convert((format, is_compressed, options), "image");
        images.push(fs::read(disks.dir.join("image")).unwrap());
    }
    let (mut opened, mut read, mut failed) = (0, 0, 0);
    for case in 0..testkit::cases(400) {
        let mut image = images[case % images.len()].clone();
        change(&mut image, &mut disks.rng);
        let mut input = Input::of(image);
        let Ok(()) = input.open_disk_file(&OpenOptions::default()) else {
            continue;
        };
        let Some(disk) = input.disk_file() else {
            continue;
        };
        opened += 1;
        let mut buf = vec![0; 128 * KIB];
        let size = disk.size().unwrap();
        for number in 0..12 {
            let len = size.min(buf.len() as u64);
            let at = match number {
                0..8 => number * len,
                _ => disks.rng.below(size - len + 1),
            };
            let at = at.min(size - len);
            match disk.read_exact_at(&mut buf[..len as usize], at) {
                Ok(()) => read += 1,
                Err(_) => failed += 1,
            }
        }
        _ = Container::of(input, &OpenOptions::default());
    }
    assert!(
        opened > 0 && read > 0 && failed > 0,
        "{opened}, {read}, {failed}"
    );
}
