//! Layers of container images that are SquashFS or EROFS images, as we and as Linux read them.

use std::fs;
use std::os::unix::fs::symlink;

use testkit::{ImageLayout, TAR_LAYER, TempDir, layer, run, tool};

use super::json::object_of;
use super::mount_points::in_own_mounts;
use super::oci::in_dir;
use super::oci_write::{change_to_b, digest, info, layers, tree_a};
use super::{names, ok, run_in};

const STACKER: &str = "application/vnd.stacker.image.layer.squashfs";
const CONTAINERD: &str = "application/vnd.erofs.layer.v1";

#[test]
fn a_layer_has_the_tree_of_its_source_and_a_digest_of_its_own() {
    let dir = tree_a();
    for (format, media_type) in [
        ("squashfs", &*format!("{STACKER}+zstd")),
        ("erofs", CONTAINERD),
    ] {
        let copy = format!("copy --json --layer {format} a");
        let first = digest(&dir, &format!("{copy} oci:l:{format}"));
        ok(&dir, &format!("diff a oci:l:{format}"));
        assert_eq!(
            first,
            digest(&dir, &format!("{copy} -j 1 oci:other:{format}"))
        );
        let archive = format!("oci-archive:{format}.tar:x");
        assert_eq!(first, digest(&dir, &format!("{copy} {archive}")));
        ok(&dir, &format!("diff a {archive}"));
        ok(&dir, &format!("check {archive}"));
        assert_eq!(
            info(&dir, &archive)["layers"].list()[0]["media_type"].text(),
            media_type
        );
        // The layer is that image, and no other file.
        let [blob] = &layers(&dir, &format!("l:{format}"))[..] else {
            panic!("one layer");
        };
        ok(&dir, &format!("copy -q a x.{format}"));
        assert!(fs::read(blob).unwrap() == fs::read(dir.join(format!("x.{format}"))).unwrap());
    }
    ok(&dir, "check oci:l");
    let options = "--layer squashfs --compress gzip:1 --block-size 8K";
    ok(&dir, &format!("copy -q {options} a oci:l:gzip"));
    ok(&dir, "copy -q --layer erofs --compress none a oci:l:none");
    for name in ["gzip", "none"] {
        ok(&dir, &format!("diff a oci:l:{name}"));
    }
    let gzip = info(&dir, "oci:l:gzip");
    let media_type = gzip["layers"].list()[0]["media_type"].text();
    assert_eq!(media_type, format!("{STACKER}+gzip"));
    for (options, part) in [
        (
            "--block-size 8K",
            "--block-size does not apply to a container image",
        ),
        ("--layer tar --align 4K", "--align does not apply"),
        ("--layer erofs --offset 4096", "--offset does not apply"),
        (
            "--layer squashfs --offset 4096",
            "--offset does not apply to a container image",
        ),
        ("--layer erofs --verity", "--verity does not apply"),
        (
            "--layer erofs --compress xz",
            "an EROFS image has zstd, gzip, lz4 or none",
        ),
    ] {
        let line = format!("copy {options} a oci:l:x");
        let (code, _, words) = run_in(dir.path(), line.split(' '));
        assert!(code == 2 && words.contains(part), "{line}: {words}");
    }
    let (code, _, words) = run_in(dir.path(), ["copy", "--layer", "erofs", "a", "x.tar"]);
    assert!(
        code == 2 && words.contains("--layer does not apply"),
        "{words}"
    );
}

