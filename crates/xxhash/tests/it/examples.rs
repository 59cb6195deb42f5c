#[path = "../../examples/sums.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod sums;

#[test]
fn sums_of_files_are_those_of_their_content() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (long, short) = (folder.join("long"), folder.join("short"));
    // More than a piece, and a rest.
    let content = crate::bytes(100_000, 7);
    std::fs::write(&long, &content).expect("a file");
    std::fs::write(&short, "abc").expect("a file");
    let mut out = Vec::new();
    let files = [long.clone().into(), short.clone().into()];
    sums::print_sums(&files, &mut out).expect("files that can be read");
    let expected = format!(
        "{:016x}  {}\n44bc2cf5ad770999  {}\n",
        twox_hash::XxHash64::oneshot(0, &content),
        long.display(),
        short.display()
    );
    assert_eq!(String::from_utf8_lossy(&out), expected);
    assert!(sums::print_sums(&["/no such file".into()], &mut out).is_err());
}
