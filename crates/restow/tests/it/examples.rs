//! The example programs, run on small trees.

use std::fs::{self, File};

use restow::{ByPath, CopyOptions, NoProgress};
use sendstream::{Command, SendData, SendOptions, StreamWriter, Version};
use testkit::TempDir;
use tree::{HostDir, Inventory, Limits};

#[path = "../../examples/receive.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod receive;
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

#[test]
fn a_stream_is_received_into_a_new_image_and_into_an_older_one() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/a"), "content").unwrap();
    let (stream, image) = (dir.join("stream"), dir.join("image"));
    for name in ["monday", "tuesday"] {
        let tree = HostDir::open(&dir.join("src")).unwrap();
        let inventory = Inventory::of(&tree, &Limits::default()).unwrap();
        let options = SendOptions::new(name.as_bytes())
            .uuid([name.len() as u8; 16])
            .ctransid(7)
            .data(SendData::Plain)
            .sector_bytes(4096)
            .stored(None);
        let mut writer = StreamWriter::new(File::create(&stream).unwrap(), Version::V2);
        writer.header().unwrap();
        sendstream::send(&inventory, &options, &NoProgress, &mut writer).unwrap();
        writer.command(&Command::End).unwrap();
        assert_eq!(receive::receive(&stream, &image).unwrap(), [name]);
    }
    for name in ["monday", "tuesday"] {
        let address = format!("{}:{name}", image.display());
        let tree = restow::open(address).unwrap();
        assert_eq!(tree.tree().read("a").unwrap(), b"content");
    }
    // A name that the image has is refused, and the image stays.
    let before = fs::read(&image).unwrap();
    assert!(receive::receive(&stream, &image).is_err());
    assert_eq!(fs::read(&image).unwrap(), before);
}
