//! EROFS images of metadata alone, over images that stay as they are.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};

use testkit::{Rng, TempDir, run, tool};

use super::json::{Json, object_of};
use super::mount_points::in_own_mounts;
use super::{ok, run_in};

/// A directory `src` with files of all sizes and forms.
pub(super) fn tree() -> TempDir {
    let dir = TempDir::new();
    let mut rng = Rng::new(40);
    let src = dir.join("src");
    fs::create_dir_all(src.join("d/e")).unwrap();
    let text = |len: usize| -> Vec<u8> {
        let words = (0..).flat_map(|n: u64| format!("{} words\n", n * n % 977).into_bytes());
        words.take(len).collect()
    };
    let mut noise = |len: usize| {
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        bytes
    };
    let write = |name: &str, content: &[u8]| fs::write(src.join(name), content).unwrap();
    for len in [1, 31, 33, 2000, 4095, 4096, 5000, 70_000, 131_072, 131_073] {
        write(&format!("d/text{len}"), &text(len));
        write(&format!("d/noise{len}"), &noise(len));
    }
    for number in 0..60 {
        write(&format!("d/e/{number}"), &text(300 + 97 * number));
    }
    write("empty", b"");
    write("text", &text(3_000_001));
    write("noise", &noise(1_500_001));
    write(
        "mixed",
        &[noise(300_000), text(900_000), noise(70_001)].concat(),
    );
    let sparse = fs::File::create(src.join("sparse")).unwrap();
    sparse.write_all_at(&text(5000), 0).unwrap();
    sparse.write_all_at(&noise(9000), 3 << 20).unwrap();
    sparse.set_len(5_000_001).unwrap();
    fs::hard_link(src.join("text"), src.join("d/hard")).unwrap();
    symlink("../text", src.join("d/sym")).unwrap();
    dir
}

/// Images of `src`: the command that makes one, the options of its index, and the smallest part of
/// the stored bytes, in a hundred, that is named where it is.
const IMAGES: [(&str, &str, u64); 11] = [
    ("a.squashfs --compress zstd:3", "", 98),
    ("b.squashfs --compress zstd:3 --block-size 1M", "", 98),
    ("c.squashfs --compress gzip:6", "", 95),
    ("d.squashfs --compress lz4", "", 98),
    ("e.squashfs --compress none", "", 98),
    ("f.btrfs --compress zstd:3", "", 95),
    ("g.btrfs --compress zlib:6", "", 90),
    ("h.btrfs --compress none", "", 95),
    // EROFS has no LZO: noise is named.
    ("j.btrfs --compress lzo", "", 30),
    (
        "i.btrfs --compress zstd:3 --metadata dup",
        "--min-kernel 6.12",
        95,
    ),
    // It ends within a block.
    ("j.squashfs --compress zstd:3 --no-padding", "", 98),
];

/// Makes the image, and its index `x.erofs`; its name, and the description of the index.
fn make(dir: &TempDir, (image, options, _): (&str, &str, u64)) -> (String, Json) {
    ok(dir, &format!("copy -q src {image}"));
    let name = image.split(' ').next().unwrap().to_owned();
    let (out, _) = ok(
        dir,
        &format!("index --json --overwrite {options} {name} x.erofs"),
    );
    (name, object_of(&out))
}

#[test]
fn an_index_shows_the_tree_of_the_image() {
    let dir = tree();
    for case in IMAGES {
        let (name, made) = make(&dir, case);
        let [named, stored] = ["named_bytes", "stored_bytes"].map(|key| made[key].number());
        assert!(
            named * 100 >= (named + stored) * case.2,
            "{case:?}: {named} {stored}"
        );
        ok(&dir, &format!("diff --device {name} x.erofs {name}"));
        let bytes = fs::metadata(dir.join(&name)).unwrap().len();
        assert_eq!(bytes.is_multiple_of(4096), !case.0.contains("--no-padding"));
        let (checked, _) = ok(&dir, &format!("check --device {name} x.erofs"));
        assert!(checked.starts_with("0 errors"), "{case:?}: {checked}");
        let first = fs::read(dir.join("x.erofs")).unwrap();
        let again = format!("index -q -j 1 --overwrite {} {name} x.erofs", case.1);
        ok(&dir, &again);
        assert!(first == fs::read(dir.join("x.erofs")).unwrap(), "{case:?}");
    }
}