#[test]
fn compressed_data_is_kept() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("a")).unwrap();
    let text: String = (0..60_000).map(|number| format!("{number} ")).collect();
    fs::write(dir.join("a/text"), text).unwrap();
    ok(&dir, "copy -q --compress zstd:3 a x.squashfs");
    ok(
        &dir,
        "copy -q --compress zstd:3 --min-kernel 6.15 a x.erofs",
    );
    for (from, layer) in [
        ("x.squashfs", "squashfs"),
        ("x.erofs", "erofs --min-kernel 6.15"),
        ("oci:l:squashfs", "squashfs"),
    ] {
        let name = layer.split(' ').next().unwrap();
        let line = format!("copy --json --overwrite --layer {layer} {from} oci:l:{name}");
        let kept = object_of(&ok(&dir, &line).0)["kept"]["extents"].number();
        assert!(kept > 0, "{line}");
        ok(&dir, &format!("diff a oci:l:{name}"));
    }
    // And on the way back.
    let copied = object_of(&ok(&dir, "copy --json oci:l:squashfs y.squashfs").0);
    assert!(copied["kept"]["extents"].number() > 0);
    ok(&dir, "diff a y.squashfs");
}

#[test]
fn a_layer_of_differences_makes_the_tree() {
    let dir = tree_a();
    change_to_b(&dir);
    ok(&dir, "copy -q a oci:l:tar");
    for format in ["squashfs", "erofs"] {
        ok(&dir, &format!("copy -q --layer {format} a oci:l:{format}"));
        for base in ["tar", format] {
            let image = format!("{format}-on-{base}");
            let from = format!("--base oci:l:{base}");
            ok(
                &dir,
                &format!("copy -q --layer {format} {from} b oci:l:{image}"),
            );
            // Those of the archive have nanoseconds.
            let times = if image == "squashfs-on-tar" {
                "--ignore mtime"
            } else {
                ""
            };
            ok(&dir, &format!("diff {times} b oci:l:{image}"));
            let top = layers(&dir, &format!("l:{image}")).remove(1);
            let (listed, _) = ok(&dir, &format!("ls -lR {}", top.display()));
            let devices = listed.lines().filter(|line| line.starts_with("c---------"));
            let hidden: Vec<&str> = devices
                .filter_map(|line| line.split(' ').next_back())
                .collect();
            assert_eq!(hidden, ["usr/gone", "usr/old/deep"], "{listed}");
        }
        // Back again: no device hides a file.
        let (on, to) = (format!("{format}-on-{format}"), format!("{format}-a"));
        ok(
            &dir,
            &format!("copy -q --layer {format} --base oci:l:{on} a oci:l:{to}"),
        );
        ok(&dir, &format!("diff a oci:l:{to}"));
        let line = format!("copy --base oci:l:{format} b oci:l:x");
        let (code, _, words) = run_in(dir.path(), line.split(' '));
        let part = "its layers are images of file systems: --layer squashfs or --layer erofs";
        assert!(code == 2 && words.contains(part), "{words}");
    }
    let (words, _) = ok(&dir, "check oci:l");
    assert!(words.starts_with("0 errors in 9 images, "), "{words}");
    let (words, _) = ok(&dir, "ls --layers oci:l:erofs-on-tar usr");
    assert_eq!(words, "  2 bin\n  2 kept\n  2 old\n");
    let (words, _) = ok(&dir, "ls --layers oci:l:erofs-on-tar etc");
    assert_eq!(words, "  2 mode\n  2 name\n  1 same\n");
    // By hand, of `b` on `a`: what is hidden is the old `etc/name` and `etc/mode`, `usr/gone`,
    // `usr/old/deep/file`, `swap/file`, `plain`, and `usr/kept/first`, which got a name more.
    for image in ["erofs-on-erofs", "squashfs-on-tar"] {
        let usage = object_of(&ok(&dir, &format!("usage --json oci:l:{image}")).0);
        let sums: Vec<_> = (usage["by_layer"].list().iter())
            .map(|it| {
                ["files", "content_bytes", "hidden_files", "hidden_bytes"]
                    .map(|key| it[key].number())
            })
            .collect();
        let all = 1 + 4 + 4 + 4 + 3 + 6 + 4 + 14 + 6;
        let hidden = all - "same".len() as u64 - "tool".len() as u64;
        let new = 9 + 4 + 3 + 10 + 18 + 6;
        assert_eq!(sums, [[9, all, 7, hidden], [6, new, 0, 0]], "{image}");
    }
}

