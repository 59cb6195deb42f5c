use std::fs::{self, File};

use restow::{
    ByPath, CopyOptions, Format, Input, MemoryResult, NoProgress, OpenOptions, SourceTree,
};
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

#[test]
fn a_result_in_memory_has_the_bytes_of_a_file() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content".repeat(30_000)).unwrap();
    let open = || restow::open(dir.join("src")).unwrap();
    let result = MemoryResult::default();
    let create = || Ok(result.output());
    for (name, format) in [
        ("output.squashfs", Format::Squashfs),
        ("output.btrfs", Format::Btrfs),
        ("output.erofs", Format::Erofs),
        ("output.tar", Format::Tar),
        ("output.tar.zst", Format::TarZst),
        ("output.stream", Format::Stream),
    ] {
        let (path, options) = (dir.join(name), CopyOptions::default());
        restow::copy(open(), &path, &options, &NoProgress).unwrap();
        restow::copy_to(open(), format, &create, &options, &NoProgress).unwrap();
        let bytes = result.take();
        assert!(bytes == fs::read(&path).unwrap(), "{name}");
        let opened = SourceTree::of_input(Input::of(bytes), &OpenOptions::default()).unwrap();
        assert_eq!(opened.tree().read("file").unwrap().len(), 210_000);
    }
    let (path, mut options) = (dir.join("images"), CopyOptions::default());
    options.format = Some(Format::OciArchive);
    restow::copy(open(), &path, &options, &NoProgress).unwrap();
    restow::copy_to(open(), Format::OciArchive, &create, &options, &NoProgress).unwrap();
    assert!(result.take() == fs::read(&path).unwrap());
    // Nothing comes of a copy that fails, and none begins that cannot be finished.
    let refused = restow::copy_to(
        open(),
        Format::Dir,
        &create,
        &CopyOptions::default(),
        &NoProgress,
    );
    assert_eq!(refused.unwrap_err().to_string(), "a directory is no output");
    assert!(result.take().is_empty());
}