/// Linux mounts the indexes with the images.
#[test]
#[ignore = "needs root"]
fn linux_mounts_indexes() {
    let dir = tree();
    let files = FILES.iter().filter(|case| case.0 != "e.tar.zst");
    let files = files.map(|&(made, min)| (made, "", min));
    for case in IMAGES.into_iter().chain(files) {
        let (name, _) = make(&dir, case);
        let script = format!(
            "mkdir -p m; loop=$(losetup -rf --show {name}); trap 'losetup -d $loop' EXIT\n\
             mount -t erofs -o ro,device=$loop x.erofs m\n\
             diff -r --no-dereference m src; $restow diff m {name}; umount m\n"
        );
        in_own_mounts(dir.path(), &script);
    }
    let script = "$restow copy -q src r.btrfs --add-device s.btrfs --data raid1; mkdir -p m\n\
        $restow index -q --overwrite --device s.btrfs r.btrfs x.erofs\n\
        one=$(losetup -rf --show r.btrfs); two=$(losetup -rf --show s.btrfs)\n\
        trap 'losetup -d $one $two' EXIT\n\
        mount -t erofs -o ro,device=$one,device=$two x.erofs m\n\
        diff -r --no-dereference m src; umount m\n";
    in_own_mounts(dir.path(), script);
}

/// Changed indexes, and changed images under them, that the check accepts: Linux shows the same, or
/// an error.
#[test]
#[ignore = "needs root"]
fn linux_reads_changed_indexes_alike() {
    let dir = TempDir::new();
    let (src, mut rng) = (dir.join("src"), Rng::new(41));
    fs::create_dir_all(src.join("d")).unwrap();
    for (name, lines) in [("large", 30_000), ("d/small", 300), ("tiny", 4)] {
        let lines: String = (0..lines).map(|n| format!("line {n}\n")).collect();
        fs::write(src.join(name), lines).unwrap();
    }
    let mut noise = vec![0; 9000];
    rng.fill(&mut noise);
    fs::write(src.join("noise"), noise).unwrap();
    let pairs = [
        ("a.squashfs", ""),
        ("b.squashfs", "--min-kernel 6.17"),
        ("c.btrfs", ""),
        ("d.btrfs", "--min-kernel 6.12"),
    ];
    let pairs = pairs.map(|(image, options)| {
        ok(&dir, &format!("copy -q src {image}"));
        ok(&dir, &format!("index -q {options} {image} {image}.erofs"));
        [image.to_owned(), format!("{image}.erofs")].map(|it| fs::read(dir.join(it)).unwrap())
    });
    let mut mounted = 0;
    for case in 0..testkit::cases(16) {
        let [mut image, mut index] = pairs[case % pairs.len()].clone();
        let bytes = if rng.chance(4) {
            &mut image
        } else {
            &mut index
        };
        // Behind the superblock and the tag.
        let at = 4160 + rng.index(bytes.len() - 4160);
        bytes[at] ^= 1 << rng.index(8);
        fs::write(dir.join("image"), image).unwrap();
        fs::write(dir.join("index"), index).unwrap();
        let check = ["check", "-q", "--device", "image", "index"];
        if run_in(dir.path(), check).0 != 0 {
            continue;
        }
        mounted += 1;
        let script = "mkdir -p m; loop=$(losetup -rf --show image); trap 'losetup -d $loop' EXIT\n\
             mount -t erofs -o ro,device=$loop index m || exit 0\n\
             code=0; $restow diff --device image index m > said 2>&1 || code=$?\n\
             umount m; if [ $code = 1 ]; then cat said; exit 1; fi\n";
        in_own_mounts(dir.path(), script);
    }
    assert!(mounted > 2, "{mounted}");
}

