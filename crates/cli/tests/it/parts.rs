//! Images that are made in parts, and joined.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use testkit::{Rng, TempDir};

use crate::{ok, run_in};

fn refused(dir: &TempDir, line: &str, words: &str) {
    let (code, _, told) = run_in(dir.path(), line.split_whitespace());
    assert_eq!(code, 2, "{line}: {told}");
    assert!(told.contains(words), "{line}: {told}");
}

#[test]
fn parts_are_joined_or_refused_by_name() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    for n in 0..9 {
        let noise = Rng::new(n % 7).bytes(3000 * n as usize);
        fs::write(dir.join(format!("src/sub/{n}")), noise).unwrap();
    }
    fs::write(dir.join("src/large"), Rng::new(99).bytes(400_000)).unwrap();
    fs::hard_link(dir.join("src/large"), dir.join("src/again")).unwrap();
    File::create(dir.join("src/hole"))
        .unwrap()
        .set_len(500_000)
        .unwrap();
    let with = "-q --compress lz4 --block-size 16K";
    ok(&dir, &format!("copy {with} src whole.sqfs"));
    fs::create_dir(dir.join("p")).unwrap();
    for n in [2, 3, 1] {
        ok(&dir, &format!("copy {with} --part {n}/3 src p/{n}.part"));
    }
    ok(&dir, &format!("copy {with} --parts p src x.sqfs"));
    let read = |name| fs::read(dir.join(name)).unwrap();
    assert!(read("x.sqfs") == read("whole.sqfs"));
    fs::create_dir(dir.join("b")).unwrap();
    ok(&dir, "copy -q --to btrfs --part 0/2 src b/0.part");
    for n in [1, 2] {
        ok(
            &dir,
            &format!("copy -q --to btrfs --parts b/0.part --part {n}/2 src b/{n}.part"),
        );
    }
    ok(&dir, "copy -q src whole.btrfs");
    ok(&dir, "copy -q --parts b src x.btrfs");
    assert!(read("x.btrfs") == read("whole.btrfs"));
    refused(
        &dir,
        "copy -q --parts b --add-device d src y.btrfs",
        "joined on one device",
    );
    refused(
        &dir,
        "copy -q --parts b/1.part src y.btrfs",
        "`restow copy --to btrfs --part 2/2 src 2.part`",
    );
    refused(
        &dir,
        "copy -q --parts b src y.sqfs",
        "was made with other options",
    );

    let line = |with: &str| format!("copy {with} --parts p src y.sqfs");
    refused(
        &dir,
        &format!("copy {with} --part 1/3 src p/1.part"),
        "already exists",
    );
    refused(&dir, &line("--compress lz4"), "was made with other options");
    refused(
        &dir,
        &line("--reuse x.sqfs"),
        "--reuse does not go with --part",
    );
    refused(
        &dir,
        "copy --part 1/2 src x.erofs",
        "--part does not apply to an EROFS image",
    );
    refused(&dir, "copy --part 3/2 src x", "--part");
    fs::rename(dir.join("p/3.part"), dir.join("3")).unwrap();
    refused(
        &dir,
        &line(with),
        "part 3 of 3 missing; `restow copy --part 3/3 src 3.part`",
    );
    fs::copy(dir.join("p/2.part"), dir.join("p/3.part")).unwrap();
    refused(&dir, &line(with), "are both part 2");
    fs::rename(dir.join("3"), dir.join("p/3.part")).unwrap();
    let part = File::options()
        .write(true)
        .open(dir.join("p/2.part"))
        .unwrap();
    part.write_all_at(b"damage", 30_000).unwrap();
    let damage = "read p/2.part: the checksum of a record of a part does not match (found 0x";
    refused(&dir, &line(with), damage);
    ok(
        &dir,
        &format!("copy {with} --overwrite --part 2/3 src p/2.part"),
    );
    fs::write(dir.join("src/sub/5"), "other").unwrap();
    refused(
        &dir,
        &line(with),
        "was made of another tree: src/sub/5 has another name, size",
    );
    assert!(!dir.join("y.sqfs").exists());
}
