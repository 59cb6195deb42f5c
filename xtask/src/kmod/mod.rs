//! The kernel modules of `kmod`: building them for Debian's current kernel, looking at what was built, and booting that kernel
//! with them.

mod boot;
mod consumers;
mod initramfs;
mod inspect;
mod packages;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::command::{line_of, output_of};
use crate::outcome::{Outcome, Report};
use crate::{is_ci, root, tools};
use packages::Kernel;

/// Modules that are built for a kernel.
struct Modules {
    kernel: Kernel,
    /// Where they lie, with the objects that they are linked from.
    folder: PathBuf,
}

/// Builds the modules and looks at what was built.
pub(crate) fn kmod(report: &mut Report, _: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod", || built(inspect::inspect));
}

/// Boots the kernel with the modules.
pub(crate) fn kmod_boot(report: &mut Report, _: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-boot", booted);
}

/// Boots the kernel with its own file systems on the modules.
pub(crate) fn kmod_consumers(report: &mut Report, _: &[String]) {
    report.step("tools", tools::ensure);
    report.step("kmod-consumers", || built(consumers::consumers));
}

/// The steps of the first two tasks, where the programs that they need are installed.
pub(crate) fn steps(report: &mut Report) {
    report.step("kmod", || built(inspect::inspect));
    report.step("kmod-boot", booted);
}

fn booted() -> Outcome {
    if !tools::is_there(boot::QEMU) {
        return missing(format!("{} is missing", boot::QEMU));
    }
    built(boot::boot)
}

/// What this machine cannot do: a failure where nothing may be left out.
fn missing(reason: String) -> Outcome {
    if is_ci() {
        Outcome::failed(reason)
    } else {
        Outcome::skipped(reason)
    }
}

/// What comes of the modules, once they are built.
fn built(then: impl FnOnce(&Modules) -> Outcome) -> Outcome {
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
    let kernel = match packages::kernel() {
        Ok(kernel) => kernel,
        Err(reason) => return missing(reason),
    };
    match build(kernel) {
        Ok(modules) => then(&modules),
        Err(reason) => Outcome::failed(reason),
    }
}

/// Where everything of the modules is built.
fn out_folder() -> PathBuf {
    tools::target_dir().join("kmod")
}

/// Builds what is not up to date.
fn build(kernel: Kernel) -> Result<Modules, String> {
    let folder = out_folder().join(format!("modules-{}", kernel.release));
    let mut command = make(&root().join("kmod"));
    command
        .arg(format!("KDIR={}", kernel.headers.display()))
        .arg(format!("OUT={}", out_folder().display()))
        .arg(format!("MODULES={}", folder.display()))
        .arg(format!("RUSTC={}", tools::rustc().display()));
    run_quietly(&mut command)?;
    Ok(Modules { kernel, folder })
}

/// `make` in a folder, with as many jobs as there are processors.
fn make(folder: &Path) -> Command {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("make");
    command.arg(format!("--jobs={jobs}")).arg("-C").arg(folder);
    // Those of the cargo that runs us mean something else there.
    for variable in ["MAKEFLAGS", "MFLAGS", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a build that must have nothing to say: a line with a warning of the compiler, objtool or modpost is an error.
fn run_quietly(command: &mut Command) -> Result<(), String> {
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
fn objdump(arguments: &[&str], file: &Path) -> Result<String, String> {
    output_of(Command::new("objdump").args(arguments).arg(file))
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
