//! Building the modules for a kernel, which must bring no warning of the compiler, objtool or
//! modpost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arch::Arch;
use super::folder::{files, make};
use super::packages::{self, Kernel, out_folder};
use crate::command::{line_of, output_of};
use crate::environment::{is_ci, root};
use crate::outcome::Outcome;
use crate::tools;

/// Modules that are built for a kernel.
pub(super) struct Modules {
    pub(super) kernel: Kernel,
    /// Where they lie, with the objects that they are linked from.
    pub(super) folder: PathBuf,
}

/// What this machine cannot do: a failure where nothing may be left out.
pub(super) fn missing(reason: String) -> Outcome {
    if is_ci() {
        Outcome::failed(reason)
    } else {
        Outcome::skipped(reason)
    }
}

/// The verdict on the modules, once they are built for the current kernel of a series.
pub(super) fn built(series: Option<&str>, then: impl FnOnce(&Modules) -> Outcome) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Outcome::skipped("the modules are for x86-64");
    }
    for program in ["apt-get", "dpkg-deb", "make", "objdump"] {
        if !tools::is_there(program) {
            return missing(format!("{program} is missing"));
        }
    }
    if let Err(reason) = tools::ensure_rust_source() {
        return missing(reason);
    }
    let kernel = match packages::kernel(series) {
        Ok(kernel) => kernel,
        Err(reason) => return missing(reason),
    };
    let compiler = kernel.arch.tool("gcc");
    if !tools::is_there(&compiler) {
        return missing(format!("{compiler} is missing"));
    }
    match build(kernel) {
        Ok(modules) => then(&modules),
        Err(reason) => Outcome::failed(reason),
    }
}

/// What `kmod/Makefile` gives to Kbuild.
const CONFIG: &[&str] = &[
    "CONFIG_RESTOW_XXHASH=m",
    "CONFIG_RESTOW_ZSTD_COMPRESS=m",
    "CONFIG_RESTOW_ZSTD_DECOMPRESS=m",
    "CONFIG_RESTOW_ZSTD_2017=m",
    "CONFIG_RESTOW_TEST=m",
    "CONFIG_RESTOW_PANIC_TEST=m",
    "CONFIG_DEBUG_INFO=",
    "CONFIG_DEBUG_INFO_BTF_MODULES=",
    "CONFIG_MODULE_SIG_ALL=",
];

/// Builds what is not up to date.
fn build(kernel: Kernel) -> Result<Modules, String> {
    let folder = out_folder().join(format!("modules-{}", kernel.release));
    if kernel.is_installed {
        archives()?;
        fill(&folder)?;
    }
    run_quietly(make_of(&kernel, &folder).arg("modules"))?;
    Ok(Modules { kernel, folder })
}

/// `make` of the modules for a kernel, in a folder.
pub(super) fn make_of(kernel: &Kernel, folder: &Path) -> Command {
    if kernel.is_installed {
        let mut command = kernel.make();
        command.arg(format!("M={}", folder.display())).args(CONFIG);
        return command;
    }
    let mut command = make_here();
    command
        .args(kernel.arch.make_words())
        .arg(format!("KDIR={}", kernel.headers.display()))
        .arg(format!("MODULES={}", folder.display()));
    command
}

/// `make` in the folder of the modules.
fn make_here() -> Command {
    let mut command = make(&root().join("kmod"));
    command
        .arg(format!("OUT={}", out_folder().display()))
        .arg(format!("RUSTC={}", tools::rustc().display()));
    command
}

/// Builds the archives, which are the same for every kernel.
pub(super) fn archives() -> Result<(), String> {
    run_quietly(make_here().arg("archives"))
}

/// Runs a build that must have nothing to say: a line with a warning of the compiler, objtool or
/// modpost is an error.
pub(super) fn run_quietly(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", line_of(command)))?;
    let words = String::from_utf8_lossy(&output.stderr);
    print!("{}{words}", String::from_utf8_lossy(&output.stdout));
    if !output.status.success() {
        return Err(format!("{}: {}", line_of(command), output.status));
    }
    // The standard output names what is built.
    match words.lines().find(|line| is_complaint(line)) {
        Some(line) => Err(format!("the build warns: {line}")),
        None => Ok(()),
    }
}

/// Whether a line of a build says that something is not as it should be.
fn is_complaint(line: &str) -> bool {
    let line = line.to_lowercase();
    ["warning", "error", "objtool", "undefined"]
        .iter()
        .any(|word| line.contains(word))
}

/// What `objdump` says of a file.
pub(super) fn objdump(arch: Arch, arguments: &[&str], file: &Path) -> Result<String, String> {
    output_of(Command::new(arch.tool("objdump")).args(arguments).arg(file))
}

/// The files that Kbuild builds the modules of, anywhere: names and paths.
pub(super) fn parts() -> Result<Vec<(String, PathBuf)>, String> {
    let mut parts = files(&out_folder().join("rust"))?;
    parts.retain(|(name, _)| name.ends_with(".a") || name.ends_with(".h"));
    for (name, path) in files(&root().join("kmod"))? {
        let is_source = name.ends_with(".c") || name.ends_with(".h");
        if is_source || ["Kbuild", "Kconfig", "merge.lds"].contains(&name.as_str()) {
            parts.push((name, path));
        }
    }
    Ok(parts)
}

/// Copies these files into a folder where they are built, unless they are there already: what is as
/// it was is not built again.
pub(super) fn fill(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("create {}: {error}", folder.display()))?;
    for (name, path) in parts()? {
        let to = folder.join(name);
        let content =
            fs::read(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
        if fs::read(&to).is_ok_and(|old| old == content) {
            continue;
        }
        fs::write(&to, content).map_err(|error| format!("write {}: {error}", to.display()))?;
    }
    Ok(())
}

/// The modules in a folder.
pub(super) fn modules_in(folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let mut found = files(folder)?;
    found.retain(|(name, _)| name.ends_with(".ko"));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_complaints() {
        assert!(is_complaint("x.o: warning: objtool: f(): naked return"));
        assert!(is_complaint("ERROR: modpost: \"f\" [x.ko] undefined!"));
        assert!(!is_complaint("  LD [M]  x.ko"));
    }
}
