//! Hostile SquashFS images through the program: said what is wrong, bounded memory and time, and
//! nothing is written outside the target.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use codec::{Encoder, Settings};
use testkit::{Part, RawSquashfs, Rng, TempDir, cases, sample_tree, squashfs_vectors};

use crate::{names, run_in, shown};

/// Runs the program with 400 MiB of addresses and 20 seconds of processor time.
fn bounded(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let limits = "ulimit -v 409600 && ulimit -t 20 && exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limits, env!("CARGO_BIN_EXE_restow")]);
    // One heap for all threads: each would reserve 64 MiB of addresses.
    command.args(args).env("MALLOC_ARENA_MAX", "1");
    let output = command.current_dir(dir).stdin(Stdio::null()).output();
    shown(&output.unwrap())
}

fn encoder(settings: Option<Settings>) -> impl Fn(&[u8]) -> Option<Vec<u8>> {
    let encoder = settings.map(|settings| RefCell::new(Encoder::new(&settings).unwrap()));
    move |content| {
        let mut encoded = vec![0; content.len().checked_sub(1)?];
        let len = (encoder.as_ref()?.borrow_mut()).compress(&mut encoded, content)?;
        encoded.truncate(len);
        Some(encoded)
    }
}

/// A directory with an image, and beside it one that no image has any business in.
fn jail() -> TempDir {
    let dir = TempDir::new();
    fs::create_dir(dir.join("outside")).unwrap();
    fs::write(dir.join("outside/file"), "theirs").unwrap();
    fs::create_dir(dir.join("jail")).unwrap();
    dir
}

fn assert_untouched(dir: &TempDir, what: &str) {
    assert_eq!(names(dir.path()), ["jail", "outside"], "{what}");
    assert_eq!(names(&dir.join("outside")), ["file"], "{what}");
    assert_eq!(fs::read(dir.join("outside/file")).unwrap(), b"theirs");
}

/// Cases of the export table.
const EXPORTS: [&str; 3] = [
    "2^32 inodes",
    "export table where the id table is",
    "exports in the data",
];

/// Lists, copies and checks an image; gives what is wrong with how that ends.
fn through_all_doors(dir: &TempDir, image: &[u8], refused: Option<&str>) -> Vec<String> {
    let jail = dir.join("jail");
    fs::write(jail.join("image"), image).unwrap();
    let mut wrong = Vec::new();
    let mut demand = |holds: bool, door: &str, (code, words): (i32, &str)| {
        if !holds {
            wrong.push(format!("{door}: {code} {words}"));
        }
    };
    let (code, _, words) = bounded(&jail, &["ls", "-lR", "image"]);
    let listed = code == 0 || code == 2 && words.contains("image");
    demand(listed, "ls", (code, &words));
    if refused == Some("a directory is in two places") {
        demand(words.contains("in two places"), "ls", (code, &words));
    }
    for to in ["out", "out.tar"] {
        let args: &[&str] = match to {
            "out" => &["copy", "-q", "--no-sync", "--no-owners", "image", to],
            _ => &["copy", "-q", "image", to],
        };
        let (code, _, words) = bounded(&jail, args);
        let as_it_should = match refused {
            Some(refused) => {
                // Without its magic number an image is not recognised, or as another one.
                let unknown = refused.contains("not a squashfs superblock")
                    && (words.contains("unknown format") || words.contains("big-endian"));
                // The file is made as large as it says before its content is looked for.
                let too_large = refused.contains("more blocks") && words.contains("too large");
                code == 2 && (words.contains(refused) || unknown || too_large)
            }
            // An ordinary user cannot make devices or trusted attributes.
            None => (0..2).contains(&code),
        };
        demand(as_it_should, to, (code, &words));
        let made = names(&jail).contains(&to.to_owned());
        demand(made == (code != 2), to, (code, "and what is there"));
        let _ = fs::remove_dir_all(jail.join("out"));
        let _ = fs::remove_file(jail.join("out.tar"));
    }
    let (code, _, words) = bounded(&jail, &["check", "image"]);
    let checked = (0..3).contains(&code) && (refused.is_none() || code != 0);
    demand(checked, "check", (code, &words));
    assert_eq!(names(&jail), ["image"]);
    assert_untouched(dir, "a case");
    wrong
}

