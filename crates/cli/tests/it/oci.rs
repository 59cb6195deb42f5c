//! Container images as sources of every command, and their trees beside those of other programs.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use codec::{Packer, Wrapper};
use testkit::{ImageLayout, LAYER_RULES, TAR_LAYER, TempDir, Tool, cases, layer, run, tool};

use super::json::{object_of, objects_of};
use super::mount_points::in_own_mounts;
use super::{names, ok, restow, run_in, shown};

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const BASE: [&str; 5] = [
    "etc/",
    "etc/name=base",
    "etc/old=12345",
    "usr/",
    "usr/tool=tool",
];
const APP: [&str; 4] = [
    "etc/.wh.old=",
    "etc/name=app",
    "usr/link>tool",
    "usr/app=app@755",
];

fn gzip(archive: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut packer = Packer::new(Wrapper::Gzip, None).unwrap();
    packer.pack(archive, &mut packed).unwrap();
    packed
}

/// An image of layers compressed with gzip.
fn packed(layers: impl IntoIterator<Item = Vec<u8>>) -> ImageLayout {
    let layers = layers.into_iter().map(|it| (GZIP, gzip(&it), it));
    ImageLayout::default().with("latest", "amd64", layers)
}

/// A directory with an image in a layout, an archive of that, and one of `docker save`.
fn images() -> TempDir {
    let dir = TempDir::new();
    let layers = || [layer(BASE), layer(APP)];
    let layout = packed(layers());
    layout.write_to(&dir.join("app"));
    fs::write(dir.join("app.oci.tar"), layout.archive()).unwrap();
    let docker = ImageLayout::docker("app:1", layers().map(|it| (it.clone(), it)));
    fs::write(dir.join("save.tar"), docker.archive()).unwrap();
    fs::write(dir.join("save.tar.gz"), gzip(&docker.archive())).unwrap();
    dir
}

#[test]
fn every_command_reads_them() {
    let dir = images();
    let (listed, _) = ok(&dir, "ls -R oci:app:latest");
    assert_eq!(listed, "etc\netc/name\nusr\nusr/app\nusr/link\nusr/tool\n");
    assert_eq!(ok(&dir, "cat oci:app etc/name").0, "app");
    ok(&dir, "copy -q oci:app x.squashfs");
    for same in [
        "oci:app:latest",
        "oci-archive:app.oci.tar",
        "oci-archive:app.oci.tar:latest",
        "app.oci.tar",
        "docker-archive:save.tar",
        "docker-archive:save.tar:app:1",
        "save.tar",
        "save.tar.gz",
    ] {
        ok(&dir, &format!("diff x.squashfs {same}"));
        let (manifest, _) = ok(&dir, &format!("manifest {same}"));
        assert_eq!(manifest, ok(&dir, "manifest x.squashfs").0, "{same}");
    }
    // The archive itself, and a file of the whole name.
    assert!(ok(&dir, "ls save.tar:/").0.contains("manifest.json\n"));
    fs::write(dir.join("oci:app"), layer(["plain=1"])).unwrap();
    assert_eq!(ok(&dir, "ls oci:app").0, "plain\n");
    fs::remove_file(dir.join("oci:app")).unwrap();
    let mut pipe = restow(["ls", "-R", "-"]);
    let pipe = pipe.current_dir(dir.path());
    let input = fs::File::open(dir.join("save.tar")).unwrap();
    let (code, out, _) = shown(&pipe.stdin(Stdio::from(input)).output().unwrap());
    assert_eq!((code, out), (0, listed));
    let before = names(dir.path());
    ok(&dir, "copy -q save.tar tree");
    assert_eq!(fs::read(dir.join("tree/usr/app")).unwrap(), b"app");
    assert_eq!(names(dir.path()).len(), before.len() + 1);
}

