use std::fs;

use restow::{ByPath, CopyOptions, NoProgress};
use testkit::TempDir;

#[path = "../../examples/two_archives.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod two_archives;

#[test]
fn two_archives_become_one_image() {
    let dir = TempDir::new();
    for (name, content) in [("a", "first"), ("b", "second")] {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("file"), content).unwrap();
        let (source, archive) = (
            restow::open(dir.join(name)).unwrap(),
            dir.join(format!("{name}.tar.gz")),
        );
        restow::copy(source, archive, &CopyOptions::default(), &NoProgress).unwrap();
    }
    let image = dir.join("both.squashfs");
    let (first, second) = (dir.join("a.tar.gz"), dir.join("b.tar.gz"));
    let summary = two_archives::build(&first, &second, b"opt/b", &image).unwrap();
    assert!(summary.is_whole());
    let source = restow::open(&image).unwrap();
    assert_eq!(source.tree().read("file").unwrap(), b"first");
    assert_eq!(source.tree().read("opt/b/file").unwrap(), b"second");
    let mut findings = 0;
    let errors = restow::check(&image, &NoProgress, &mut |_| findings += 1).unwrap();
    assert_eq!((errors, findings), (0, 0));
}