/// Layers that other programs made are known by their type, and also without it.
#[test]
fn layers_of_other_programs_are_read() {
    let (Some(mksquashfs), Some(mkfs)) = (tool("mksquashfs"), tool("mkfs.erofs")) else {
        return;
    };
    let dir = tree_a();
    run(in_dir(&mksquashfs, dir.path()).args([
        "a",
        "a.sqfs",
        "-quiet",
        "-no-progress",
        "-comp",
        "gzip",
    ]));
    run(in_dir(&mkfs, dir.path()).args(["-zlz4", "a.erofs", "a"]));
    ok(&dir, "copy -q a.erofs a.tar.zst");
    let [squashfs, erofs] = ["a.sqfs", "a.erofs"].map(|name| fs::read(dir.join(name)).unwrap());
    let packed = |bytes: &[u8]| {
        let mut packed = Vec::new();
        let mut packer = codec::Packer::new(codec::Wrapper::Zstd, None).unwrap();
        packer.pack(bytes, &mut packed).unwrap();
        packed
    };
    let layout = [
        (STACKER, squashfs.clone(), squashfs.clone()),
        (
            "application/vnd.sylabs.image.layer.v1.squashfs",
            squashfs.clone(),
            squashfs.clone(),
        ),
        (CONTAINERD, erofs.clone(), erofs.clone()),
        (
            "application/vnd.erofs.layer.v1+zstd",
            packed(&erofs),
            erofs.clone(),
        ),
        (
            "application/vnd.oci.image.layer.v1.erofs",
            erofs.clone(),
            erofs.clone(),
        ),
        ("application/vnd.example", erofs.clone(), erofs.clone()),
        ("application/vnd.example", squashfs.clone(), squashfs),
    ]
    .into_iter()
    .zip(0..)
    .fold(ImageLayout::default(), |layout, (layer, number)| {
        layout.with(&number.to_string(), "amd64", [layer])
    });
    layout.write_to(&dir.join("l"));
    for number in 0..7 {
        ok(&dir, &format!("diff a oci:l:{number}"));
        ok(&dir, &format!("check oci:l:{number}"));
    }
}

#[test]
fn layers_that_are_damaged_or_no_layers_are_refused() {
    let dir = tree_a();
    ok(&dir, "copy -q a x.squashfs");
    ok(&dir, "copy -q a x.erofs");
    let [squashfs, erofs] = ["x.squashfs", "x.erofs"].map(|name| fs::read(dir.join(name)).unwrap());
    let tar = layer(["a=1"]);
    let cut = |bytes: &[u8]| bytes[..bytes.len() / 8].to_vec();
    let own = |media_type, bytes: Vec<u8>| (media_type, bytes.clone(), bytes);
    for (name, layers, part) in [
        ("cut1", vec![own(STACKER, cut(&squashfs))], "blobs/sha256/"),
        (
            "cut2",
            vec![own(CONTAINERD, erofs[..1200].to_vec())],
            "erofs image ends before the tables of its superblock",
        ),
        (
            "cut3",
            vec![own(CONTAINERD, cut(&erofs))],
            "layer does not have the file system that its media type says",
        ),
        (
            "order",
            vec![own(CONTAINERD, erofs.clone()), own(TAR_LAYER, tar.clone())],
            "a tar archive on top of a layer that is a file system image",
        ),
        (
            "noise",
            vec![own("application/vnd.example", b"noise".repeat(1000))],
            "a layer that is neither a tar archive nor a SquashFS or EROFS image",
        ),
        (
            "encrypted",
            vec![own(
                "application/vnd.erofs.layer.v1+encrypted",
                b"noise".repeat(1000),
            )],
            "a layer that is neither",
        ),
        (
            "digest",
            vec![(CONTAINERD, erofs.clone(), squashfs)],
            "unpacked layer does not have its digest in the configuration",
        ),
    ] {
        ImageLayout::default()
            .with("x", "amd64", layers)
            .write_to(&dir.join(name));
        let line = format!("copy -q oci:{name} {name}.tar");
        let (code, _, words) = run_in(dir.path(), line.split(' '));
        assert!(code == 2 && words.contains(part), "{name}: {code} {words}");
        assert!(
            !names(dir.path()).contains(&format!("{name}.tar")),
            "{name}"
        );
        let (code, out, words) = run_in(dir.path(), ["check", &format!("oci:{name}")]);
        // Damage is found; formats that are not read are named.
        let expected = if words.contains("not supported") {
            2
        } else {
            1
        };
        assert_eq!(code, expected, "{name}: {out} {words}");
    }
}