#[test]
fn they_are_described() {
    let dir = images();
    let (words, _) = ok(&dir, "info oci:app");
    for part in [
        "format          container images, OCI layout\n",
        "image           latest, linux/amd64\n",
        "command         /bin/app\n",
        "environment     PATH=/bin\n",
        "label           a=b\n",
        &format!(" bytes, {GZIP}\n"),
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let info = object_of(&ok(&dir, "info --json save.tar").0);
    assert_eq!(info["format"].text(), "docker-archive");
    assert_eq!(info["images"].list()[0]["names"].list()[0].text(), "app:1");
    assert_eq!(info["layers"].list().len(), 2);
    // By hand: `etc/name` and `etc/old` of the first layer are hidden.
    let usage = object_of(&ok(&dir, "usage --json oci:app").0);
    let numbers = usage["by_layer"].list().iter().map(|layer| {
        ["files", "content_bytes", "hidden_files", "hidden_bytes"].map(|key| layer[key].number())
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [[3, 13, 2, 9], [2, 6, 0, 0]]);
    let (words, _) = ok(&dir, "ls -R --layers oci:app");
    let expected = "  1 etc\n  2 etc/name\n  1 usr\n  2 usr/app\n  2 usr/link\n  1 usr/tool\n";
    assert_eq!(words, expected);
    let (code, _, words) = run_in(dir.path(), ["ls", "--layers", "save.tar:/"]);
    assert!(
        code == 2 && words.contains("--layers does not apply"),
        "{words}"
    );
    let (words, _) = ok(&dir, "usage --bytes oci:app");
    assert!(
        words.contains("\nStored       Content      Hidden       Files    Layer\n"),
        "{words}"
    );
    assert!(
        words.contains(" 13           9            3        sha256:"),
        "{words}"
    );
    let differences = run_in(dir.path(), ["diff", "--json", "oci:app", "save.tar:/"]).1;
    assert!(objects_of(&differences).len() > 2);
}

#[test]
fn one_of_several_images_is_named() {
    let dir = TempDir::new();
    let image = |layout: ImageLayout, name: &str, architecture: &str| {
        let archive = layer([format!("is={name}-{architecture}")]);
        layout.with(name, architecture, [(TAR_LAYER, archive.clone(), archive)])
    };
    let layout = ["amd64", "arm64"]
        .iter()
        .fold(ImageLayout::default(), |layout, architecture| {
            image(image(layout, "a", architecture), "b", architecture)
        });
    layout.write_to(&dir.join("l"));
    fs::create_dir(dir.join("other")).unwrap();
    fs::write(dir.join("x.tar"), layer(["x=1"])).unwrap();
    fs::write(dir.join("oci.tar"), layout.archive()).unwrap();
    let save = ImageLayout::docker("app:1", [(layer(["x=1"]), layer(["x=1"]))]);
    fs::write(dir.join("save.tar"), save.archive()).unwrap();
    let chart = gzip(&layer(["chart=1"]));
    let chart = (
        "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
        chart.clone(),
        chart,
    );
    let chart = ImageLayout::default().with("chart", "amd64", [chart]);
    chart.write_to(&dir.join("chart"));
    let cat = |platform, place| ok(&dir, &format!("cat --platform {platform} {place} is")).0;
    assert_eq!(cat("linux/arm64", "oci:l:b"), "b-arm64");
    assert_eq!(cat("linux/amd64", "oci:l:a"), "a-amd64");
    let refused = |line: &str| {
        let (code, _, words) = run_in(dir.path(), line.split(' '));
        assert_eq!(code, 2, "{line}");
        words
    };
    for (line, part) in [
        (
            "ls --platform linux/amd64 oci:l",
            "several images; oci:DIR:NAME or oci-archive:FILE:NAME selects one of a, b",
        ),
        ("ls oci:l:c", "no image c; the images are a, b"),
        (
            "ls --platform linux/s390x oci:l:a",
            "no image for linux/s390x; --platform selects one of linux/amd64, linux/arm64",
        ),
        ("ls --platform linux oci:l:a", "must be OS/ARCH"),
        (
            "ls --platform linux/amd64 l",
            "not a container image: --platform does not apply",
        ),
        (
            "ls oci:none:a",
            "open oci:none:a: no such file or directory",
        ),
        (
            "ls oci:l:",
            "no image with an empty name; the images are a, b",
        ),
        ("ls oci:none", "open oci:none: no such file or directory"),
        (
            "ls oci:other",
            "no layout of container images: it has no oci-layout",
        ),
        (
            "ls oci-archive:save.tar",
            "an archive of `docker save`, which docker-archive: reads",
        ),
        (
            "ls docker-archive:oci.tar",
            "a layout of container images, which oci-archive: reads",
        ),
        (
            "ls docker-archive:x.tar",
            "no archive of `docker save`: it has no manifest.json",
        ),
        (
            "ls oci:chart",
            "a layer that is neither a tar archive nor a SquashFS or EROFS image",
        ),
        (
            "stream info oci:l",
            "a container image, which is read as a tree of files only",
        ),
        ("receive -f stream oci-archive:x", "a container image"),
    ] {
        let words = refused(line);
        assert!(words.contains(part), "{line}: {words}");
    }
    let info = object_of(&ok(&dir, "info --json oci:l").0);
    assert_eq!(info["images"].list().len(), 4);
    for (line, images) in [
        ("check --json oci:l", 4),
        ("check --json --platform linux/arm64 oci:l", 2),
        ("check --json --platform linux/arm64 oci:l:a", 1),
    ] {
        let summary = objects_of(&ok(&dir, line).0).remove(1);
        assert_eq!(summary["images"].number(), images, "{line}");
    }
    for (line, part) in [
        (
            "check --platform linux/s390x oci:l",
            "the layout has no such image",
        ),
        (
            "check --platform linux/s390x l",
            "--platform does not apply",
        ),
    ] {
        let words = refused(line);
        assert!(words.contains(part), "{line}: {words}");
    }
}

#[test]
fn nothing_is_written_from_a_damaged_image() {
    let dir = TempDir::new();
    let mut layout = packed([layer(BASE), layer(APP)]);
    let (path, bytes) = (layout.files.iter_mut())
        .find(|(_, bytes)| bytes.starts_with(&[0x1f, 0x8b]))
        .unwrap();
    let path = path.clone();
    // In the time of gzip's header, which changes no content.
    bytes[5] ^= 1;
    layout.write_to(&dir.join("app"));
    let (code, _, words) = run_in(dir.path(), ["copy", "oci:app", "x.squashfs"]);
    assert_eq!(code, 2);
    assert!(
        words.contains(&format!(
            "{path}: content of a blob does not have its digest"
        )),
        "{words}"
    );
    assert_eq!(names(dir.path()), ["app"]);
}

/// A layer whose members belong to the user with this number, and its group to the next one.
fn owned(mut archive: Vec<u8>, owner: u32) -> Vec<u8> {
    let headers = archive.chunks_exact_mut(512);
    for header in headers.filter(|header| &header[257..262] == b"ustar") {
        header[108..115].copy_from_slice(format!("{owner:07o}").as_bytes());
        header[116..123].copy_from_slice(format!("{:07o}", owner + 1).as_bytes());
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    archive
}

/// The layouts of all rules, with an owner for each layer, and one of 300 layers.
fn layouts_of_rules(dir: &Path) -> Vec<&'static str> {
    for rule in LAYER_RULES {
        let layers = rule.layers.iter().map(|members| layer(*members));
        let layers = layers
            .zip(1..)
            .map(|(layer, number)| owned(layer, 70_000 * number));
        packed(layers).write_to(&dir.join(rule.name));
    }
    let layers = (0..300).map(|number| {
        let before = number - 1;
        layer([
            format!("f{number}={number}"),
            format!(".wh.f{before}="),
            format!("all={number}"),
        ])
    });
    packed(layers).write_to(&dir.join("many"));
    LAYER_RULES
        .iter()
        .map(|rule| rule.name)
        .chain(["many"])
        .collect()
}

#[test]
fn layers_of_podman_are_read_through_their_tables() {
    let Some(skopeo) = tool("skopeo") else {
        return;
    };
    let dir = TempDir::new();
    let big: String = (0..200_000).map(|number| format!("{number} ")).collect();
    let layers = [
        layer([&*format!("big={big}"), "d/", "d/x=1"]),
        layer(["d/.wh.x=", "b^big"]),
    ];
    packed(layers).write_to(&dir.join("big"));
    layouts_of_rules(dir.path());
    let rules = LAYER_RULES.iter().map(|rule| rule.name).take(cases(6));
    for name in rules.chain(["big"]) {
        let (from, to) = (
            format!("oci:{name}:latest"),
            format!("oci:{name}.chunked:latest"),
        );
        let mut copy = in_dir(&skopeo, dir.path());
        copy.args(["--insecure-policy", "copy", "-q", "--dest-compress-format"]);
        run(copy.args(["zstd:chunked", &from, &to]));
        ok(&dir, &format!("diff {from} {to}"));
    }
    // Of the layer with the table, most is not read: it is not missed, until its file is.
    let chunked = dir.join("big.chunked/blobs/sha256");
    let blobs = names(&chunked).into_iter().map(|name| chunked.join(name));
    let blob = blobs
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let mut bytes = fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&blob, bytes).unwrap();
    ok(&dir, "ls -R oci:big.chunked");
    let (code, _, words) = run_in(dir.path(), ["copy", "oci:big.chunked", "x.squashfs"]);
    assert_eq!(code, 2);
    assert!(
        words.contains("in oci:big.chunked: part of a file at byte "),
        "{words}"
    );
    assert!(!names(dir.path()).contains(&"x.squashfs".to_owned()));
}

#[test]
#[ignore = "needs root"]
fn layers_are_merged_as_by_umoci() {
    let Some(umoci) = tool("umoci") else {
        return;
    };
    let dir = TempDir::new();
    for name in layouts_of_rules(dir.path()) {
        let (image, bundle) = (format!("{name}:latest"), format!("{name}.bundle"));
        run(in_dir(&umoci, dir.path()).args(["unpack", "--image", &image, &bundle]));
        ok(&dir, &format!("copy -q --to dir oci:{name} {name}.copy"));
        let (copy, rootfs) = (format!("{name}.copy"), format!("{bundle}/rootfs"));
        let (code, differences, words) = run_in(dir.path(), ["diff", &copy, &rootfs]);
        assert!(code < 2, "{name}: {words}");
        // Some directories have the time of unpacking there, such as those in no layer.
        for line in differences.lines() {
            let path = line.split_once(": time ").map(|(path, _)| path);
            let is_directory = |path| dir.join(&rootfs).join(path).is_dir();
            assert!(path.is_some_and(is_directory), "{name}: {line}");
        }
    }
}

/// Layers with all that a file can have: owners, modes, times, attributes, links and devices.
const OWNED_LAYERS: &str = r#"
umask 022; mkdir -p a/d/e a/run b/d; cd a; for f in plain owned d/set d/cap d/e/deep kept; do echo $f > $f; done
chown 1234:70000 owned d; chown 4000000000:4000000001 d/e; chmod 6755 d/set; chmod 1777 run; ln kept d/link; ln -s kept l
chown -h 5:6 l; mknod null c 1 3; mknod sda b 259 70000; mkfifo fifo; touch -d @1000000000.123456789 plain run d/e; touch -h -d @77 l
setfattr -n user.text -v value plain; setfattr -n user.binary -v 0x00ff0a3d plain; setfattr -n user.dir -v d d
setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 d/cap
setfattr -n trusted.of-root -v 1 plain; setfattr -n user.old -v 1 kept
cd ../b; echo new > owned; chown 70000:1234 owned; setfattr -n user.new -v 2 owned; echo more > d/more; touch d/.wh.set
chown 7:8 d; chmod 700 d; touch -d @5.5 d; echo over > l; mkdir fifo; cd ..
for layer in a b; do tar --xattrs --xattrs-include='*' --format=pax -C $layer -cf $layer.tar .; done
"#;

#[test]
#[ignore = "needs root"]
fn owners_attributes_and_devices_are_those_of_umoci_and_buildah() {
    let (Some(umoci), Some(buildah)) = (tool("umoci"), tool("buildah")) else {
        return;
    };
    if tool("tar").is_none() || tool("setfattr").is_none() {
        return;
    }
    let dir = TempDir::new();
    in_own_mounts(dir.path(), OWNED_LAYERS);
    packed(["a.tar", "b.tar"].map(|name| fs::read(dir.join(name)).unwrap()))
        .write_to(&dir.join("x"));
    run(in_dir(&umoci, dir.path()).args(["unpack", "--image", "x:latest", "bundle"]));
    let tree = mounted_by_buildah(&buildah, dir.path(), "x");
    ok(&dir, "copy -q oci:x x.tar");
    ok(&dir, "copy -q oci:x x.erofs");
    for source in ["oci:x", "x.tar", "x.erofs"] {
        ok(&dir, &format!("diff {source} bundle/rootfs"));
        let line = format!("diff --ignore mtime {source} {tree}");
        // There, a directory also keeps attributes that the upper layer does not have.
        let expected = "d: extended attribute user.dir none | \"d\"\n\
                        plain: extended attribute trusted.of-root \"1\" | none\n";
        assert_eq!(run_in(dir.path(), line.split(' ')).1, expected);
    }
    let (manifest, _) = ok(&dir, "manifest oci:x");
    for part in [
        "uid=4000000000 gid=4000000001",
        "mode=1777",
        "xattr.security.capability=0100",
        "xattr.trusted.of-root=31",
        "linux,259,70000",
    ] {
        assert!(manifest.contains(part), "{part}: {manifest}");
    }
}

/// Rules in which buildah 1.28 differs from the specification: it hides files of the same layer
/// that come before a whiteout, fails for a directory hidden in this way, and refuses equal
/// entries.
const NOT_AS_BY_BUILDAH: [&str; 3] = [
    "whiteout-before-and-behind-entries",
    "markers-in-the-lowest-layer",
    "equal-entries",
];

#[test]
#[ignore = "needs root"]
fn layers_are_merged_as_by_buildah() {
    let Some(buildah) = tool("buildah") else {
        return;
    };
    let dir = TempDir::new();
    let all = layouts_of_rules(dir.path()).into_iter();
    // Each of 300 layers is a copy of the tree there.
    let all = all.filter(|name| *name != "many" && !NOT_AS_BY_BUILDAH.contains(name));
    for name in all.take(cases(3)) {
        let tree = mounted_by_buildah(&buildah, dir.path(), name);
        let line = format!("diff --ignore mtime oci:{name} {tree}");
        let (code, differences, words) = run_in(dir.path(), line.split(' '));
        assert!(code < 2, "{name}: {words}");
        // A root in no layer has this mode there.
        assert!(
            ["", ".: mode 0755 | 0555\n"].contains(&&*differences),
            "{name}: {differences}"
        );
    }
}

/// The tree of an image as buildah unpacks it.
fn mounted_by_buildah(buildah: &Tool, dir: &Path, name: &str) -> String {
    let done = |words: &[&str]| {
        let stores = [
            "--root",
            "store",
            "--runroot",
            "run",
            "--storage-driver",
            "vfs",
        ];
        let output = run(in_dir(buildah, dir).args(stores).args(words));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let image = format!("oci:{name}:latest");
    let made = done(&["from", "--quiet", "--pull-always", &image]);
    done(&["mount", &made])
}

pub(super) fn in_dir(tool: &Tool, dir: &Path) -> std::process::Command {
    let mut command = tool.command();
    command.current_dir(dir);
    command
}

#[test]
fn skopeo_gives_the_same_image_in_every_layout() {
    let Some(skopeo) = tool("skopeo") else {
        return;
    };
    let dir = images();
    for to in [
        "oci:x:y",
        "oci-archive:x.oci.tar:y",
        "docker-archive:x.tar:y:z",
    ] {
        let words = ["--insecure-policy", "copy", "-q", "oci:app:latest", to];
        run(in_dir(&skopeo, dir.path()).args(words));
        ok(&dir, &format!("diff oci:app {to}"));
    }
    ok(&dir, "diff oci:app x.tar");
    ok(&dir, "diff oci:app x.oci.tar");
}
