//! The modules, installed beside those of the kernel as its users do it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Modules, make_of};
use super::initramfs::Initramfs;
use crate::command::output_of;

/// Modules that were installed.
pub(super) struct Installed {
    /// The folder of all modules of the kernel.
    folder: PathBuf,
    /// In it, each of ours with what it needs: lines of `modules.dep`.
    lines: Vec<String>,
    release: String,
}

/// Installs the modules with `make modules_install` beside a copy of the kernel's, which must still
/// find all that they need where they found it before.
pub(super) fn installed(modules: &Modules, scratch: &Path) -> Result<Installed, String> {
    let root = scratch.join("installed");
    let release = &modules.kernel.release;
    let folder = root.join("lib/modules").join(release);
    let failed = |error| format!("write {}: {error}", folder.display());
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("lib/modules")).map_err(failed)?;
    let mut copy = Command::new("cp");
    // A root that is named may be on another file system.
    let way = if modules.kernel.is_installed {
        "-a"
    } else {
        "-al"
    };
    copy.arg(way)
        .arg(modules.kernel.root.join("lib/modules").join(release));
    output_of(copy.arg(&folder))?;
    output_of(Command::new("depmod").arg("-b").arg(&root).arg(release))?;
    let before = dependencies(&folder)?;
    let mut install = make_of(&modules.kernel, &modules.folder);
    install.arg(format!("INSTALL_MOD_PATH={}", root.display()));
    output_of(install.args(["INSTALL_MOD_STRIP=1", "modules_install"]))?;
    if modules.kernel.is_installed {
        // Kbuild alone calls it only where the kernel was built.
        output_of(Command::new("depmod").arg("-b").arg(&root).arg(release))?;
    }
    let after = dependencies(&folder)?;
    for (module, needed) in &before {
        if after.get(module) != Some(needed) {
            return Err(format!(
                "{module} needs other modules since ours are installed: {:?}, {needed:?} before",
                after.get(module)
            ));
        }
    }
    let ours = after
        .iter()
        .filter(|(module, _)| !before.contains_key(*module));
    let lines: Vec<String> = ours
        .map(|(module, needed)| format!("{module}:{needed}"))
        .collect();
    if lines.len() != super::build::modules_in(&modules.folder)?.len() {
        return Err(format!("not all modules are installed: {lines:?}"));
    }
    Ok(Installed {
        folder,
        lines,
        release: release.clone(),
    })
}

impl Installed {
    /// Adds ours to the file system of a machine.
    pub(super) fn add_to(&self, archive: &mut Initramfs) -> Result<(), String> {
        let at = format!("lib/modules/{}", self.release);
        for line in &self.lines {
            let (module, _) = line.split_once(':').unwrap_or((line, ""));
            archive.host_file(&format!("{at}/{module}"), &self.folder.join(module))?;
        }
        let lines = self.lines.join("\n") + "\n";
        archive.file(&format!("{at}/modules.dep"), lines.as_bytes());
        Ok(())
    }
}

/// The needs of each module, as depmod found them.
fn dependencies(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let path = folder.join("modules.dep");
    let text =
        fs::read_to_string(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    Ok(lines
        .map(|(module, needed)| (module.to_owned(), needed.to_owned()))
        .collect())
}
