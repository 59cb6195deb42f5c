use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[path = "../../examples/holes.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod holes;

#[test]
fn holes_lists_the_data_between_them() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sparse");
    let file = File::create(&path).expect("a file");
    file.write_all_at(&[1; 4096], 1 << 20).expect("data");
    file.write_all_at(&[1; 8192], 3 << 20).expect("data");
    file.set_len(8 << 20).expect("a hole");
    let mut out = Vec::new();
    holes::print_data(&File::open(&path).expect("the file"), &mut out).expect("ranges");
    let text = String::from_utf8_lossy(&out);
    // File systems without holes give one range.
    if text.lines().count() > 1 {
        assert_eq!(
            text,
            "     1048576         4096\n     3145728         8192\n"
        );
    } else {
        assert_eq!(text, "           0      8388608\n");
    }
    let _ = fs::remove_file(path);
}
