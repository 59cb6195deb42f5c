//! Other processors: the libraries are checked for each, the command is built for one, and tests
//! run under QEMU.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{build_restow, cargo, line_of, output_of, package, run};
use crate::environment::{is_ci, root};
use crate::outcome::{Outcome, Report};
use crate::package::{at, patch_bytes};
use crate::tools::{ensure_target, is_there, target_dir};

/// A processor and what it takes to build for it.
struct CrossTarget {
    /// The name in Rust.
    name: &'static str,
    /// The C compiler, and Debian's packages that hold it and its library.
    cc: &'static str,
    packages: &'static str,
    /// The emulator, which is in Debian's package qemu-user.
    qemu: &'static str,
    /// Where the emulator finds the C library.
    root: &'static str,
    /// The crates whose tests run: those that look at bytes of numbers.
    tested: &'static [&'static str],
}

/// One of 64 bits that is common, a newer one, and a big-endian one.
const TARGETS: [CrossTarget; 3] = [
    CrossTarget {
        name: "aarch64-unknown-linux-musl",
        cc: "aarch64-linux-gnu-gcc",
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        qemu: "qemu-aarch64",
        root: "/usr/aarch64-linux-gnu",
        tested: &["cli"],
    },
    CrossTarget {
        name: "riscv64gc-unknown-linux-gnu",
        cc: "riscv64-linux-gnu-gcc",
        packages: "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
        qemu: "qemu-riscv64",
        root: "/usr/riscv64-linux-gnu",
        tested: &[],
    },
    CrossTarget {
        name: "s390x-unknown-linux-gnu",
        cc: "s390x-linux-gnu-gcc",
        packages: "gcc-s390x-linux-gnu libc6-dev-s390x-cross",
        qemu: "qemu-s390x",
        root: "/usr/s390x-linux-gnu",
        tested: &["xxhash", "lzo", "codec", "zstd", "squashfs", "btrfs"],
    },
];

/// The libraries that build for every processor.
const LIBRARIES: [&str; 11] = [
    "xxhash",
    "lzo",
    "zstd",
    "codec",
    "tree",
    "squashfs",
    "btrfs",
    "erofs",
    "oci",
    "patch",
    "sendstream",
];

/// The target for which the command is built, as one file that needs no library.
const COMMAND: &str = "aarch64-unknown-linux-musl";

/// All of it, or what is for the targets whose names contain an argument.
pub(crate) fn cross(report: &mut Report, arguments: &[String]) {
    for target in &TARGETS {
        let is_selected = |word: &String| target.name.contains(word.as_str());
        if !arguments.is_empty() && !arguments.iter().any(is_selected) {
            continue;
        }
        if let Err(reason) = ready(target) {
            report.step(target.name, || lacking(reason));
            continue;
        }
        report.step(&format!("{}: libraries", target.name), || {
            run(of(target, "check").args(packages(&LIBRARIES)))
        });
        if target.name == COMMAND {
            report.step(&format!("{}: restow-patch", target.name), || {
                applier(target).unwrap_or_else(Outcome::failed)
            });
            report.step(&format!("{}: command", target.name), || command(target));
        }
        if !target.tested.is_empty() {
            report.step(&format!("{}: unit tests", target.name), || tests(target));
        }
    }
}

/// What a missing program means: a runner of a forge must have all of them.
fn lacking(reason: String) -> Outcome {
    if is_ci() {
        Outcome::failed(reason)
    } else {
        Outcome::skipped(reason)
    }
}

/// Whether the compilers are there.
fn ready(target: &CrossTarget) -> Result<(), String> {
    ensure_target(target.name)?;
    if is_there(target.cc) {
        Ok(())
    } else {
        Err(format!(
            "{}: apt-get install {}",
            target.cc, target.packages
        ))
    }
}

/// A command of cargo's for a target.
fn of(target: &CrossTarget, verb: &str) -> Command {
    let mut command = cargo([verb, "--locked", "--quiet", "--target", target.name]);
    let name = target.name.replace('-', "_");
    let upper = name.to_uppercase();
    command.env(format!("CC_{name}"), target.cc);
    if target.name.ends_with("-musl") {
        // The toolchain has a linker, and musl with its first object files.
        command.env(format!("CARGO_TARGET_{upper}_LINKER"), "rust-lld");
        command.env(
            format!("CARGO_TARGET_{upper}_RUSTFLAGS"),
            "-C link-self-contained=yes",
        );
    } else {
        command.env(format!("CARGO_TARGET_{upper}_LINKER"), target.cc);
    }
    let runner = format!("{} -L {}", target.qemu, target.root);
    command.env(format!("CARGO_TARGET_{upper}_RUNNER"), runner);
    command
}

