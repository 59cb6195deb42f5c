//! The oldest compiler that can be had: that of Debian 13, unpacked from its packages and not
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, output_of, package, run};
use crate::environment::root;
use crate::outcome::{Outcome, Report};
use crate::tools::target_dir;

/// The version of Debian 13's compiler. The first with edition 2024.
const OLDEST: (u32, u32) = (1, 85);

/// The compiler, the standard library, and the libraries that it runs with: those of an older
/// Debian lack functions.
const PACKAGES: [&str; 17] = [
    "rustc",
    "libstd-rust-dev",
    "libstd-rust-1.85",
    "libllvm19",
    "libbsd0",
    "libc6",
    "libedit2",
    "libffi8",
    "libgcc-s1",
    "libicu76",
    "liblzma5",
    "libmd0",
    "libstdc++6",
    "libtinfo6",
    "libxml2",
    "libzstd1",
    "zlib1g",
];

/// Where Debian's keys are.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Builds the libraries that are named with the oldest compiler, or all that promise to build with
/// it.
pub(crate) fn oldest(report: &mut Report, arguments: &[String]) {
    let names = match arguments {
        [] => vec!["xxhash".to_owned()],
        names => names.to_vec(),
    };
    for name in &names {
        report.step(&format!("{name} with the oldest compiler"), || build(name));
    }
}

fn build(name: &str) -> Outcome {
    match promise(name) {
        Err(reason) => return Outcome::failed(reason),
        Ok(version) if version > OLDEST => {
            let ((major, minor), (_, oldest)) = (version, OLDEST);
            let reason = format!("{name} promises {major}.{minor}, and there is {major}.{oldest}");
            return Outcome::skipped(reason);
        }
        Ok(_) => {}
    }
    match compiler() {
        Ok(compiler) => {
            let mut command = cargo(["build", "--locked", "--release", "--package"]);
            command
                .arg(package(name))
                .env("RUSTC", compiler)
                .env("CARGO_TARGET_DIR", folder().join("target"));
            run(&mut command)
        }
        Err(reason) => Outcome::skipped(reason),
    }
}

/// The `rust-version` of a library, which is the workspace's if it has none of its own.
fn promise(name: &str) -> Result<(u32, u32), String> {
    let of = |manifest: &str| -> Option<(u32, u32)> {
        let text = fs::read_to_string(root().join(manifest)).ok()?;
        let line = (text.lines()).find_map(|line| line.strip_prefix("rust-version = \""))?;
        let (major, minor) = line.split('"').next()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let manifest = format!("crates/{name}/Cargo.toml");
    if !root().join(&manifest).is_file() {
        return Err(format!("there is no {manifest}"));
    }
    of(&manifest)
        .or_else(|| of("Cargo.toml"))
        .ok_or_else(|| "Cargo.toml has no rust-version".to_owned())
}

fn folder() -> PathBuf {
    target_dir().join("oldest")
}

/// The compiler, which is downloaded unless it is there.
fn compiler() -> Result<PathBuf, String> {
    let folder = folder();
    let compiler = folder.join("rustc");
    if !compiler.is_file() {
        if !cfg!(target_arch = "x86_64") || !Path::new(KEYS).is_file() {
            return Err("the oldest compiler is a program of Debian's for amd64".to_owned());
        }
        let _ = fs::remove_dir_all(&folder);
        unpack(&folder, &compiler).map_err(|error| format!("get Debian 13's compiler: {error}"))?;
    }
    Ok(compiler)
}

/// Downloads the packages with lists of their own, so that the machine's stay as they are, and
/// makes a script that starts the compiler.
fn unpack(folder: &Path, compiler: &Path) -> Result<(), String> {
    let words = |error| format!("{}: {error}", folder.display());
    let (packages, unpacked) = (folder.join("packages"), folder.join("root"));
    for dir in [&packages, &unpacked, &folder.join("lists/partial")] {
        fs::create_dir_all(dir).map_err(words)?;
    }
    let mirrors = output_of(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
    ]))?;
    let Some(mirror) = mirrors.lines().find(|uri| !uri.contains("security")) else {
        return Err("apt knows no packages of Debian: apt-get update".to_owned());
    };
    let list = format!("deb [signed-by={KEYS}] {mirror} trixie main\n");
    fs::write(folder.join("sources.list"), list).map_err(words)?;
    let at = folder.display();
    let settings = format!(
        "Dir::Etc::SourceList \"{at}/sources.list\";\nDir::Etc::SourceParts \"-\";\n\
         Dir::State::Lists \"{at}/lists\";\nDir::Cache \"{at}/cache\";\nAcquire::Languages \"none\";\n"
    );
    let config = folder.join("apt.conf");
    fs::write(&config, settings).map_err(words)?;
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(&packages).env("APT_CONFIG", &config);
        output_of(command.arg("-q").args(arguments))
    };
    apt(&["update"])?;
    apt(&[&["download"][..], &PACKAGES].concat())?;
    for entry in fs::read_dir(&packages).map_err(words)? {
        let mut command = Command::new("dpkg-deb");
        command.arg("-x").arg(entry.map_err(words)?.path());
        output_of(command.arg(&unpacked))?;
    }
    let usr = unpacked.join("usr");
    let usr = usr.display();
    let script = format!(
        "#!/bin/sh\nexec {usr}/lib64/ld-linux-x86-64.so.2 --library-path {usr}/lib/x86_64-linux-gnu \
         {usr}/bin/rustc --sysroot {usr} \"$@\"\n"
    );
    fs::write(compiler, script).map_err(words)?;
    output_of(Command::new("chmod").arg("+x").arg(compiler)).map(drop)
}
