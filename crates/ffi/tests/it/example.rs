use std::fs::{self, File};

use crate::{STRICT, folder, installed, output_of, scratch};

#[test]
fn extent_is_decoded_by_the_example() {
    let (Some(cc), Some(pkg_config)) = (testkit::tool("cc"), testkit::tool("pkg-config")) else {
        return;
    };
    let lib = installed().join("lib");
    let mut ask = pkg_config.command();
    ask.args(["--cflags", "--libs", "restow_zstd"]);
    ask.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let flags = output_of(&mut ask);
    let program = scratch().join(format!("extent-{}", std::process::id()));
    let mut compile = cc.command();
    compile
        .args(STRICT)
        .arg(folder().join("examples/extent.c"))
        .arg("-o")
        .arg(&program)
        .args(flags.split_whitespace());
    output_of(&mut compile);

    let content = b"container ship, ".repeat(5000);
    let params = zstd::Params::for_level(3, Some(content.len() as u64));
    let mut workspace = vec![0; zstd::workspace_size(&params)];
    let mut stored = vec![0; zstd::compress_bound(content.len())];
    let size = zstd::compress(&mut stored, &content, &params, &mut workspace).expect("a frame");
    stored.truncate(size);
    // Padded to whole sectors, as btrfs does.
    stored.resize(size.next_multiple_of(4096), 0);
    let run = |bytes: &[u8]| {
        let file = scratch().join(format!("stored-{}", std::process::id()));
        fs::write(&file, bytes).expect("a file");
        let input = File::open(&file).expect("a file");
        let mut command = std::process::Command::new(&program);
        command.stdin(input).env("LD_LIBRARY_PATH", &lib);
        let output = command.output().expect("it runs");
        let _ = fs::remove_file(file);
        output
    };
    let good = run(&stored);
    assert!(good.status.success() && good.stdout == content);
    let short = run(&stored[..size - 1]);
    assert_eq!(short.stderr, b"extent: the frame ends early\n");
    let bad = run(b"not a frame");
    assert_eq!(bad.stderr, b"extent: not a zstd frame\n");
    let _ = fs::remove_file(program);
}
