//! Linux's own users of the codecs, built against our modules.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::output_of;
use crate::kmod::build::{Modules, modules_in, run_quietly};
use crate::kmod::packages;

/// Folders that are built: what they are taken from in the sources of Linux, and their makefile if
/// they need one.
const PARTS: &[Part] = &[
    (
        "xxhash",
        "crypto/xxhash_generic.c",
        "obj-m := xxhash_generic.o\n",
    ),
    ("zstd", "crypto/zstd.c", "obj-m := zstd.o\n"),
    ("squashfs", "fs/squashfs", ""),
    ("btrfs", "fs/btrfs", ""),
    (ZRAM, "drivers/block/zram", ""),
];

type Part = (&'static str, &'static str, &'static str);

/// The consumer that goes through the crypto API until it calls the codec itself: since Linux 6.12.
const ZRAM: &str = "zram";

/// The parts that a kernel has.
pub(super) fn parts(modules: &Modules) -> impl Iterator<Item = &'static Part> {
    let mut numbers = modules.kernel.version.split('.').map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let calls_codec = (next(), next()) >= (6, 12);
    PARTS
        .iter()
        .filter(move |(part, ..)| *part != ZRAM || calls_codec)
}

/// Takes the sources that are needed from their package.
pub(super) fn sources(modules: &Modules, folder: &Path) -> Result<(), String> {
    let taken = folder.join("taken");
    if taken.is_file() {
        return Ok(());
    }
    let failed = |error| format!("write {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let name = packages::source_name(&modules.kernel);
    let wanted: Vec<String> = parts(modules)
        .map(|(_, path, _)| format!("{name}/{path}"))
        .collect();
    let source = packages::sources(&modules.kernel, folder, &wanted.join(" "))?;
    for (part, path, kbuild) in parts(modules) {
        let (from, to) = (source.join(path), folder.join(part));
        if kbuild.is_empty() {
            fs::rename(&from, &to).map_err(failed)?;
        } else {
            fs::create_dir_all(&to).map_err(failed)?;
            let file = from.file_name().unwrap_or_default();
            fs::rename(&from, to.join(file)).map_err(failed)?;
            fs::write(to.join("Kbuild"), kbuild).map_err(failed)?;
        }
    }
    fs::write(&taken, "").map_err(failed)
}

/// Builds all parts, and sees that they call nothing of the kernel's own zstd and xxHash.
pub(super) fn build(modules: &Modules, folder: &Path) -> Result<(), String> {
    let at = modules.folder.display();
    for (part, ..) in parts(modules) {
        // Off in kernels for virtual machines, and needed where zram has dictionaries.
        let recompression = if *part == ZRAM {
            "-DCONFIG_ZRAM_MULTI_COMP=1"
        } else {
            ""
        };
        let mut command = modules.kernel.make();
        command
            .arg("--silent")
            .arg(format!("M={}", folder.join(part).display()))
            .arg(format!(
                "KCFLAGS=-include {at}/restow_zstd.h -include {at}/restow_xxhash.h {recompression}"
            ))
            .arg(format!("KBUILD_EXTRA_SYMBOLS={at}/Module.symvers"))
            .args([
                "CONFIG_DEBUG_INFO=",
                "CONFIG_DEBUG_INFO_BTF_MODULES=",
                "modules",
            ]);
        run_quietly(&mut command)?;
        for (_, module) in modules_in(&folder.join(part))? {
            let list = output_of(
                Command::new(modules.kernel.arch.tool("nm"))
                    .arg("-u")
                    .arg(&module),
            )?;
            let mut symbols = list
                .lines()
                .filter_map(|line| line.split_whitespace().nth(1));
            let is_kernels =
                |symbol: &&str| symbol.starts_with("zstd_") || symbol.starts_with("xxh");
            if let Some(symbol) = symbols.clone().find(is_kernels) {
                return Err(format!("{} calls the kernel's {symbol}", module.display()));
            }
            if !symbols.any(|symbol| symbol.starts_with("restow_")) {
                return Err(format!("{} calls nothing of ours", module.display()));
            }
        }
    }
    Ok(())
}