#[test]
fn every_case_is_refused_in_its_words_and_writes_nothing_elsewhere() {
    let dir = jail();
    let mut wrong = Vec::new();
    for (codec, settings) in [(1, None), (6, Some(Settings::Zstd { level: 1 }))] {
        let encode = encoder(settings);
        for vector in squashfs_vectors(codec, &encode) {
            // A copy looks up no names, which is all that an index is for, and no inodes by number.
            let is_unused = vector.name.starts_with("an index") || EXPORTS.contains(&vector.name);
            let refused = vector.refused.filter(|_| !is_unused);
            let found = through_all_doors(&dir, &vector.image, refused);
            let name = vector.name;
            wrong.extend(
                found
                    .iter()
                    .map(|words| format!("{name}, {settings:?}, {words}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn images_with_random_changes_do_no_harm() {
    let dir = jail();
    let mut rng = Rng::new(9);
    let encode = encoder(Some(Settings::Zstd { level: 1 }));
    let sample = sample_tree(6, &encode);
    for n in 0..cases(60) {
        let image = changed(&mut rng, &sample);
        let jail = dir.join("jail");
        fs::write(jail.join("image"), &image).unwrap();
        for args in [
            &["ls", "-lR", "image"][..],
            &["copy", "-q", "--no-sync", "image", "out"],
            &["copy", "-q", "image", "out.tar"],
            &["check", "image"],
        ] {
            let (code, _, words) = bounded(&jail, args);
            assert!((0..3).contains(&code), "{n}, {args:?}: {code} {words}");
        }
        let _ = fs::remove_dir_all(jail.join("out"));
        let _ = fs::remove_file(jail.join("out.tar"));
        assert_eq!(names(&jail), ["image"], "{n}");
        assert_untouched(&dir, &n.to_string());
    }
}

/// An image with some bytes of some records changed before they were stored.
fn changed(rng: &mut Rng, sample: &RawSquashfs) -> Vec<u8> {
    let image = sample.build(&mut |part, bytes| {
        let one_in = match part {
            Part::Inode(path) | Part::Block(path, _) if path.starts_with("big/") => 900,
            Part::Inode(_) | Part::Listing(_) | Part::Block(..) => 40,
            _ => 20,
        };
        if rng.chance(one_in) && !bytes.is_empty() {
            let at = rng.index(bytes.len());
            match rng.below(3) {
                0 => bytes[at] = rng.below(256) as u8,
                1 => bytes[at] ^= 1 << rng.below(8),
                _ => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
            }
        }
    });
    image.bytes
}

#[test]
fn links_planted_where_the_tree_goes_are_not_followed() {
    let dir = jail();
    let jail = dir.join("jail");
    let encode = encoder(None);
    fs::write(jail.join("image"), sample_tree(1, &encode).sound().bytes).unwrap();
    fs::create_dir(jail.join("out")).unwrap();
    for (name, target) in [
        ("sub", "../../outside"),
        ("link-b", "../../outside"),
        ("mixed", "../../outside/file"),
        ("empty", "../../outside/new"),
        ("zone", "../../outside/new"),
    ] {
        symlink(target, jail.join("out").join(name)).unwrap();
    }
    // What is there is not written into; what takes its place is whole before.
    let args = ["copy", "-q", "--no-sync", "--no-owners", "image", "out"];
    let (code, _, words) = run_in(&jail, args);
    assert!(code == 2 && words.contains("out"), "{words}");
    assert_untouched(&dir, "refused");
    let with = |option| {
        [
            "copy",
            "-q",
            option,
            "--no-sync",
            "--no-owners",
            "image",
            "out",
        ]
    };
    let (code, _, words) = run_in(&jail, with("--merge"));
    assert!(
        code == 1 && words.contains("out/sub: not merged"),
        "{words}"
    );
    assert_untouched(&dir, "merged");
    assert!(jail.join("out/sub").is_symlink());
    let args = with("--replace");
    let (code, _, words) = run_in(&jail, args);
    assert!(code < 2, "{words}");
    assert_untouched(&dir, "replaced");
    assert!(jail.join("out/sub/deep/file").is_file());
    assert!(jail.join("out/mixed").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read(jail.join("out/link-b/loot")).unwrap(), b"loot");
}

/// Little that becomes a lot meets the limit that was set, before anything is written.
#[test]
fn a_bomb_meets_its_limit() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    for n in 0..16u8 {
        // Nothing that is a hole, and no file equal to another.
        fs::write(dir.join(format!("src/{n}")), vec![n + 1; 4 << 20]).unwrap();
    }
    for image in ["bomb.sqfs", "bomb.btrfs"] {
        let copy = |max: &str, to: &str| {
            let mut args = vec!["copy", "-q", "--max-content", max, image, to];
            if to == "out" {
                args.extend(["--no-sync", "--no-owners"]);
            }
            bounded(dir.path(), &args)
        };
        let (code, _, words) = run_in(dir.path(), ["copy", "-q", "src", image]);
        assert_eq!((code, words.as_str()), (0, ""));
        let bytes = fs::metadata(dir.join(image)).unwrap().len();
        assert!(bytes < 16 << 20, "{image}: {bytes}");
        for to in ["out", "out.tar", "out.sqfs", "out.btrfs"] {
            let (code, _, words) = copy("63M", to);
            assert_eq!(code, 2, "{image} to {to}: {words}");
            assert!(words.contains("more content than is allowed"), "{words}");
            assert!(!dir.join(to).exists(), "{image} to {to}");
        }
        let (code, _, words) = copy("64M", "out");
        assert_eq!(code, 0, "{words}");
        fs::remove_dir_all(dir.join("out")).unwrap();
    }
}