#[test]
fn annotations_of_the_layers_of_a_base_stay() {
    let Some(skopeo) = tool("skopeo") else {
        return;
    };
    let dir = tree_a();
    change_to_b(&dir);
    ok(&dir, "copy -q a oci:l:a");
    let chunked = [
        "--dest-compress-format",
        "zstd:chunked",
        "oci:l:a",
        "oci:c:a",
    ];
    run(in_dir(&skopeo, dir.path())
        .args(["--insecure-policy", "copy", "-q"])
        .args(chunked));
    ok(&dir, "copy -q --base oci:c:a b oci:c:b");
    let manifest = |image: &str| {
        let hex = info(&dir, image)["digest"].text().replace(':', "/");
        fs::read_to_string(dir.join("c/blobs").join(hex)).unwrap()
    };
    let annotations = |text: &str| {
        let at = text.find("annotations").unwrap();
        text[at..].split('}').next().unwrap().to_owned()
    };
    assert_eq!(
        annotations(&manifest("oci:c:b")),
        annotations(&manifest("oci:c:a"))
    );
    ok(&dir, "check oci:c");
    ok(&dir, "diff b oci:c:b");
}

/// Linux mounts the layers, and overlayfs the stack of them, as the merged tree.
#[test]
#[ignore = "needs root"]
fn a_mount_of_the_layers_is_the_merged_tree() {
    if tool("setfattr").is_none() || tool("mksquashfs").is_none() {
        return;
    }
    let dir = tree_a();
    change_to_b(&dir);
    symlink("kept", dir.join("a/usr/link")).unwrap();
    let words = r#"
stack() {
    layers=; number=0
    for digest in $($restow info --json oci:l:$1 | tr , '\n' | sed -n 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/p' | tail -n +2); do
        number=$((number+1)); mkdir -p m$1/$number; mount -o ro l/blobs/sha256/$digest m$1/$number
        layers=m$1/$number${layers:+:$layers}
    done
    mkdir m$1/all; mount -t overlay -o ro,lowerdir=$layers none m$1/all
    $restow manifest m$1/all > linux; $restow manifest oci:l:$1 > ours; diff linux ours
}
# Attributes of overlayfs in the tree are those of files, and devices 0, 0 hide files.
mkdir a/opaque b/opaque; echo 1 > a/opaque/x; echo 2 > b/opaque/y; setfattr -n trusted.overlay.opaque -v y b/opaque
chown -R 7:8 b/usr/bin; setfattr -n user.x -v 1 b/etc/mode
for format in squashfs erofs; do
    $restow copy -q --layer $format a oci:l:$format-a
    $restow copy -q --layer $format --base oci:l:$format-a b oci:l:$format-b
    $restow diff b oci:l:$format-b
    stack $format-b; [ $(wc -l < ours) -gt 15 ]; ! grep -q 'path=opaque/x' ours
done
mknod b/zero c 0 0
$restow copy -q --layer erofs b oci:l:lost 2> words && exit 1
grep -q 'b/zero: not copied: devices 0, 0 hide files in container images' words
# Layers of mksquashfs, as stacker makes them: of upper directories.
mkdir -p low/{dir,gone} up/dir; echo 1 | tee low/dir/a low/gone/x low/kept > low/dir/b; echo 3 > up/dir/c
mknod up/gone c 0 0; setfattr -n trusted.overlay.opaque -v y up/dir
for name in low up; do mksquashfs $name $name.sqfs -quiet -no-progress; done
"#;
    in_own_mounts(dir.path(), words);
    let type_of = format!("{STACKER}+gzip+verity");
    let layers = ["low.sqfs", "up.sqfs"].map(|name| {
        let bytes = fs::read(dir.join(name)).unwrap();
        (&*type_of, bytes.clone(), bytes)
    });
    ImageLayout::default()
        .with("x", "amd64", layers)
        .write_to(&dir.join("s"));
    assert_eq!(ok(&dir, "ls -R oci:s").0, "dir\ndir/c\nkept\n");
    let usage = object_of(&ok(&dir, "usage --json oci:s").0);
    let layer = &usage["by_layer"].list()[0];
    let hidden = ["hidden_files", "hidden_bytes"].map(|key| layer[key].number());
    assert_eq!(hidden, [3, 6]);
}

#[test]
fn skopeo_copies_layers_as_they_are() {
    let Some(skopeo) = tool("skopeo") else {
        return;
    };
    let dir = tree_a();
    change_to_b(&dir);
    for format in ["squashfs", "erofs"] {
        ok(
            &dir,
            &format!("copy -q --layer {format} a oci:l:a-{format}"),
        );
        let line = format!("copy --json --layer {format} --base oci:l:a-{format} b oci:l:{format}");
        let image = digest(&dir, &line);
        for (from, to) in [
            (format!("oci:l:{format}"), format!("dir:d-{format}")),
            (format!("dir:d-{format}"), format!("oci:back:{format}")),
        ] {
            run(in_dir(&skopeo, dir.path()).args(["--insecure-policy", "copy", "-q", &from, &to]));
        }
        assert_eq!(
            info(&dir, &format!("oci:back:{format}"))["digest"].text(),
            image
        );
        ok(&dir, &format!("diff b oci:back:{format}"));
    }
}

/// The upper directory of a mount, on the image that was below it.
#[test]
#[ignore = "needs root"]
fn an_upper_directory_becomes_a_layer_on_its_base() {
    if tool("umoci").is_none() || tool("setfattr").is_none() {
        return;
    }
    let dir = tree_a();
    let words = r#"
$restow copy -q --compress gzip a oci:l:a; mkdir t; mount -t tmpfs none t; mkdir t/up t/work m
$restow copy -q oci:l:a t/low; mount -t overlay -o lowerdir=t/low,upperdir=t/up,workdir=t/work,redirect_dir=on none m
cd m; rm usr/gone; rm -r usr/old; mkdir usr/old; echo new > usr/old/new; mv usr/kept usr/moved; rm -r swap
echo file > swap; rm plain; mkdir plain; chmod 711 etc; chown 5:6 etc/mode; setfattr -n user.x -v 1 etc/name; cd ..
$restow manifest m > linux
for layer in tar erofs; do
    compress=; [ $layer = tar ] && compress='--compress gzip'
    $restow copy -q $compress --layer $layer --base oci:l:a 'overlay:oci\:l\:a:t/up' oci:l:up-$layer
    $restow manifest oci:l:up-$layer > ours; diff linux ours
done
umoci unpack --image l:up-tar bundle 2> words; $restow manifest bundle/rootfs > theirs; diff linux theirs
# Only changes are in the layer.
digest=$($restow info --json oci:l:up-erofs | tr , '\n' | sed -n 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/p' | tail -n 1)
$restow ls -R l/blobs/sha256/$digest > names; grep -q usr/moved/first names; ! grep -qE 'etc/same|usr/bin' names
"#;
    in_own_mounts(dir.path(), words);
}
