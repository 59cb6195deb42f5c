//! Container images, written: their trees, digests and layers, as we and as other
//! programs read them.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::{ImageLayout, Rng, TAR_LAYER, TempDir, Tool, cases, layer, run, tool};

use super::json::{Json, object_of, objects_of};
use super::oci::in_dir;
use super::{names, ok, restow, run_in, shown};

/// A directory with a tree, `a`.
pub(super) fn tree_a() -> TempDir {
    let dir = TempDir::new();
    for folder in [
        "a/etc",
        "a/usr/bin",
        "a/usr/old/deep",
        "a/usr/kept",
        "a/swap",
    ] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    for (file, content) in [
        ("etc/name", "a"),
        ("etc/same", "same"),
        ("etc/mode", "mode"),
        ("usr/bin/tool", "tool"),
        ("usr/old/deep/file", "old"),
        ("usr/kept/first", "linked"),
        ("usr/gone", "gone"),
        ("swap/file", "in a directory"),
        ("plain", "a file"),
    ] {
        fs::write(dir.join("a").join(file), content).unwrap();
    }
    fs::set_permissions(
        dir.join("a/usr/bin/tool"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    symlink("tool", dir.join("a/usr/bin/link")).unwrap();
    fs::hard_link(dir.join("a/usr/kept/first"), dir.join("a/usr/kept/second")).unwrap();
    dir
}

/// Adds `b`, the same tree with every kind of change.
pub(super) fn change_to_b(dir: &TempDir) {
    ok(dir, "copy -q --no-owners a b");
    let at = |path: &str| dir.join("b").join(path);
    fs::write(at("etc/name"), "b, longer").unwrap();
    fs::set_permissions(at("etc/mode"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(at("usr/gone")).unwrap();
    fs::remove_dir_all(at("usr/old")).unwrap();
    fs::create_dir(at("usr/old")).unwrap();
    fs::write(at("usr/old/new"), "new").unwrap();
    fs::remove_dir_all(at("swap")).unwrap();
    fs::write(at("swap"), "now a file").unwrap();
    fs::remove_file(at("plain")).unwrap();
    fs::create_dir(at("plain")).unwrap();
    fs::write(at("plain/file"), "now in a directory").unwrap();
    fs::remove_file(at("usr/bin/link")).unwrap();
    symlink("../kept", at("usr/bin/link")).unwrap();
    fs::hard_link(at("usr/kept/first"), at("usr/kept/third")).unwrap();
}

/// The blobs of the layers of an image.
pub(super) fn layers(dir: &TempDir, image: &str) -> Vec<PathBuf> {
    let info = object_of(&ok(dir, &format!("info --json oci:{image}")).0);
    let layout = image.split(':').next().unwrap();
    let digests = info["layers"].list().iter().map(|it| it["digest"].text());
    let path = |digest: &str| {
        dir.join(layout)
            .join("blobs")
            .join(digest.replace(':', "/"))
    };
    digests.map(path).collect()
}

pub(super) fn digest(dir: &TempDir, line: &str) -> String {
    object_of(&ok(dir, line).0)["image"]["digest"]
        .text()
        .to_owned()
}

#[test]
fn an_image_has_the_tree_of_its_source_and_a_digest_of_its_own() {
    let dir = tree_a();
    let first = digest(&dir, "copy --json -j 1 a oci:l:app");
    ok(&dir, "diff a oci:l:app");
    ok(&dir, "check oci:l");
    assert_eq!(names(dir.path()), ["a", "l"]);
    assert_eq!(names(&dir.join("l")), ["blobs", "index.json", "oci-layout"]);
    // Layers are read in place, and by other programs as any archive.
    let [layer] = &layers(&dir, "l:app")[..] else {
        panic!("one layer");
    };
    let (listed, _) = ok(&dir, &format!("ls {}", layer.display()));
    assert_eq!(listed, "etc\nplain\nswap\nusr\n");
    // Neither the place, nor the threads, nor the time count.
    assert_eq!(first, digest(&dir, "copy --json -j 2 a oci:other:name"));
    let archive = digest(&dir, "copy --json a oci-archive:x.tar:app");
    assert_eq!(first, archive);
    ok(&dir, "diff oci:l:app oci-archive:x.tar:app");
    ok(&dir, "check oci-archive:x.tar");
    let bytes = fs::read(dir.join("x.tar")).unwrap();
    ok(&dir, "copy -q --overwrite --to oci-archive a x.tar:app");
    assert!(bytes == fs::read(dir.join("x.tar")).unwrap());
    for codec in ["gzip:9", "none", "zstd:19"] {
        ok(&dir, &format!("copy -q --compress {codec} a oci:l:{codec}"));
        ok(&dir, &format!("diff a oci:l:{codec}"));
    }
    ok(&dir, "check oci:l");
    let (code, _, words) = run_in(dir.path(), ["copy", "--compress", "xz", "a", "oci:l:xz"]);
    assert!(
        code == 2 && words.contains("take zstd, gzip or none"),
        "{words}"
    );
}

#[test]
fn no_time_of_a_file_is_later_than_the_epoch() {
    let dir = tree_a();
    let copy = |to: &str| {
        let mut copy = restow(["copy", "--json", "a", to]);
        let copy = copy
            .current_dir(dir.path())
            .env("SOURCE_DATE_EPOCH", "1000000000");
        let (code, out, words) = shown(&copy.output().unwrap());
        assert_eq!(code, 0, "{words}");
        object_of(&out)["image"]["digest"].text().to_owned()
    };
    let first = copy("oci:l:one");
    for file in ["a/etc/name", "a/usr"] {
        run(Command::new("touch").arg(dir.join(file)));
    }
    assert_eq!(first, copy("oci:l:two"));
    let config = info(&dir, "oci:l:one");
    assert_eq!(config["created"].text(), "2001-09-09T01:46:40Z");
}

pub(super) fn info(dir: &TempDir, image: &str) -> Json {
    object_of(&ok(dir, &format!("info --json {image}")).0)
}

#[test]
fn an_image_is_added_to_those_of_a_layout() {
    let dir = tree_a();
    change_to_b(&dir);
    ok(&dir, "copy -q a oci:l:a");
    ok(&dir, "copy -q b oci:l:b");
    let blob = layers(&dir, "l:a").remove(0);
    let before = fs::metadata(&blob).unwrap().ino();
    let (code, _, words) = run_in(dir.path(), ["copy", "b", "oci:l:a"]);
    assert!(
        code == 2 && words.contains("l has an image a; --overwrite replaces it"),
        "{words}"
    );
    ok(&dir, "diff a oci:l:a");
    // Stored blobs are kept, and those without a name do no harm.
    ok(&dir, "copy -q a oci:l:third/name:x");
    assert_eq!(fs::metadata(&blob).unwrap().ino(), before);
    ok(&dir, "copy -q --overwrite b oci:l:a");
    ok(&dir, "diff b oci:l:a");
    ok(&dir, "diff a oci:l:third/name:x");
    assert_eq!(info(&dir, "oci:l")["images"].list().len(), 3);
    // A damaged blob of the same name is replaced.
    fs::write(&blob, vec![0; fs::metadata(&blob).unwrap().len() as usize]).unwrap();
    ok(&dir, "copy -q a oci:l:again");
    ok(&dir, "diff a oci:l:again");
    ok(&dir, "check oci:l");
}

#[test]
fn other_directories_and_names_are_refused() {
    let dir = tree_a();
    fs::create_dir(dir.join("empty")).unwrap();
    fs::create_dir_all(dir.join("linked/blobs")).unwrap();
    symlink("../../a", dir.join("linked/blobs/sha256")).unwrap();
    for (line, part) in [
        (
            "copy a oci:a:x",
            "neither a layout of container images nor empty",
        ),
        ("copy a oci:a/plain:x", "a/plain is not a directory"),
        ("copy a oci:linked:x", "not a directory"),
        ("copy a oci:l:-x", "-x: not a name of an image"),
        ("copy a oci:none/l:x", "directory none does not exist"),
        (
            "copy --to tar a oci:l",
            "oci:l is a container image, not a tar archive",
        ),
        (
            "copy a docker-archive:x",
            "skopeo copy oci:DIR docker-archive:x",
        ),
        ("copy a docker://x", "skopeo copy oci:DIR ADDRESS"),
        ("copy --base a a oci:l:x", "--base does not apply"),
        ("copy --base oci:none:x a oci:l:x", "open oci:none:x"),
        ("copy --config a/plain a oci:l:x", "must be a JSON object"),
        (
            "copy --label x a oci:l:x",
            "--label does not apply to a container image",
        ),
        (
            "copy a oci-archive:/dev/stdout",
            "container image is not written sequentially",
        ),
        (
            "copy --to oci a -",
            "container image is not written sequentially",
        ),
    ] {
        let before = names(dir.path());
        let (code, _, words) = run_in(dir.path(), line.split(' '));
        assert!(code == 2 && words.contains(part), "{line}: {words}");
        assert_eq!(names(dir.path()), before, "{line}");
    }
    assert_eq!(names(&dir.join("a")), ["etc", "plain", "swap", "usr"]);
    ok(&dir, "copy -q a oci:empty");
    ok(&dir, "diff a oci:empty");
    let (code, _, words) = run_in(dir.path(), ["copy", "a", "oci:empty"]);
    assert!(
        code == 2 && words.contains("an image without a name"),
        "{words}"
    );
}

#[test]
fn a_layer_of_differences_on_its_base_makes_the_tree() {
    let dir = tree_a();
    change_to_b(&dir);
    ok(&dir, "copy -q a oci:l:a");
    for (to, image) in [
        ("oci:l:b", "oci:l:b"),
        ("oci:other:b", "oci:other:b"),
        ("oci-archive:x.tar:b", "oci-archive:x.tar"),
    ] {
        ok(&dir, &format!("copy -q --base oci:l:a b {to}"));
        ok(&dir, &format!("diff b {image}"));
        ok(&dir, &format!("check {image}"));
        assert_eq!(info(&dir, image)["layers"].list().len(), 2);
    }
    let layers = layers(&dir, "l:b");
    let (listed, _) = ok(&dir, &format!("ls -R {}", layers[1].display()));
    let listed: Vec<&str> = listed.lines().collect();
    let expected = [
        "etc",
        "etc/mode",
        "etc/name",
        "plain",
        "plain/file",
        "swap",
        "usr",
        "usr/.wh.gone",
        "usr/bin",
        "usr/bin/link",
        "usr/kept",
        "usr/kept/first",
        "usr/kept/second",
        "usr/kept/third",
        "usr/old",
        "usr/old/.wh.deep",
        "usr/old/new",
    ];
    assert_eq!(listed, expected);
    // Nothing has changed: nothing is added but the root.
    ok(&dir, "copy -q --base oci:l:b b oci:l:c");
    let top = self::layers(&dir, "l:c").remove(2);
    assert_eq!(ok(&dir, &format!("ls -R {}", top.display())).0, "");
}

/// The names of a file that lost one, or was divided, or was joined with another.
#[test]
fn changed_hard_links_are_as_in_the_tree() {
    let dir = TempDir::new();
    let trees: [&[&[&str]]; 4] = [
        &[&["a", "b"], &["c", "d"]],
        &[&["a", "c"], &["b", "d"]],
        &[&["a", "b", "c"], &["d"]],
        &[&["a"], &["b"], &["c", "d", "e"]],
    ];
    for (number, files) in trees.iter().enumerate() {
        let tree = dir.join(number.to_string());
        fs::create_dir(&tree).unwrap();
        for file in *files {
            fs::write(tree.join(file[0]), "equal").unwrap();
            for name in &file[1..] {
                fs::hard_link(tree.join(file[0]), tree.join(name)).unwrap();
            }
        }
    }
    for old in 0..trees.len() {
        ok(&dir, &format!("copy -q --all-time 0 {old} oci:l:{old}"));
        for new in 0..trees.len() {
            let base = format!("--base oci:l:{old} --all-time 0");
            ok(&dir, &format!("copy -q {base} {new} oci:l:{old}-{new}"));
            ok(
                &dir,
                &format!("diff --ignore mtime {new} oci:l:{old}-{new}"),
            );
        }
    }
}

#[test]
fn the_configuration_is_that_of_the_base_the_source_or_a_file() {
    let dir = TempDir::new();
    let archive = layer(["etc/", "etc/x=1"]);
    let layers = [(TAR_LAYER, archive.clone(), archive)];
    let layout = ImageLayout::default().with("app", "arm64", layers);
    layout.write_to(&dir.join("l"));
    fs::create_dir(dir.join("tree")).unwrap();
    let config = r#"{"architecture":"riscv64","os":"linux","x":[-1.5,null,true],
        "config":{"Cmd":["/f"],"Labels":{"é\"":"\u0001"}},"history":[{}],"rootfs":{}}"#;
    fs::write(dir.join("config"), config).unwrap();
    for (options, platform, command) in [
        ("oci:l:app", "linux/arm64", "/bin/app"),
        ("--with tree=more oci:l:app", "linux/arm64", "/bin/app"),
        ("--base oci:l:app tree", "linux/arm64", "/bin/app"),
        (
            "--base oci:l:app --config config tree",
            "linux/riscv64",
            "/f",
        ),
        ("--config config tree", "linux/riscv64", "/f"),
        ("--platform linux/arm/v7 tree", "linux/arm/v7", ""),
    ] {
        ok(&dir, &format!("copy -q --overwrite {options} oci:l:new"));
        let info = info(&dir, "oci:l:new");
        assert_eq!(info["selected"]["platform"].text(), platform, "{options}");
        let (words, _) = ok(&dir, "info oci:l:new");
        let is_there =
            command.is_empty() || words.contains(&format!("command         {command}\n"));
        assert!(is_there, "{options}: {words}");
        ok(&dir, "check oci:l:new");
    }
    // Fields that are not known stay.
    ok(&dir, "copy -q --config config tree oci:l:odd");
    let blobs = fs::read_dir(dir.join("l/blobs/sha256")).unwrap();
    let texts = blobs.map(|it| fs::read(it.unwrap().path()).unwrap());
    let kept = r#""x":[-1.5,null,true],"config":{"Cmd":["/f"],"Labels":{"é\"":"\u0001"}}"#;
    let is_kept = |text: Vec<u8>| String::from_utf8_lossy(&text).contains(kept);
    assert!(texts.into_iter().any(is_kept));
}

#[test]
fn names_that_hide_others_are_losses() {
    let dir = tree_a();
    fs::create_dir(dir.join("a/etc/.wh.dir")).unwrap();
    fs::write(dir.join("a/etc/.wh.dir/file"), "").unwrap();
    fs::write(dir.join("a/.wh..wh..opq"), "").unwrap();
    let _socket = UnixListener::bind(dir.join("a/socket")).unwrap();
    for (base, name) in [("", "x"), ("--base oci:l:x ", "y")] {
        let line = format!("copy {base}a oci:l:{name}");
        let (code, _, words) = run_in(dir.path(), line.split_whitespace());
        assert_eq!(code, 1, "{words}");
        for part in [
            "a/.wh..wh..opq: not copied: names with .wh. hide files in container images",
            "a/etc/.wh.dir: not copied",
            "a/socket: not copied: tar archives cannot hold sockets",
        ] {
            assert!(words.contains(part), "{words}");
        }
        ok(&dir, &format!("check oci:l:{name}"));
    }
    let (differences, _) = (run_in(dir.path(), ["diff", "a", "oci:l:y"]).1, ());
    assert_eq!(differences.lines().count(), 3, "{differences}");
}

#[test]
fn damage_in_a_layout_is_found() {
    let dir = tree_a();
    change_to_b(&dir);
    ok(&dir, "copy -q a oci:l:a");
    ok(&dir, "copy -q --base oci:l:a b oci:l:b");
    let (words, _) = ok(&dir, "check oci:l");
    assert!(
        words.starts_with("0 errors in 2 images, 2 layers, "),
        "{words}"
    );
    let summary = objects_of(&ok(&dir, "check --json oci:l:b").0).remove(1);
    assert_eq!(summary["layers"].number(), 2);
    let found = |change: &dyn Fn(&Path)| {
        let path = layers(&dir, "l:a").remove(0);
        let sound = fs::read(&path).unwrap();
        change(&path);
        let (code, out, words) = run_in(dir.path(), ["check", "oci:l"]);
        assert_eq!(code, 1, "{words}");
        fs::write(&path, sound).unwrap();
        out
    };
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    let words = found(&flip);
    assert!(
        words.contains("content of a blob does not have its digest"),
        "{words}"
    );
    assert!(words.contains("1 error in 2 images"), "{words}");
    let cut = |path: &Path| {
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(9)
            .unwrap();
    };
    let words = found(&cut);
    assert!(
        words.contains("blob does not have the length in its descriptor"),
        "{words}"
    );
    let words = found(&|path| fs::remove_file(path).unwrap());
    assert!(words.contains("no such file or directory"), "{words}");
    // A configuration with the digest of another archive: one that is well-formed all the same.
    let (archive, other) = (layer(["x=1"]), layer(["x=2"]));
    let wrong = ImageLayout::default().with("w", "amd64", [(TAR_LAYER, archive, other)]);
    wrong.write_to(&dir.join("w"));
    let (code, out, _) = run_in(dir.path(), ["check", "oci:w"]);
    assert_eq!(code, 1);
    assert!(
        out.contains("unpacked layer does not have its digest in the configuration"),
        "{out}"
    );
    let (code, _, words) = run_in(dir.path(), ["check", "oci:w:none"]);
    assert!(code == 2 && words.contains("no such image"), "{words}");
}

/// Makes a tree of a few names: directories, links, and files with one name or more. Some names are
/// long or not UTF-8.
fn random_tree(rng: &mut Rng, root: &Path) {
    let long = "x".repeat(255);
    let choices: [&[u8]; 6] = [b"a", b"b", b"c", b"-d", b"\xff", long.as_bytes()];
    fs::create_dir(root).unwrap();
    let mut dirs = vec![root.to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    for _ in 0..rng.below(25) {
        let name = choices[rng.index(choices.len())];
        let path = dirs[rng.index(dirs.len())].join(OsStr::from_bytes(name));
        if fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        match rng.below(8) {
            0..3 => {
                fs::create_dir(&path).unwrap();
                dirs.push(path.clone());
            }
            3 => symlink(["a", "b"][rng.index(2)], &path).unwrap(),
            4 if !files.is_empty() => {
                fs::hard_link(&files[rng.index(files.len())], &path).unwrap();
                continue;
            }
            _ => {
                fs::write(&path, ["one", "two"][rng.index(2)]).unwrap();
                files.push(path.clone());
            }
        }
        if rng.chance(4) && !path.is_symlink() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).unwrap();
        }
    }
}

/// Compared by restow, and as root with the tree that umoci unpacks.
fn layers_make_random_trees(umoci: Option<&Tool>, count: u64) {
    let dir = TempDir::new();
    for case in 0..count {
        let mut rng = Rng::new(case);
        for name in ["old", "new"] {
            random_tree(&mut rng, &dir.join(format!("{name}{case}")));
            let to = format!("{name}{case} oci:l:{name}{case}");
            let base = if name == "new" {
                format!("--base oci:l:old{case} ")
            } else {
                String::new()
            };
            ok(
                &dir,
                &format!("copy -q --compress gzip --all-time 0 {base}{to}"),
            );
        }
        let compare = format!("diff --ignore mtime new{case}");
        ok(&dir, &format!("{compare} oci:l:new{case}"));
        if let Some(umoci) = umoci {
            let (image, bundle) = (format!("l:new{case}"), format!("bundle{case}"));
            run(in_dir(umoci, dir.path()).args(["unpack", "--image", &image, &bundle]));
            ok(&dir, &format!("{compare} {bundle}/rootfs"));
        }
    }
    ok(&dir, "check oci:l");
}

#[test]
fn a_layer_makes_any_tree_of_any_other() {
    layers_make_random_trees(None, cases(8));
}

#[test]
#[ignore = "needs root"]
fn umoci_makes_any_tree_of_any_other() {
    if let Some(umoci) = tool("umoci") {
        layers_make_random_trees(Some(&umoci), cases(4));
    }
}

/// Each adds its item to the index, none takes another's away.
#[test]
fn images_are_added_at_the_same_time() {
    let dir = tree_a();
    ok(&dir, "copy -q a oci:l:first");
    let add = |number: u32| {
        let mut copy = restow(["copy", "-q", "a", &format!("oci:l:{number}")]);
        copy.current_dir(dir.path()).spawn().unwrap()
    };
    let running: Vec<Child> = (0..8).map(add).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(info(&dir, "oci:l")["images"].list().len(), 9);
    ok(&dir, "check oci:l");
}

/// More than the disk holds: only the files from before are left.
#[test]
#[ignore = "needs root"]
fn a_full_disk_leaves_a_layout_as_it_was() {
    let dir = tree_a();
    ok(&dir, "copy -q a l");
    fs::write(dir.join("a/noise"), Rng::new(1).bytes(3 << 20)).unwrap();
    for folder in ["disk", "disk/empty"] {
        let mount = ["-t", "tmpfs", "-o", "size=2m", "tmpfs"];
        fs::create_dir(dir.join(folder)).unwrap();
        if folder == "disk" {
            run(Command::new("mount").args(mount).arg(dir.join("disk")));
        }
    }
    ok(&dir, "copy -q l oci:disk/l:old");
    let before = (
        names(&dir.join("disk")),
        names(&dir.join("disk/l/blobs/sha256")),
    );
    let index = fs::read(dir.join("disk/l/index.json")).unwrap();
    let mut found = Vec::new();
    for to in [
        "oci:disk/l:new",
        "--overwrite oci:disk/l:old",
        "oci:disk/new",
        "oci:disk/empty",
        "oci-archive:disk/new.tar",
        "--base oci:disk/l:old oci:disk/l:new",
    ] {
        let line = format!("copy -q a {to}");
        let copied = run_in(dir.path(), line.split(' '));
        let after = (
            names(&dir.join("disk")),
            names(&dir.join("disk/l/blobs/sha256")),
        );
        found.push((line, copied, after, names(&dir.join("disk/empty"))));
    }
    let index_after = fs::read(dir.join("disk/l/index.json")).unwrap();
    run(Command::new("umount").arg(dir.join("disk")));
    for (line, (code, _, words), after, empty) in found {
        assert_eq!(code, 2, "{line}: {words}");
        assert!(
            words.to_lowercase().contains("no space left on device"),
            "{line}: {words}"
        );
        assert_eq!((&after, empty.len()), (&before, 0), "{line}");
    }
    assert_eq!(index, index_after);
}

/// Layouts of strangers, into which an image is put.
#[test]
fn an_image_is_not_added_to_a_layout_that_means_harm() {
    let dir = tree_a();
    ok(&dir, "copy -q a oci:l:a");
    let index = dir.join("l/index.json");
    for text in ["[]", "{}", r#"{"manifests":{}}"#, "{", &"[".repeat(100_000)] {
        fs::write(&index, text).unwrap();
        let (code, _, words) = run_in(dir.path(), ["copy", "a", "oci:l:b"]);
        assert!(code == 2 && words.contains("index.json"), "{text}: {words}");
        assert_eq!(fs::read(&index).unwrap(), text.as_bytes());
    }
    // Fields and items that are not known stay.
    let text = r#"{"x":1.50,"manifests":[{"y":[]},7,{"annotations":{"org.opencontainers.image.ref.name":3}}]}"#;
    fs::write(&index, text).unwrap();
    ok(&dir, "copy -q a oci:l:b");
    let kept = String::from_utf8(fs::read(&index).unwrap()).unwrap();
    let (start, _) = text.split_at(text.len() - 2);
    assert!(kept.starts_with(start), "{kept}");
}

#[test]
fn skopeo_copies_an_image_and_keeps_its_digest() {
    let Some(skopeo) = tool("skopeo") else {
        return;
    };
    let dir = tree_a();
    change_to_b(&dir);
    ok(&dir, "copy -q a oci:l:a");
    let image = digest(&dir, "copy --json --base oci:l:a b oci:l:b");
    let skopeo = |words: &[&str]| {
        let mut command = in_dir(&skopeo, dir.path());
        let output = run(command.arg("--insecure-policy").args(words));
        String::from_utf8(output.stdout).unwrap()
    };
    skopeo(&["copy", "-q", "oci:l:b", "dir:d"]);
    skopeo(&["copy", "-q", "dir:d", "oci:back:b"]);
    assert_eq!(info(&dir, "oci:back:b")["digest"].text(), image);
    ok(&dir, "check oci:back");
    ok(&dir, "diff b oci:back:b");
    assert!(skopeo(&["inspect", "oci:l:b"]).contains(&image));
    // Docker's formats have no zstd.
    ok(&dir, "copy -q --compress gzip b oci-archive:x.tar:b");
    let (from, to) = ("oci-archive:x.tar:b", "docker-archive:save.tar:b:1");
    skopeo(&["copy", "-q", from, to]);
    ok(&dir, "diff b save.tar");
    let Some(registry) = tool("docker-registry") else {
        return;
    };
    let (registry, port) = Registry::start(&registry, dir.path());
    let place = format!("docker://127.0.0.1:{port}/b");
    skopeo(&["copy", "-q", "--dest-tls-verify=false", "oci:l:b", &place]);
    skopeo(&[
        "copy",
        "-q",
        "--src-tls-verify=false",
        &place,
        "oci:fetched:b",
    ]);
    drop(registry);
    assert_eq!(info(&dir, "oci:fetched:b")["digest"].text(), image);
    ok(&dir, "diff b oci:fetched:b");
}

/// A registry of this machine, which ends with the test.
struct Registry(Child);

impl Registry {
    /// Starts it, and gives its port.
    fn start(tool: &Tool, dir: &Path) -> (Registry, String) {
        let config = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/registry}}}}\n\
             http: {{addr: \"127.0.0.1:0\"}}\n",
            dir.display()
        );
        fs::write(dir.join("registry.yml"), config).unwrap();
        let mut command = in_dir(tool, dir);
        let command = command.args(["serve", "registry.yml"]);
        let child = command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut registry = Registry(child.spawn().unwrap());
        let words = BufReader::new(registry.0.stderr.take().unwrap());
        let mut lines = words.lines().map(|line| line.unwrap());
        let listening = lines.find_map(|line| {
            let (_, rest) = line.split_once("listening on 127.0.0.1:")?;
            Some(rest.split('"').next()?.to_owned())
        });
        // A full pipe must not end it.
        std::thread::spawn(move || lines.for_each(drop));
        (registry, listening.expect("it says where it listens"))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root"]
fn umoci_makes_the_tree_of_an_image_and_of_a_layer_on_its_base() {
    let Some(umoci) = tool("umoci") else {
        return;
    };
    let dir = tree_a();
    change_to_b(&dir);
    // umoci 0.4.7 reads no zstd.
    ok(&dir, "copy -q --compress gzip a oci:l:a");
    ok(&dir, "copy -q --compress gzip --base oci:l:a b oci:l:b");
    for name in ["a", "b"] {
        let (image, bundle) = (format!("l:{name}"), format!("{name}.bundle"));
        run(in_dir(&umoci, dir.path()).args(["unpack", "--image", &image, &bundle]));
        let (one, other) = (
            format!("manifest {name}"),
            format!("manifest {bundle}/rootfs"),
        );
        assert_eq!(ok(&dir, &one).0, ok(&dir, &other).0);
    }
    // It adds a layer of its own to ours.
    fs::write(dir.join("b.bundle/rootfs/more"), "more").unwrap();
    run(in_dir(&umoci, dir.path()).args(["repack", "--image", "l:c", "b.bundle"]));
    ok(&dir, "check oci:l:c");
    ok(&dir, "diff --ignore mtime b.bundle/rootfs oci:l:c");
}

#[test]
#[ignore = "needs root"]
fn buildah_makes_the_tree_of_a_layer_on_its_base_and_runs_a_program_in_it() {
    let Some(buildah) = tool("buildah") else {
        return;
    };
    let dir = tree_a();
    change_to_b(&dir);
    ok(&dir, "copy -q a oci:l:a");
    let Some(cc) = tool("cc") else {
        return;
    };
    let program = "int puts(const char *); int main(void) { return puts(\"it runs\") < 0; }\n";
    fs::write(dir.join("program.c"), program).unwrap();
    run(in_dir(&cc, dir.path()).args(["-static", "-o", "b/program", "program.c"]));
    ok(&dir, "copy -q --base oci:l:a b oci:l:b");
    let done = |words: &[&str]| {
        let stores = "--root store --runroot state --storage-driver vfs".split(' ');
        let output = run(in_dir(&buildah, dir.path()).args(stores).args(words));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let made = done(&["from", "--quiet", "--pull-always", "oci:l:b"]);
    let tree = done(&["mount", &made]);
    let (code, differences, words) = run_in(dir.path(), ["diff", "b", &tree]);
    assert!(code < 2, "{words}");
    // The root gets the time of unpacking.
    let is_of_root = |line: &str| line.starts_with(".: time ");
    assert!(differences.lines().all(is_of_root), "{differences}");
    let ran = done(&["run", "--isolation", "chroot", &made, "/program"]);
    assert_eq!(ran, "it runs");
    done(&["rm", &made]);
}
