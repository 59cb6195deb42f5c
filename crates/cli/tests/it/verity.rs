//! Hash trees of dm-verity, beside those of veritysetup.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;

use testkit::{Rng, TempDir, run, tool};

use super::json::object_of;
use super::{ok, run_in};

const FORMATS: [&str; 3] = ["squashfs", "erofs", "btrfs"];

/// A directory with the tree `src`.
fn tree(bytes: usize) -> TempDir {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/small"), "content").unwrap();
    fs::write(dir.join("src/large"), Rng::new(1).bytes(bytes)).unwrap();
    dir
}

fn flip(dir: &TempDir, name: &str, at: u64) {
    let mut options = fs::File::options();
    let file = options.read(true).write(true).open(dir.join(name)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn trees_are_those_of_veritysetup() {
    let Some(veritysetup) = tool("veritysetup") else {
        return;
    };
    for format in FORMATS {
        for (bytes, salt) in [(100_000, None), (1_000_000, Some("00ff1A")), (3, Some("-"))] {
            let dir = tree(bytes);
            let salt = salt.map_or(String::new(), |salt| format!(" --verity-salt {salt}"));
            let line = format!("copy --json --verity=hash{salt} src a.{format}");
            let made = object_of(&ok(&dir, &line).0);
            let made = &made["verity"];
            let field = |name: &str| made[name].text().to_owned();
            let (root, salt, uuid) = (field("root_hash"), field("salt"), field("uuid"));
            let salt = if salt.is_empty() { "-" } else { &salt };
            let given = [format!("--salt={salt}"), format!("--uuid={uuid}")];
            let image = format!("a.{format}");
            let setup = |words: &[&str]| {
                let mut setup = veritysetup.command();
                setup.current_dir(dir.path()).args(words);
                setup
            };
            let theirs = run(setup(&["format", &image, "theirs"]).args(&given));
            let theirs = String::from_utf8(theirs.stdout).unwrap();
            assert!(theirs.contains(&root), "{format} {bytes}: {theirs}");
            // Byte for byte, with the superblock.
            let read = |name: &str| fs::read(dir.join(name)).unwrap();
            assert!(read("hash") == read("theirs"), "{format} {bytes}");
            run(&mut setup(&["verify", &image, "hash", &root]));

            let line = format!("copy --overwrite --json --verity src both.{format}");
            let made = object_of(&ok(&dir, &line).0);
            let made = &made["verity"];
            let (root, offset) = (made["root_hash"].text(), made["hash_offset"].number());
            let both = format!("both.{format}");
            let offset = format!("--hash-offset={offset}");
            let verify = ["verify", &both, &both, root, &offset];
            run(&mut setup(&verify));
            flip(&dir, &both, 100);
            assert!(!setup(&verify).output().unwrap().status.success());
        }
    }
}

#[test]
fn what_differs_from_the_root_hash_is_named_and_not_read() {
    for format in FORMATS {
        let dir = tree(700_000);
        let line = format!("copy --json --verity src a.{format}");
        let made = object_of(&ok(&dir, &line).0);
        let made = &made["verity"];
        let (root, offset) = (made["root_hash"].text(), made["hash_offset"].number());
        let check = format!("check --root-hash {root} a.{format}");
        let copy = format!("copy -q --root-hash {root} a.{format} x.tar");
        let fails = |line: &str, code: i32, part: &str| {
            let (found, out, words) = run_in(dir.path(), line.split_whitespace());
            let words = out + &words;
            assert_eq!(found, code, "{format}: {line}: {words}");
            assert!(words.contains(part), "{format}: {line}: {words}");
        };
        ok(&dir, &check);
        ok(&dir, &copy);
        ok(&dir, "diff src x.tar");
        fs::remove_file(dir.join("x.tar")).unwrap();
        // A block of data that is read, then the lower level of the tree, and the upper.
        let data = if format == "btrfs" { 64 << 10 } else { 1024 };
        let block = "block differs from its hash in the tree of dm-verity";
        let top = "hash tree of dm-verity differs from the root hash";
        let lower = "block of the hash tree of dm-verity differs from its hash";
        for (at, words) in [
            (data + 8, block),
            (offset + 8192 + 5, lower),
            (offset + 4096, top),
            (offset + 90, "dm-verity"),
        ] {
            flip(&dir, &format!("a.{format}"), at);
            fails(&check, 1, words);
            let json = check.replace("check", "check --json");
            fails(&json, 1, r#"{"errors":1,"#);
            fails(&copy, 2, "dm-verity");
            assert!(!dir.join("x.tar").exists());
            flip(&dir, &format!("a.{format}"), at);
        }
        // Something behind the tree, as on a device.
        let file = fs::File::options()
            .append(true)
            .open(dir.join(format!("a.{format}")));
        file.unwrap().write_all(&[7; 5000]).unwrap();
        fails(&check, 2, "--hash-offset");
        let check = format!("{check} --hash-offset {offset}");
        ok(&dir, &check);
        let other = root.replace(&root[..1], if root.starts_with('0') { "1" } else { "0" });
        fails(&check.replace(root, &other), 1, top);
        // Other names of the option, and where it does not apply.
        let at_last = format!("copy -q --verity=hash src b.{format}");
        ok(&dir, &at_last);
        fails(&at_last, 2, "exist");
        fails("copy --verity src c.tar", 2, "--verity does not apply");
        fails(&format!("ls --root-hash {root} src"), 2, "a directory");
        fails(
            &format!("ls --root-hash {root} b.{format}"),
            2,
            "--hash-tree",
        );
        fails(
            &format!("diff --root-hash {root} src a.{format}"),
            2,
            "a directory",
        );
        ok(
            &dir,
            &format!("diff --root-hash {root} --hash-offset {offset} a.{format} b.{format}"),
        );
        let listed = format!("ls --root-hash {root} --hash-tree hash a.{format}");
        // The same tree and salt, but for the UUID of the image.
        assert_eq!(run_in(dir.path(), listed.split_whitespace()).0, 0);
        ok(
            &dir,
            &format!("check --root-hash {root} --verity hash b.{format}"),
        );
    }
}

/// Each bit of the superblock that counts, and a tree that is cut.
#[test]
fn a_damaged_superblock_is_refused() {
    let dir = tree(50_000);
    let made = object_of(&ok(&dir, "copy --json --verity=hash src a.erofs").0);
    let root = made["verity"]["root_hash"].text().to_owned();
    let check = format!("check --root-hash {root} --hash-tree hash a.erofs");
    let fails = |part: &str| {
        let (code, out, words) = run_in(dir.path(), check.split_whitespace());
        assert!(matches!(code, 1 | 2), "{code} {out}{words}");
        let words = out + &words;
        assert!(words.contains(part), "{code} {words}");
    };
    // The UUID and the end of the salt are of no importance for the hashes.
    let of_importance = (0..16).chain(32..39).chain(64..82).chain(88..120);
    for at in of_importance {
        flip(&dir, "hash", at);
        // With fewer blocks, the hashes are the same, and the image ends early.
        let part = if at == 72 {
            "shorter than it says"
        } else {
            "dm-verity"
        };
        fails(part);
        flip(&dir, "hash", at);
    }
    let hash = fs::File::options()
        .write(true)
        .open(dir.join("hash"))
        .unwrap();
    hash.write_all_at(&u64::MAX.to_le_bytes(), 72).unwrap();
    fails("dm-verity");
    hash.write_all_at(&13_u64.to_le_bytes(), 72).unwrap();
    hash.set_len(4096).unwrap();
    fails("dm-verity");
}
