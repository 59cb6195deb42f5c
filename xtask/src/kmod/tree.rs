//! The modules in a kernel tree, as README.md of `kmod` says: the sources of the distribution's
//! kernel, a small configuration, and a build of kernel and modules that has nothing to say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Modules, fill, missing, modules_in, run_quietly};
use super::folder::make;
use super::packages::{self, Kernel, out_folder};
use crate::command::output_of;
use crate::outcome::Outcome;
use crate::tools;

/// What builds a kernel besides a compiler: a program or header, and its package.
const NEEDED: &[(&str, &str)] = &[
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("/usr/include/gelf.h", "libelf-dev"),
];

/// Sources that the small kernel does not need; the configuration needs all of their Kconfig files.
const LEFT_OUT: &[&str] = &[
    "*/drivers/gpu/*.[ch]",
    "*/drivers/net/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/drivers/infiniband/*.[ch]",
    "*/sound/*.[ch]",
    "*/arch/[a-tvw]*/*.[chS]",
    "*/Documentation/*.rst",
    "*.dts*",
    "*/selftests",
];

/// What the kernel has; all else is left out. It has an xxHash of its own, and no zstd.
const CONFIG: &str = "64BIT MODULES MODULE_UNLOAD EXPERT PRINTK BUG TTY SERIAL_8250 SERIAL_8250_CONSOLE BLK_DEV_INITRD \
    BINFMT_ELF BINFMT_SCRIPT PROC_FS PROC_SYSCTL SYSFS DEVTMPFS MULTIUSER FUTEX POSIX_TIMERS \
    CPU_MITIGATIONS RETPOLINE RETHUNK KALLSYMS UNWINDER_ORC CRYPTO CRYPTO_XXHASH";

/// What is a module of it.
const MODULES: &[&str] = &[
    "XXHASH",
    "ZSTD_COMPRESS",
    "ZSTD_DECOMPRESS",
    "ZSTD_2017",
    "TEST",
    "PANIC_TEST",
];

/// The option under which modules export what that kernel lacks.
const KERNEL_NAMES: &str = "CONFIG_RESTOW_KERNEL_NAMES=y\n";

/// Exported symbols of modules in that kernel: module, name, and whether it is exported.
const EXPORTS: &[(&str, &str, bool)] = &[
    ("restow_xxhash", "restow_xxh64", true),
    // The kernel has it.
    ("restow_xxhash", "xxh64", false),
    ("restow_zstd_compress", "restow_zstd_init_cstream", true),
    ("restow_zstd_compress", "zstd_init_cstream", true),
    (
        "restow_zstd_decompress",
        "restow_zstd_decompress_dctx",
        true,
    ),
    ("restow_zstd_decompress", "zstd_decompress_dctx", true),
];

/// Puts the modules into the tree and builds it.
pub(super) fn tree(modules: &Modules) -> Outcome {
    let absent: Vec<&str> = (NEEDED.iter())
        .filter(|(name, _)| !tools::is_there(name))
        .map(|(_, package)| *package)
        .collect();
    if !absent.is_empty() {
        return missing(format!("run as root: apt-get install {}", absent.join(" ")));
    }
    match built(&modules.kernel) {
        Ok(findings) if findings.is_empty() => Outcome::passed(),
        Ok(findings) => Outcome {
            failed: findings,
            ..Outcome::default()
        },
        Err(reason) => Outcome::failed(reason),
    }
}

/// Builds the kernel with the modules, and gives what is not as it should be.
fn built(kernel: &Kernel) -> Result<Vec<String>, String> {
    let folder = out_folder().join(format!("tree-{}", kernel.version));
    let source = unpacked(kernel, &folder)?;
    let at = source.join("lib/restow");
    fill(&at)?;
    for (name, line) in [
        ("lib/Kconfig", "source \"lib/restow/Kconfig\"\n"),
        ("lib/Makefile", "obj-y += restow/\n"),
    ] {
        append(&source.join(name), line)?;
    }
    let config = folder.join("config");
    let mut lines = String::new();
    for word in CONFIG.split_whitespace() {
        lines += &format!("CONFIG_{word}=y\n");
    }
    for word in MODULES {
        lines += &format!("CONFIG_RESTOW_{word}=m\n");
    }
    lines += KERNEL_NAMES;
    fs::write(&config, lines).map_err(|error| format!("write {}: {error}", config.display()))?;
    let mut allnoconfig = make(&source);
    allnoconfig.arg("--silent").arg("allnoconfig");
    output_of(allnoconfig.env("KCONFIG_ALLCONFIG", &config))?;
    run_quietly(make(&source).args(["--silent", "bzImage", "modules"]))?;
    let mut findings = Vec::new();
    let built = modules_in(&at)?;
    for (module, name, is_exported) in EXPORTS {
        let Some((_, path)) = built
            .iter()
            .find(|(file, _)| *file == format!("{module}.ko"))
        else {
            findings.push(format!("there is no {module}.ko in the tree"));
            continue;
        };
        let symbols = output_of(Command::new("nm").arg(path))?;
        let symbol = format!(" __ksymtab_{name}");
        if symbols.lines().any(|line| line.ends_with(&symbol)) != *is_exported {
            let not = if *is_exported {
                "does not export"
            } else {
                "exports"
            };
            findings.push(format!("{module}.ko {not} {name}"));
        }
    }
    Ok(findings)
}

/// Unpacks the sources of exactly this kernel, unless they are there.
fn unpacked(kernel: &Kernel, folder: &Path) -> Result<PathBuf, String> {
    let place = folder.join("unpacked");
    if let Ok(source) = fs::read_to_string(&place) {
        return Ok(PathBuf::from(source));
    }
    let failed = |error| format!("write {}: {error}", place.display());
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(failed)?;
    let words = format!("--exclude '{}'", LEFT_OUT.join("' --exclude '"));
    let source = packages::sources(kernel, folder, &words)?;
    fs::write(&place, source.as_os_str().as_encoded_bytes()).map_err(failed)?;
    Ok(source)
}

/// Adds a line to a file that lacks it.
fn append(path: &Path, line: &str) -> Result<(), String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))?;
    if text.ends_with(line) {
        return Ok(());
    }
    fs::write(path, text + line).map_err(|error| format!("write {}: {error}", path.display()))
}
