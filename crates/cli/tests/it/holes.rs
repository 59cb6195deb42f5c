//! Files that claim much more than they store.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use testkit::{Rng, TempDir};

use crate::run_in;

#[test]
fn an_8_eb_file_is_copied_everywhere_but_to_squashfs() {
    let Some(dir) = TempDir::for_huge_files() else {
        return;
    };
    fs::create_dir(dir.join("src")).unwrap();
    let size = i64::MAX as u64;
    let data = Rng::new(1).bytes(100_000);
    for (name, at) in [("a", 1 << 45), ("b", 1 << 46), ("c", 1 << 46)] {
        let file = File::create(dir.join("src").join(name)).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(&data, at).unwrap();
        file.write_all_at(b"the end", size - 7).unwrap();
    }
    let done = |args: &[&str]| {
        let (code, out, words) = run_in(dir.path(), args);
        assert_eq!((code, words.as_str()), (0, ""), "{args:?}: {out}");
        out
    };
    let manifest = done(&["manifest", "src"]);
    assert_eq!(manifest.matches(" sha256data=").count(), 3);
    for dst in ["x.tar", "x.btrfs", "copy"] {
        done(&["copy", "-q", "src", dst]);
        assert_eq!(done(&["manifest", dst]), manifest, "{dst}");
        assert_eq!(done(&["diff", "src", dst]), "", "{dst}");
    }
    assert!(done(&["check", "x.btrfs"]).contains("0 errors"));
    // Three files of 8 EB are more than 64 bits can count.
    for src in ["src", "x.tar", "x.btrfs"] {
        let (code, out, words) = run_in(dir.path(), ["copy", src, "x.squashfs"]);
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(
            words.contains("has 9.2 EB of holes, all files together 18.4 EB"),
            "{words}"
        );
        let reason = "SquashFS stores 4 bytes for each block of a hole, 563 TB in all; --sparse-max raises the limit of 1.1 TB";
        assert!(words.contains(reason), "{words}");
        assert!(!dir.join("x.squashfs").exists());
    }
    let args = ["copy", "-q", "--sparse-max", "16K", "src", "x.tar"];
    assert!(
        run_in(dir.path(), args)
            .2
            .contains("--sparse-max does not apply to a tar archive")
    );
}
