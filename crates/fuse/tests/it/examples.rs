use std::sync::Arc;

use testkit::MemoryFs;
use tree::FileSystem;

use crate::script::{LOOKUP, Script, greeting, parse, request, u64_at};

#[path = "../../examples/mount.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod mount;

#[test]
fn mount_answers_until_it_is_unmounted() {
    let mut fs = MemoryFs::new();
    fs.add_file(fs.root(), "file", b"content");
    let script = Script::of([greeting(), request(LOOKUP, 1, b"file\0")]);
    assert_eq!(mount::serve(Arc::new(fs), &script).unwrap(), 2);
    let replies = script.replies();
    let found = parse(&replies[1]).unwrap();
    // The size of the file that was found.
    assert_eq!((replies.len(), u64_at(&found, 48)), (2, 7));
}
