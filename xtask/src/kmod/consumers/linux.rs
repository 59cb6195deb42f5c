//! Linux's own users of the codecs, built against our modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::output_of;
use crate::kmod::build::{Modules, modules_in, run_quietly};
use crate::kmod::packages;

/// A consumer.
pub(super) struct Consumer {
    /// The folder that it is built in.
    name: &'static str,
    /// Where it is in the sources of Linux.
    source: &'static str,
    /// Its makefile, if it needs one.
    kbuild: &'static str,
    /// Options that are switched on, beside those of the kernel.
    options: &'static [&'static str],
    /// The first Linux in which it calls the codec.
    since: (u32, u32),
}

impl Consumer {
    const fn new(name: &'static str, source: &'static str) -> Self {
        Self {
            name,
            source,
            kbuild: "",
            options: &[],
            since: (0, 0),
        }
    }
}

const XXHASH: Consumer = Consumer {
    kbuild: "obj-m := xxhash_generic.o\n",
    ..Consumer::new("xxhash", "crypto/xxhash_generic.c")
};
const ZSTD: Consumer = Consumer {
    kbuild: "obj-m := zstd.o\n",
    ..Consumer::new("zstd", "crypto/zstd.c")
};
const BTRFS: Consumer = Consumer::new("btrfs", "fs/btrfs");
const ZRAM: Consumer = Consumer {
    // Off in kernels for virtual machines, and needed where zram has dictionaries.
    options: &["ZRAM_MULTI_COMP"],
    since: (6, 12),
    ..Consumer::new("zram", "drivers/block/zram")
};
const F2FS: Consumer = Consumer {
    // Off in kernels for virtual machines.
    options: &["F2FS_FS_XATTR", "F2FS_FS_COMPRESSION", "F2FS_FS_ZSTD"],
    ..Consumer::new("f2fs", "fs/f2fs")
};
const EROFS: Consumer = Consumer {
    options: &["EROFS_FS_ZIP_ZSTD"],
    since: (6, 10),
    ..Consumer::new("erofs", "fs/erofs")
};

/// The parts that are tried on every kernel.
pub(super) const ALL: &[Consumer] = &[
    XXHASH,
    ZSTD,
    Consumer::new("squashfs", "fs/squashfs"),
    BTRFS,
    ZRAM,
];

/// The file systems that programs of fstests exercise.
pub(super) const EXERCISED: &[Consumer] = &[BTRFS, F2FS, EROFS];

/// The parts that a kernel has, of these.
pub(super) fn parts(of: &'static [Consumer], modules: &Modules) -> Vec<&'static Consumer> {
    let mut numbers = modules.kernel.version.split('.').map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let version = (next(), next());
    of.iter().filter(|part| part.since <= version).collect()
}

impl Consumer {
    /// The modules that are built of it.
    pub(super) fn modules(&self, folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
        modules_in(&folder.join(self.name))
    }
}

/// Takes the sources that are needed from their package.
pub(super) fn sources(parts: &[&Consumer], modules: &Modules, folder: &Path) -> Result<(), String> {
    let taken = folder.join("taken");
    if taken.is_file() {
        return Ok(());
    }
    let failed = |error| format!("write {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let name = packages::source_name(&modules.kernel);
    let wanted: Vec<String> = (parts.iter())
        .map(|part| format!("{name}/{}", part.source))
        .collect();
    let source = packages::sources(&modules.kernel, folder, &wanted.join(" "))?;
    for part in parts {
        let (from, to) = (source.join(part.source), folder.join(part.name));
        if part.kbuild.is_empty() {
            fs::rename(&from, &to).map_err(failed)?;
        } else {
            fs::create_dir_all(&to).map_err(failed)?;
            let file = from.file_name().unwrap_or_default();
            fs::rename(&from, to.join(file)).map_err(failed)?;
            fs::write(to.join("Kbuild"), part.kbuild).map_err(failed)?;
        }
    }
    fs::write(&taken, "").map_err(failed)
}

/// Builds all parts, and sees that they call nothing of the kernel's own zstd and xxHash.
pub(super) fn build(parts: &[&Consumer], modules: &Modules, folder: &Path) -> Result<(), String> {
    let at = modules.folder.display();
    for part in parts {
        let defined: String = (part.options.iter())
            .map(|option| format!(" -DCONFIG_{option}=1"))
            .collect();
        let mut command = modules.kernel.make();
        command
            .arg("--silent")
            .arg(format!("M={}", folder.join(part.name).display()))
            .arg(format!(
                "KCFLAGS=-include {at}/restow_zstd.h -include {at}/restow_xxhash.h{defined}"
            ))
            .arg(format!("KBUILD_EXTRA_SYMBOLS={at}/Module.symvers"))
            .args((part.options.iter()).map(|option| format!("CONFIG_{option}=y")))
            .args([
                "CONFIG_F2FS_FS=m",
                "CONFIG_DEBUG_INFO=",
                "CONFIG_DEBUG_INFO_BTF_MODULES=",
                "modules",
            ]);
        run_quietly(&mut command)?;
        for (_, module) in part.modules(folder)? {
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
