use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{compile, folder, installed, output_of};

/// The names that the version script lists.
fn listed() -> BTreeSet<String> {
    let map = fs::read_to_string(folder().join("clib/restow_zstd.map")).expect("a version script");
    let names = map.lines().filter_map(|line| line.strip_suffix(';'));
    let names = names.map(|name| name.trim().to_owned());
    names.filter(|name| name != "*" && name != "}").collect()
}

/// The symbols of a library that it defines, or needs, as `nm` sees them.
fn symbols(library: &Path, flags: &[&str]) -> Option<BTreeSet<String>> {
    let mut nm = testkit::tool("nm")?.command();
    let wrote = output_of(nm.args(["--format=posix"]).args(flags).arg(library));
    let names = wrote.lines().filter(|line| !line.ends_with(':'));
    let names = names.filter_map(|line| line.split([' ', '@']).next());
    let names = names.filter(|name| !name.is_empty());
    Some(names.map(str::to_owned).collect())
}

#[test]
fn shared_library_shows_what_the_version_script_lists() {
    let library = installed().join("lib/librestow_zstd.so");
    let Some(mut shown) = symbols(&library, &["--dynamic", "--defined-only"]) else {
        return;
    };
    // The version itself.
    assert!(shown.remove("RESTOW_ZSTD_0"));
    assert_eq!(shown, listed());
    let mut in_header = crate::headers::declared("zstd.h");
    in_header.append(&mut crate::headers::declared("xxhash.h"));
    assert_eq!(shown, in_header);
}

#[test]
fn shared_library_needs_memory_functions_alone() {
    let library = installed().join("lib/librestow_zstd.so");
    let Some(needed) = symbols(&library, &["--dynamic", "--undefined-only"]) else {
        return;
    };
    let allowed = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];
    let others: Vec<&String> = (needed.iter())
        .filter(|name| !allowed.contains(&name.as_str()))
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

/// The output of a program with both libraries, if there is a libzstd.
fn output_beside_libzstd(name: &str) -> Option<String> {
    let mut cc = testkit::tool("cc")?.command();
    let found = output_of(cc.arg("-print-file-name=libzstd.so.1"));
    if !Path::new(found.trim()).is_absolute() {
        testkit::skip("there is no libzstd.so.1");
        return None;
    }
    let program = compile(name, &[], &["librestow_zstd.so", found.trim()])?;
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", installed().join("lib"));
    let wrote = output_of(&mut command);
    let _ = fs::remove_file(program);
    Some(wrote)
}

#[test]
fn shared_library_lives_beside_libzstd() {
    let Some(wrote) = output_beside_libzstd("beside_libzstd") else {
        return;
    };
    assert!(wrote.starts_with("ok beside libzstd "), "{wrote}");
}

/// NULL, sizes of 0 and above the maximum, addresses of workspaces, calls out of order, after the
/// end and after errors: as libzstd answers, called as Linux calls it.
#[test]
fn edge_cases_end_as_in_libzstd() {
    let Some(wrote) = output_beside_libzstd("edges") else {
        return;
    };
    assert_eq!(wrote, "ok 573 cases\n");
}

/// Linux on another processor has another way to end a program.
#[cfg(target_arch = "x86_64")]
#[test]
fn static_library_needs_no_libc() {
    let flags = [
        "-nostdlib",
        "-static",
        "-ffreestanding",
        "-fno-tree-loop-distribute-patterns",
        "-Wl,-e,start",
        "-Wl,--gc-sections",
    ];
    let Some(program) = compile("without_libc", &flags, &["librestow_zstd.a"]) else {
        return;
    };
    output_of(&mut Command::new(&program));
    let _ = fs::remove_file(program);
}

/// What the panic handlers of the libraries call: the process ends, and nothing of Rust reaches C.
#[cfg(target_arch = "x86_64")]
#[test]
fn trap_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    const ASKED: &str = "RESTOW_TEST_TRAP";
    if std::env::var_os(ASKED).is_some() {
        ffi::trap();
    }
    let this = std::env::current_exe().expect("a program");
    let mut command = Command::new(this);
    command.args(["--exact", "linking::trap_ends_the_process"]);
    let output = command.env(ASKED, "1").output().expect("it runs");
    // An instruction that does not exist.
    assert_eq!(output.status.signal(), Some(4), "{output:?}");
    for library in ["legacy", "modern"] {
        let source = folder().join(format!("clib/{library}/src/lib.rs"));
        let text = fs::read_to_string(source).expect("a source");
        assert!(
            text.contains("PanicInfo<'_>) -> ! {\n    ffi::trap()\n}"),
            "{library}"
        );
    }
}