#[test]
fn an_index_refuses_other_images_and_changed_ones() {
    let dir = tree();
    for (image, other, words) in [
        ("a.squashfs", "other.squashfs", "its tables are others"),
        (
            "b.btrfs",
            "other.btrfs",
            "not the image that the index was made of",
        ),
    ] {
        ok(&dir, &format!("copy -q src {image}"));
        ok(&dir, &format!("copy -q src {other} --exclude d/text1"));
        ok(&dir, &format!("index -q {image} {image}.erofs"));
        ok(
            &dir,
            &format!("diff --device {image} {image}.erofs {image}"),
        );
        let image_len = fs::metadata(dir.join(image)).unwrap().len();
        let file = fs::File::options()
            .append(true)
            .open(dir.join(other))
            .unwrap();
        file.set_len(image_len.max(file.metadata().unwrap().len()))
            .unwrap();
        for command in ["check", "info", "ls"] {
            let line = format!("{command} --device {other} {image}.erofs");
            let (code, _, said) = run_in(dir.path(), line.split(' '));
            assert_eq!((code, said.contains(words)), (2, true), "{line}: {said}");
        }
        file.set_len(image_len - 4096).unwrap();
        let line = format!("check --device {other} {image}.erofs");
        let (code, _, said) = run_in(dir.path(), line.split(' '));
        assert_eq!((code, said.contains("and had")), (2, true), "{said}");
        // Without it, names are shown, and reading content names the missing device.
        ok(&dir, &format!("ls -lR {image}.erofs"));
        let (code, _, said) = run_in(dir.path(), ["cat", &format!("{image}.erofs"), "noise"]);
        assert_eq!((code, said.contains("--device")), (2, true), "{said}");
    }
    for (line, words) in [
        ("index src x.erofs", "an index shows"),
        (
            "index --min-kernel 6.12 a.squashfs x.erofs",
            "--min-kernel 6.15",
        ),
        ("index a.squashfs:d x.erofs", "a directory in an image"),
        (
            "index --device b.btrfs a.squashfs x.erofs",
            "--device does not apply",
        ),
        (
            "index --device b.btrfs a.squashfs b.btrfs x.erofs",
            "of one image",
        ),
        ("index --overwrite a.squashfs a.squashfs", "holds the data"),
        ("index a.squashfs a.squashfs.erofs", "exists"),
    ] {
        let (code, _, said) = run_in(dir.path(), line.split(' '));
        assert_eq!((code, said.contains(words)), (2, true), "{line}: {said}");
        assert!(!dir.join("x.erofs").exists());
    }
}

#[test]
fn later_images_lie_over_earlier_ones() {
    let dir = TempDir::new();
    for (name, files) in [("a", ["f", "gone", "both"]), ("b", ["g", "h", "both"])] {
        fs::create_dir_all(dir.join(name).join("d")).unwrap();
        for file in files {
            fs::write(
                dir.join(name).join("d").join(file),
                [name, file].concat().repeat(3000),
            )
            .unwrap();
        }
    }
    ok(&dir, "copy -q a a.squashfs");
    fs::write(dir.join("whiteout"), "d/gone c 0600 0 0 0 0\n").unwrap();
    ok(&dir, "copy -q b b.btrfs --add whiteout");
    ok(&dir, "index -q a.squashfs b.btrfs x.erofs");
    let devices = "--device a.squashfs --device b.btrfs";
    ok(&dir, &format!("check {devices} x.erofs"));
    let (listed, _) = ok(&dir, &format!("ls {devices} x.erofs d"));
    assert_eq!(
        listed.split_whitespace().collect::<Vec<_>>(),
        ["both", "f", "g", "h"]
    );
    for (file, from) in [("f", "a"), ("both", "b"), ("h", "b")] {
        let (content, _) = ok(&dir, &format!("cat {devices} x.erofs d/{file}"));
        assert_eq!(content, [from, file].concat().repeat(3000));
    }
    let swapped = "check --device b.btrfs --device a.squashfs x.erofs";
    let (code, _, said) = run_in(dir.path(), swapped.split(' '));
    assert_eq!(code, 2, "{said}");
}

#[test]
fn an_index_is_updated_only_if_an_image_changed() {
    let dir = tree();
    ok(&dir, "copy -q src a.btrfs");
    ok(&dir, "copy -q src/d b.squashfs");
    let line = "index --update --with b.squashfs=more/d a.btrfs x.erofs";
    ok(&dir, line);
    let first = fs::read(dir.join("x.erofs")).unwrap();
    let (_, said) = ok(&dir, line);
    assert!(said.contains("as they are"), "{said}");
    let (out, _) = ok(&dir, &line.replace("index", "index --json"));
    assert_eq!(object_of(&out)["current"], Json::Flag(true));
    let devices = "--device a.btrfs --device b.squashfs";
    ok(&dir, &format!("check {devices} x.erofs"));
    ok(&dir, "copy -q --with src/d=more/d src merged");
    ok(
        &dir,
        &format!("diff --ignore mtime {devices} x.erofs merged"),
    );
    ok(&dir, "copy -q --overwrite src a.btrfs --exclude d/text1");
    ok(&dir, line);
    assert!(first != fs::read(dir.join("x.erofs")).unwrap());
    ok(&dir, &format!("check {devices} x.erofs"));
    ok(&dir, "copy -q src y.erofs");
    for out in ["y.erofs", "b.squashfs"] {
        let line = format!("index --update a.btrfs {out}");
        let (code, _, said) = run_in(dir.path(), line.split(' '));
        assert_eq!((code, said.contains("not replaced")), (2, true), "{said}");
    }
    // Of two copies on two devices, one is named.
    ok(
        &dir,
        "copy -q src c.btrfs --add-device d.btrfs --data raid1",
    );
    let (out, _) = ok(&dir, "index --json --device d.btrfs c.btrfs r.erofs");
    assert_eq!(object_of(&out)["stored_bytes"].number(), 0);
    ok(&dir, "diff --device c.btrfs --device d.btrfs r.erofs src");
}

