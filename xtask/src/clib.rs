//! The C libraries: built, linked, and installed with their headers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, run};
use crate::environment::root;
use crate::outcome::{Outcome, Report};
use crate::tools::target_dir;

/// What is in a soname: it changes when programs must be linked again.
const SONAME: &str = "librestow_zstd.so.0";
const VERSION: &str = "0.1.0";

/// Headers, below `crates/ffi/include`.
const HEADERS: &[&str] = &["restow/xxhash.h", "restow/zstd.h", "restow/zstd_2017.h"];

/// The packages of static libraries, and what each is for.
const LIBRARIES: &[(&str, &str)] = &[
    ("restow_zstd", "zstd_* and xxh*, as in Linux since 5.16"),
    ("restow_zstd_2017", "ZSTD_*, as in Linux from 4.14 to 5.15"),
];

/// Builds the C libraries and installs them below the folder that is named.
pub(crate) fn clib(report: &mut Report, arguments: &[String]) {
    let prefix = match arguments {
        [] => target_dir().join("clib/install"),
        [prefix] => root().join(prefix),
        _ => {
            let reason = "usage: cargo xtask clib [FOLDER]".to_owned();
            return report.step("clib", || Outcome::failed(reason));
        }
    };
    report.step("clib", || {
        let target = target_dir().join("clib");
        let mut build = cargo(["build", "--release", "--locked", "--quiet"]);
        build.arg("--manifest-path");
        build.arg(root().join("crates/ffi/clib/Cargo.toml"));
        build.arg("--target-dir").arg(&target);
        for (package, _) in LIBRARIES {
            // One by one: together they would have the same features.
            let mut command = Command::new(build.get_program());
            command.args(build.get_args()).args(["--package", package]);
            command.current_dir(root());
            let built = run(&mut command);
            if !built.failed.is_empty() {
                return built;
            }
        }
        let linked = link(&target.join("release"));
        if !linked.failed.is_empty() {
            return linked;
        }
        match install(&target.join("release"), &prefix) {
            Ok(()) => {
                println!("installed below {}", prefix.display());
                Outcome::passed()
            }
            Err(error) => Outcome::failed(format!("install below {}: {error}", prefix.display())),
        }
    });
}

/// Links the shared library from the static one: rustc cannot be given a version script.
fn link(folder: &Path) -> Outcome {
    let map = root().join("crates/ffi/clib/restow_zstd.map");
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-nostartfiles", "-o"])
        .arg(folder.join(SONAME))
        .arg(format!("-Wl,-soname,{SONAME}"))
        .arg(format!("-Wl,--version-script={}", map.display()))
        // All is in one object, which one name brings in. No name may be left open.
        .args(["-Wl,--gc-sections", "-Wl,-z,defs", "-Wl,-z,relro,-z,now"])
        .args(["-Wl,--no-undefined-version", "-Wl,-u,zstd_is_error"])
        .arg(folder.join("librestow_zstd.a"));
    run(&mut command)
}

fn install(built: &Path, prefix: &Path) -> io::Result<()> {
    let include = root().join("crates/ffi/include");
    for header in HEADERS {
        put(
            &prefix.join("include").join(header),
            &fs::read(include.join(header))?,
        )?;
    }
    let lib = prefix.join("lib");
    for (name, what) in LIBRARIES {
        let archive = format!("lib{name}.a");
        put(&lib.join(&archive), &fs::read(built.join(&archive))?)?;
        let description = format!(
            "prefix={}\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\n\
             Name: {name}\nDescription: zstd in memory that the caller gives: {what}\nVersion: {VERSION}\n\
             Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -l{name}\n",
            prefix.display()
        );
        put(
            &lib.join(format!("pkgconfig/{name}.pc")),
            description.as_bytes(),
        )?;
    }
    let shared = format!("librestow_zstd.so.{VERSION}");
    put(&lib.join(&shared), &fs::read(built.join(SONAME))?)?;
    for name in [SONAME, "librestow_zstd.so"] {
        replace(&lib.join(name), |at| {
            std::os::unix::fs::symlink(&shared, at)
        })?;
    }
    Ok(())
}

/// Writes a file, unless it is there already. Whoever reads it sees the old one or the new one.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    replace(path, |at| fs::write(at, bytes))
}

fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(name);
    make(&aside)?;
    fs::rename(aside, path)
}
