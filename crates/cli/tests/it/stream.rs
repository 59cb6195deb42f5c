//! `restow stream`: send streams, from outside.

use std::fs;
use std::path::Path;

use testkit::TempDir;

use super::{names, run_in};

/// A directory with `home.stream`, which Linux made, and its JSON lines.
fn fixture() -> TempDir {
    let dir = TempDir::new();
    let packed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../sendstream/testdata/zstd.inc.v2c.zst");
    let mut stream = vec![0; 1 << 20];
    let packed = fs::read(packed).unwrap();
    let decoded = codec::Decoder::new().decompress(codec::Algorithm::Zstd, &mut stream, &packed);
    stream.truncate(decoded.unwrap());
    fs::write(dir.join("home.stream"), stream).unwrap();
    dir
}

#[test]
fn verify_says_what_a_stream_needs_or_what_is_wrong() {
    let dir = fixture();
    let verify = |args: &[&str]| run_in(dir.path(), [&["stream", "verify"], args].concat());
    let (code, out, words) = verify(&["home.stream"]);
    assert_eq!((code, &*words), (0, ""));
    assert!(out.starts_with("b: incremental, UUID "), "{out}");
    assert!(
        out.contains("; needs parent ") && out.contains("no errors: "),
        "{out}"
    );
    let (code, out, _) = verify(&["--json", "home.stream"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("{\"error\":null,\"bytes\":"), "{out}");

    let (_, info, _) = run_in(dir.path(), ["stream", "info", "--json", "home.stream"]);
    let (_, digest) = info.split_once("\"sha256\":\"").unwrap();
    let digest = &digest[..64];
    assert_eq!(verify(&["--sha256", digest, "home.stream"]).0, 0);
    let other = digest.replace(
        &digest[..1],
        if digest.starts_with('0') { "1" } else { "0" },
    );
    let (code, out, _) = verify(&["--sha256", &other, "home.stream"]);
    assert_eq!(code, 1);
    assert_eq!(out, format!("SHA-256 digest is {digest}, not {other}\n"));
    assert_eq!(verify(&["--sha256", "abc", "home.stream"]).0, 2);

    let mut stream = fs::read(dir.join("home.stream")).unwrap();
    let len = stream.len();
    stream[len / 2] ^= 1;
    fs::write(dir.join("bad.stream"), &stream).unwrap();
    let (code, out, _) = verify(&["bad.stream"]);
    assert_eq!(code, 1);
    assert!(
        out.starts_with("command ") && out.contains(" at byte 0x"),
        "{out}"
    );
    let (code, out, _) = verify(&["--json", "bad.stream"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("{\"error\":\"command "), "{out}");
    let (code, _, words) = verify(&["missing"]);
    assert_eq!(code, 2);
    assert_eq!(words, "restow: open missing: no such file or directory\n");
    assert_eq!(verify(&["-"]).0, 1);
}

#[test]
fn info_has_sizes_changes_and_the_digest() {
    let dir = fixture();
    let (code, out, words) = run_in(dir.path(), ["stream", "info", "home.stream"]);
    assert_eq!((code, &*words), (0, ""));
    for part in [
        "version     2",
        "SHA-256     ",
        "files created",
        "encoded_write",
        "zstd",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn a_dump_is_built_into_the_same_stream() {
    let dir = fixture();
    let (code, lines, _) = run_in(
        dir.path(),
        ["stream", "dump", "--json", "--data", "home.stream"],
    );
    assert_eq!(code, 0);
    fs::write(dir.join("home.json"), &lines).unwrap();
    let undump = ["stream", "undump", "home.json", "again.stream"];
    assert_eq!(
        run_in(dir.path(), undump),
        (0, String::new(), String::new())
    );
    let [first, again] = ["home.stream", "again.stream"].map(|it| fs::read(dir.join(it)).unwrap());
    assert!(first == again);
    let (code, text, _) = run_in(dir.path(), ["stream", "dump", "home.stream"]);
    assert_eq!((code, text.lines().count()), (0, lines.lines().count()));
    assert!(text.contains(" snapshot path=\"b\" uuid="), "{text}");
    let (code, _, words) = run_in(dir.path(), undump);
    assert_eq!(code, 2);
    assert!(
        words.contains("already exists; --overwrite replaces it"),
        "{words}"
    );
}

#[test]
fn convert_changes_the_form_or_leaves_nothing() {
    let dir = fixture();
    let convert = |args: &[&str]| run_in(dir.path(), [&["stream", "convert"], args].concat());
    let verified = |name: &str| run_in(dir.path(), ["stream", "verify", name]).0;
    for (args, name) in [
        (&["--compress", "zstd:15"][..], "zstd"),
        (&["--compress", "lzo:9", "--proto", "3"], "lzo"),
        (&["--decompress"], "plain"),
    ] {
        let args = [args, &["home.stream", name]].concat();
        assert_eq!(convert(&args), (0, String::new(), String::new()));
        assert_eq!(verified(name), 0);
    }
    let old = [
        "--stream-version",
        "1",
        "--trust-holes",
        "home.stream",
        "old",
    ];
    let (code, _, words) = convert(&old);
    assert_eq!(code, 2);
    assert!(
        words.starts_with("restow: convert home.stream: command "),
        "{words}"
    );
    assert!(words.contains("file attributes"), "{words}");
    let (code, _, words) = convert(&[&["--drop", "fileattr"], &old[..]].concat());
    assert_eq!(code, 1);
    assert_eq!(words, "restow: left out 1 file attribute command\n");
    assert_eq!(verified("old"), 0);
    for bad in ["zstd:23", "xz", "lzo:10", "zlib:0"] {
        assert_eq!(convert(&["--compress", bad, "home.stream", "bad"]).0, 2);
    }
    // A damaged stream leaves no file.
    let mut stream = fs::read(dir.join("home.stream")).unwrap();
    stream.truncate(stream.len() - 1);
    fs::write(dir.join("cut.stream"), stream).unwrap();
    assert_eq!(convert(&["cut.stream", "bad"]).0, 2);
    let left = names(dir.path());
    assert_eq!(
        left,
        ["cut.stream", "home.stream", "lzo", "old", "plain", "zstd"]
    );
}

#[test]
fn verify_compares_with_a_tree() {
    let dir = TempDir::new();
    for (file, name) in [("full", "zstd.full.v2c"), ("inc", "inc.v1")] {
        fs::write(dir.join(file), super::receive::kernel_made(name)).unwrap();
    }
    let made = ["receive", "-q", "--to", "image", "-f", "full", "image"];
    assert_eq!(run_in(dir.path(), made).0, 0);
    let verify = |more: &[&str]| run_in(dir.path(), [&["stream", "verify"], more].concat());
    let (code, out, words) = verify(&["full", "--against", "image:a"]);
    assert_eq!(code, 0, "{out}{words}");
    assert!(out.ends_with("0 differences\n"), "{out}");
    let (code, out, _) = verify(&["full", "--against", "image:a", "--json"]);
    assert_eq!(code, 0);
    assert!(out.contains("\"differences\":0,"), "{out}");
    // An incremental stream needs its parent, and differs from it.
    let (code, _, words) = verify(&["inc", "--against", "image:a"]);
    assert_eq!(code, 2, "{words}");
    let (code, out, words) = verify(&["inc", "--base", "full", "--against", "image:a"]);
    assert_eq!(code, 1, "{words}");
    let lines = out.lines().filter(|line| line.contains(": ")).count();
    let counted = out.lines().last().unwrap();
    assert!(lines > 3 && counted.ends_with(" differences"), "{out}");
    // Options without meaning are refused.
    let (code, _, words) = verify(&["-", "--against", "image:a"]);
    assert_eq!(code, 2, "{words}");
    assert!(words.contains("standard input can be read once"), "{words}");
}