/// A new snapshot leaves the indexes of others valid; a change of the subvolume does not.
#[test]
#[ignore = "needs root"]
fn an_index_of_a_snapshot_outlives_new_snapshots() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let dir = tree();
    fs::File::create(dir.join("disk"))
        .unwrap()
        .set_len(512 << 20)
        .unwrap();
    run(mkfs.command().args(["-q", "-mdup"]).arg(dir.join("disk")));
    let script = r#"
mkdir m n; mount -o compress=zstd,loop disk m
btrfs -q subvolume create m/home; cp -a src/. m/home; cp --reflink=always m/home/text m/home/clone
btrfs -q subvolume snapshot -r m/home m/one; umount m
$restow index -q disk:one one.erofs; $restow index -q --min-kernel 6.12 disk:home home.erofs
mount -o compress=zstd,loop disk m
rm m/home/text; echo more >> m/home/mixed; btrfs -q subvolume snapshot -r m/home m/two; umount m
$restow check -q --device disk one.erofs; $restow diff --device disk one.erofs disk:one
loop=$(losetup -rf --show disk); trap 'losetup -d $loop' EXIT
mount -t erofs -o ro,device=$loop one.erofs n; cmp n/clone src/text
[ "$(diff -r --no-dereference n src)" = 'Only in n: clone' ]; umount n
$restow check --device disk home.erofs 2> words && exit 1; grep -q 'is of generation' words
"#;
    in_own_mounts(dir.path(), script);
}

/// Streams and archives of `src`: the command that makes one, and the smallest part of the stored
/// bytes, in a hundred, that is named where it is.
const FILES: [(&str, u64); 6] = [
    ("a.stream --compress none", 95),
    ("b.stream --compress zstd:3", 95),
    ("c.stream --compress zlib:6", 90),
    ("d.tar", 95),
    ("e.tar.zst", 95),
    ("f.stream --compress lzo", 30),
];

#[test]
fn streams_and_archives_are_indexed() {
    let dir = tree();
    for (made, named_min) in FILES {
        ok(&dir, &format!("copy -q src {made}"));
        let name = made.split(' ').next().unwrap();
        let (out, _) = ok(&dir, &format!("index --json --overwrite {name} x.idx"));
        let made = object_of(&out);
        let [named, stored] = ["named_bytes", "stored_bytes"].map(|key| made[key].number());
        assert!(
            named * 100 >= (named + stored) * named_min,
            "{name}: {named} {stored}"
        );
        ok(&dir, &format!("diff --device {name} x.idx {name}"));
        let (checked, _) = ok(&dir, &format!("check --device {name} x.idx"));
        assert!(checked.starts_with("0 errors"), "{name}: {checked}");
        // The names are in the index.
        assert_eq!(
            ok(&dir, "ls -R x.idx"),
            ok(&dir, &format!("ls -R {name}")),
            "{name}"
        );

        let mut bytes = fs::read(dir.join(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(dir.join("changed"), &bytes).unwrap();
        bytes.push(0);
        fs::write(dir.join("longer"), &bytes).unwrap();
        for (line, words) in [
            (
                "copy -q --device changed x.idx out",
                "changed since the index was made",
            ),
            (
                "ls --device longer x.idx",
                "not the file that the index was made of",
            ),
        ] {
            let (code, _, said) = run_in(dir.path(), line.split(' '));
            assert_eq!(code, 2, "{name}: {said}");
            // A compressed archive has errors of its own.
            assert!(
                said.contains(words) || name == "e.tar.zst",
                "{name}: {said}"
            );
        }
        assert!(!dir.join("out").exists());
    }
}
