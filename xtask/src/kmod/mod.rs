//! The kernel modules of `kmod`: building them for a kernel of Debian's, looking at what was built,
//! and booting that kernel with them.

mod arch;
mod boot;
mod build;
mod consumers;
mod dkms;
mod folder;
mod icount;
mod initramfs;
mod inspect;
mod install;
mod listing;
mod machine;
mod measure;
mod original;
mod packages;
mod page;
mod series;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::output_of;
use crate::environment::root;
use crate::outcome::{Outcome, Report};
use crate::tools;
use build::{Modules, built, missing};

/// Builds the modules and inspects them; an argument names another kernel than the current one,
/// such as 6.12 or arm64.
pub(crate) fn kmod(report: &mut Report, arguments: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod", || built(series(arguments), inspect::inspect));
}

/// Boots the kernel with the modules.
pub(crate) fn kmod_boot(report: &mut Report, arguments: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-boot", || booted(series(arguments), boot::boot));
}

/// Boots the kernel with its own file systems on the modules.
pub(crate) fn kmod_consumers(report: &mut Report, arguments: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-consumers", || consumers(series(arguments)));
}

/// What comes of Linux's own users of the codecs on the modules.
pub(crate) fn consumers(series: Option<&str>) -> Outcome {
    booted(series, consumers::consumers)
}

/// Boots the kernel with file systems on the modules that programs of fstests exercise.
pub(crate) fn kmod_exercise(report: &mut Report, arguments: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-exercise", || exercise(series(arguments)));
}

/// File systems on the modules, exercised by programs of fstests.
pub(crate) fn exercise(series: Option<&str>) -> Outcome {
    booted(series, consumers::exercise)
}

/// The kernels in which instructions are counted.
const COUNTED: [Option<&str>; 2] = [None, Some("6.12")];

/// Counts the instructions of Linux's zstd and of ours for files.
pub(crate) fn kmod_icount(report: &mut Report, paths: &[String]) {
    report.step("tools", tools::ensure);
    if paths.is_empty() {
        return report.step("kmod-icount", || Outcome::failed("name files to measure"));
    }
    let commit = output_of(Command::new("git").args(["describe", "--always", "--dirty"]));
    let mut table = format!(
        "`cargo xtask kmod-icount {}` on {}\n",
        page::names(paths).join(" "),
        commit.as_deref().map_or("an unknown commit", str::trim),
    );
    for series in COUNTED {
        let step = format!("kmod-icount {}", series.unwrap_or("current"));
        report.step(&step, || {
            booted(series, |modules| icount::icount(modules, paths, &mut table))
        });
    }
    if !report.failed() {
        report.step("docs/BENCHMARKS.md", || page::put("icount", &table).into());
    }
}

/// The tables of the original commit beside ours, for a file.
pub(crate) fn kmod_original(report: &mut Report, arguments: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-original", || match arguments {
        [path] => booted(None, |modules| original::original(modules, path)),
        _ => Outcome::failed("name one file, such as silesia.tar"),
    });
}

/// Builds a kernel tree with the modules in it.
pub(crate) fn kmod_tree(report: &mut Report, arguments: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-tree", || tree(series(arguments)));
}

/// Makes the patches for a kernel tree.
pub(crate) fn kmod_series(report: &mut Report, arguments: &[String]) {
    report.step("kmod-series", || {
        let [tree, folder] = arguments else {
            return Outcome::failed("name a kernel tree, and a folder for the patches");
        };
        let patches = series::series(Path::new(tree), Path::new(folder));
        let shown = |path: &PathBuf| println!("{}", path.display());
        patches.map(|patches| patches.iter().for_each(shown)).into()
    });
}

/// The verdict on the modules in a kernel tree.
pub(crate) fn tree(series: Option<&str>) -> Outcome {
    built(series, tree::tree)
}

/// Installs, boots and removes the package for DKMS.
pub(crate) fn kmod_dkms(report: &mut Report, _: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-dkms", dkms);
}

/// Installs, boots and removes the package for DKMS in a machine.
pub(crate) fn dkms() -> Outcome {
    dkms::dkms()
}

/// Makes the package for DKMS, in the folder that is named.
pub(crate) fn kmod_deb(report: &mut Report, arguments: &[String]) {
    report.step("kmod-deb", || {
        if !cfg!(target_arch = "x86_64") {
            return Outcome::skipped("the modules are for x86-64");
        }
        let folder = match arguments.first() {
            Some(folder) => root().join(folder),
            None => tools::target_dir().join("package/kmod"),
        };
        let made = dkms::package(&folder);
        made.map(|package| println!("{}", package.display())).into()
    });
}

/// The steps of the first two tasks, where the programs that they need are installed.
pub(crate) fn steps(report: &mut Report) {
    report.step("kmod", || built(None, inspect::inspect));
    report.step("kmod-boot", || booted(None, boot::boot));
}

fn series(arguments: &[String]) -> Option<&str> {
    arguments.first().map(String::as_str)
}

/// The verdict on the modules for arm64: as they are built, in a machine, and under Linux's own
/// file systems there.
pub(crate) fn arm64() -> Outcome {
    booted(Some("arm64"), |modules| {
        let mut outcome = inspect::inspect(modules);
        outcome.add(boot::boot(modules));
        outcome.add(consumers::consumers(modules));
        outcome
    })
}

/// The verdict on the modules in a machine.
fn booted(series: Option<&str>, then: impl FnOnce(&Modules) -> Outcome) -> Outcome {
    built(series, |modules| {
        let qemu = modules.kernel.arch.qemu();
        if tools::is_there(qemu) {
            then(modules)
        } else {
            missing(format!("{qemu} is missing"))
        }
    })
}
