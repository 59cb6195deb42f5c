use std::fs::{self, File};

use restow::{ByPath, CopyOptions, Input, NoProgress, OpenOptions, SourceTree};
use testkit::TempDir;

#[test]
fn images_and_archives_are_read_from_memory_and_pipes() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    for name in ["a.squashfs", "a.btrfs", "a.tar", "a.tar.zst", "a.stream"] {
        let (source, path) = (restow::open(dir.join("src")).unwrap(), dir.join(name));
        restow::copy(source, &path, &CopyOptions::default(), &NoProgress).unwrap();
        let input = Input::of(fs::read(&path).unwrap());
        let opened = SourceTree::of_input(input, &OpenOptions::default()).unwrap();
        assert_eq!(opened.tree().read("file").unwrap(), b"content", "{name}");
        let input = Input::of_stream(File::open(&path).unwrap());
        let opened = SourceTree::of_input(input, &OpenOptions::default());
        match opened.map_err(|error| format!("{error:#}")) {
            Ok(opened) => assert_eq!(opened.tree().read("file").unwrap(), b"content", "{name}"),
            Err(error) => assert!(
                error.ends_with("from a pipe; save it to a file first"),
                "{error}"
            ),
        }
    }
}