/// Cargo's options that select crates.
fn packages(names: &[&str]) -> impl Iterator<Item = String> {
    (names.iter()).flat_map(|name| ["-p".to_owned(), package(name)])
}

/// Builds the command, and lets it write an image and check it.
fn command(target: &CrossTarget) -> Outcome {
    let built = run(of(target, "build").args(packages(&["cli"])));
    if !built.failed.is_empty() || !is_there(target.qemu) {
        return built;
    }
    let program = target_dir().join(target.name).join("debug/restow");
    let image = target_dir().join(target.name).join("src.squashfs");
    let source = root().join("crates/cli/src");
    let steps: [&[&Path]; 3] = [
        &["copy".as_ref(), "--overwrite".as_ref(), &source, &image],
        &["check".as_ref(), &image],
        &["diff".as_ref(), &source, &image],
    ];
    for words in steps {
        let mut restow = Command::new(target.qemu);
        if let Err(reason) = output_of(restow.arg(&program).args(words)) {
            return Outcome::failed(reason);
        }
    }
    Outcome::passed()
}

/// Builds `restow-patch` for devices, and lets it apply patches that were made here.
fn applier(target: &CrossTarget) -> Result<Outcome, String> {
    if !is_there(target.qemu) {
        let reason = format!("{}: apt-get install qemu-user", target.qemu);
        return Ok(lacking(reason));
    }
    let mut build = of(target, "build");
    build.args(["--profile", "small", "--package", "restow-patch"]);
    build.args(["--no-default-features", "--features", "encode"]);
    output_of(&mut build)?;
    let program = target_dir().join(target.name).join("small/restow-patch");
    println!("{}: {} bytes", program.display(), patch_bytes(&program)?);
    build_restow()?;
    let restow = target_dir().join("debug/restow");
    let folder = target_dir().join(target.name).join("patches");
    let _ = fs::remove_dir_all(&folder);
    at(&folder, fs::create_dir_all(&folder))?;
    for (kind, codec) in [
        ("squashfs", "zstd:15"),
        ("erofs", "zstd:9"),
        ("btrfs", "zstd:3"),
    ] {
        let in_folder = |name: &str| folder.join(format!("{name}.{kind}"));
        let (old, new) = (in_folder("old"), in_folder("new"));
        let (patch, cut, made) = (in_folder("patch"), in_folder("cut"), in_folder("made"));
        for (tree, image) in [("crates/cli/src", &old), ("crates/cli", &new)] {
            let mut copy = Command::new(&restow);
            let tree = root().join(tree);
            output_of(
                copy.args(["copy", "--compress", codec])
                    .arg(tree)
                    .arg(image),
            )?;
        }
        let mut delta = Command::new(&restow);
        output_of(delta.arg("delta").args([&old, &new, &patch]))?;
        let bytes = at(&patch, fs::read(&patch))?;
        at(&cut, fs::write(&cut, &bytes[..bytes.len() / 2]))?;
        let apply = |patch: &Path| {
            let mut apply = Command::new(target.qemu);
            apply.arg(&program).arg("--resume").arg(&old);
            output_of(apply.arg(patch).arg(&made))
        };
        if apply(&cut).is_ok() || made.exists() {
            return Err(format!("{kind}: half of a patch was applied"));
        }
        apply(&patch)?;
        if at(&made, fs::read(&made))? != at(&new, fs::read(&new))? {
            return Err(format!("{kind}: the patched image differs"));
        }
    }
    Ok(Outcome::passed())
}

/// The unit tests of the crates.
fn tests(target: &CrossTarget) -> Outcome {
    if !is_there(target.qemu) {
        let reason = format!("{}: apt-get install qemu-user", target.qemu);
        return lacking(reason);
    }
    let mut test = of(target, "test");
    // The command has no library, and the libraries have no command.
    let is_command = target.tested == ["cli"];
    test.arg(if is_command { "--bins" } else { "--lib" });
    test.args(packages(target.tested));
    println!("{}", line_of(&test));
    run(&mut test)
}
