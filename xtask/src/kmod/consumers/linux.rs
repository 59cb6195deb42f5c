//! Linux's own users of the codecs, built against our modules.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::output_of;
use crate::kmod::build::{Modules, make, modules_in, run_quietly};
use crate::kmod::packages;

/// Folders that are built: what they are taken from in the sources of Linux, and their makefile if
/// they need one.
pub(super) const PARTS: &[(&str, &str, &str)] = &[
    (
        "xxhash",
        "crypto/xxhash_generic.c",
        "obj-m := xxhash_generic.o\n",
    ),
    ("zstd", "crypto/zstd.c", "obj-m := zstd.o\n"),
    ("squashfs", "fs/squashfs", ""),
    ("btrfs", "fs/btrfs", ""),
];

/// Takes the sources that are needed from their package.
pub(super) fn sources(modules: &Modules, folder: &Path) -> Result<(), String> {
    let taken = folder.join("taken");
    if taken.is_file() {
        return Ok(());
    }
    let version = &modules.kernel.version;
    let name = packages::source_name(&modules.kernel);
    packages::download(&[format!("{name}={version}")], folder)?;
    let mut wanted = PARTS.iter().map(|(_, path, _)| format!("{name}/{path}"));
    let script = format!(
        "set -e; dpkg-deb --fsys-tarfile {name}_*.deb | tar -xOf - ./usr/src/{name}.tar.xz | tar -xJf - {}; rm {name}_*.deb",
        wanted.by_ref().collect::<Vec<_>>().join(" ")
    );
    output_of(Command::new("sh").args(["-c", &script]).current_dir(folder))?;
    let failed = |error| format!("write {}: {error}", folder.display());
    for (part, path, kbuild) in PARTS {
        let (from, to) = (folder.join(&name).join(path), folder.join(part));
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
    for (part, ..) in PARTS {
        let mut command = make(&modules.kernel.headers);
        command
            .arg("--silent")
            .arg(format!("M={}", folder.join(part).display()))
            .arg(format!(
                "KCFLAGS=-include {at}/restow_zstd.h -include {at}/restow_xxhash.h"
            ))
            .arg(format!("KBUILD_EXTRA_SYMBOLS={at}/Module.symvers"))
            .args([
                "CONFIG_DEBUG_INFO=",
                "CONFIG_DEBUG_INFO_BTF_MODULES=",
                "modules",
            ]);
        run_quietly(&mut command)?;
        for (_, module) in modules_in(&folder.join(part))? {
            let list = output_of(Command::new("nm").arg("-u").arg(&module))?;
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
