use std::fs;

use testkit::TempDir;

#[path = "../../examples/treemap.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod treemap;

#[test]
fn treemap_draws_each_file_in_its_directory() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("programs")).unwrap();
    for (file, bytes) in [
        ("programs/large", 3000),
        ("programs/small", 1000),
        ("notes", 2000),
    ] {
        fs::write(dir.join(file), vec![0; bytes]).unwrap();
    }
    let drawing = treemap::drawing(dir.path()).unwrap();
    for words in [
        "programs: 4000 bytes",
        "programs/large: 3000 bytes",
        "notes: 2000 bytes",
    ] {
        assert!(drawing.contains(words), "{words}\n{drawing}");
    }
    // The background, the root, a directory and three files.
    assert_eq!(drawing.matches("<rect ").count(), 6, "{drawing}");
    assert_eq!(drawing, treemap::drawing(dir.path()).unwrap());
}
