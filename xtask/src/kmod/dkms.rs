//! The Debian package that builds the modules with DKMS, and a machine that installs it, boots from
//! btrfs and SquashFS with it, and removes it: `kmod/init-dkms`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arch::Arch;
use super::build::{archives, missing, parts};
use super::folder::files;
use super::machine::Machine;
use super::packages::{candidate, out_folder};
use crate::command::{build_restow, output_of};
use crate::environment::root;
use crate::outcome::Outcome;
use crate::package::{packed, put, version, write};
use crate::tools;

/// The fields of its control file that no other package has.
const FIELDS: &str = "Depends: dkms\n\
    Recommends: linux-headers-amd64\n\
    Section: kernel\n\
    Priority: optional\n\
    Description: kernel modules of xxHash and Zstandard (DKMS)\n \
    restow_xxhash, restow_zstd_compress, restow_zstd_decompress and\n \
    restow_zstd_2017 have the functions of <linux/xxhash.h> and <linux/zstd.h>,\n \
    written in Rust, under names that begin with restow_; three more modules are\n \
    devices that measure them. DKMS builds them for each installed kernel. The\n \
    package holds compiled Rust, so that this needs no Rust compiler.\n";

/// The Debian packages of the machine's root.
const ROOT: &str = "dkms,linux-image-cloud-amd64,linux-headers-cloud-amd64,initramfs-tools,zstd,\
    btrfs-progs,busybox-static";

/// Processor time for building the modules and an initramfs in it, in seconds: several times what
/// that takes.
const BOOT_SECONDS_MAX: u64 = 1800;

/// The bytes of the disk that takes an initramfs.
const INITRAMFS_MAX: u64 = 256 << 20;

/// Makes the package in a folder.
pub(super) fn package(folder: &Path) -> Result<PathBuf, String> {
    tools::ensure_rust_source()?;
    archives()?;
    let tree = folder.join("dkms");
    let _ = fs::remove_dir_all(&tree);
    let sources = tree.join("usr/src").join(format!("restow-{}", version()?));
    for (name, path) in parts()? {
        // A panic on purpose is no part of it.
        if !name.contains("panic_test") {
            put(&path, &sources.join(name), 0o644)?;
        }
    }
    let kmod = root().join("kmod");
    for (name, to, mode) in [
        ("dkms.conf", sources, 0o644),
        ("postinst", tree.join("DEBIAN"), 0o755),
        ("prerm", tree.join("DEBIAN"), 0o755),
    ] {
        let from = kmod.join("dkms").join(name);
        let text = fs::read_to_string(&from)
            .map_err(|error| format!("read {}: {error}", from.display()))?;
        let to = to.join(name);
        put(&from, &to, mode)?;
        write(&to, &text.replace("@VERSION@", &version()?))?;
    }
    packed(&tree, "restow-dkms", &kmod.join("README.md"), FIELDS)
}

/// Installs the package in a Debian on btrfs, boots it again, also from SquashFS, and removes it.
pub(super) fn dkms() -> Outcome {
    if !tools::is_root() {
        return missing("only root can make the machine's root".to_owned());
    }
    for program in ["mmdebstrap", Arch::Amd64.qemu()] {
        if !tools::is_there(program) {
            return missing(format!("{program} is missing"));
        }
    }
    booted(&out_folder().join("dkms")).unwrap_or_else(Outcome::failed)
}

fn booted(folder: &Path) -> Result<Outcome, String> {
    let at = debian(folder)?;
    let boot = files(&at.join("boot"))?;
    let of = |start: &str| {
        let file = boot.iter().find(|(name, _)| name.starts_with(start));
        file.map(|(_, path)| path.as_path())
            .ok_or_else(|| format!("{} has no {start}", at.display()))
    };
    let (kernel, initrd) = (of("vmlinuz-")?, of("initrd.img-")?);
    build_restow()?;
    let [btrfs, squashfs, made] =
        ["root.btrfs", "root.squashfs", "initrd"].map(|name| folder.join(name));
    let copy = |from: &Path, to: &Path, options: &[&str]| {
        let mut copy = Command::new(tools::target_dir().join("debug/restow"));
        copy.args(["copy", "--quiet", "--overwrite"]).args(options);
        output_of(copy.arg(from).arg(to)).map(drop)
    };
    copy(&at, &btrfs, &["--compress", "zstd:1", "--slack", "1G"])?;
    let boot = |stage: &str, kind: &str, disk: &Path, initrd: &Path| {
        fs::File::create(&made)
            .and_then(|file| file.set_len(INITRAMFS_MAX))
            .map_err(|error| format!("write {}: {error}", made.display()))?;
        let mut machine = Machine::new(Arch::Amd64, kernel, initrd);
        machine.options(["-m", "1G", "-smp", "1"]);
        let mode = if kind == "btrfs" { "rw" } else { "ro" };
        // It builds for minutes where other work runs beside it: that is no lockup.
        machine.kernel_words(&format!(
            "root=/dev/vda rootfstype={kind} {mode} init=/init-dkms stage={stage} \
             nowatchdog rcupdate.rcu_cpu_stall_suppress=1"
        ));
        machine.disk(disk, "cache=unsafe");
        machine.disk(&made, "cache=unsafe");
        println!("{stage}, {kind}:");
        Ok::<_, String>(machine.run(BOOT_SECONDS_MAX))
    };
    let with = folder.join("initrd-with");
    let without = folder.join("initrd-without");
    let keep = |to: &Path| {
        let mut content =
            fs::read(&made).map_err(|error| format!("read {}: {error}", made.display()))?;
        // The disk is larger than the file in it.
        let end = content.iter().rposition(|&byte| byte != 0);
        content.truncate(end.map_or(0, |last| last + 1));
        fs::write(to, content).map_err(|error| format!("write {}: {error}", to.display()))
    };
    let mut outcome = boot("install", "btrfs", &btrfs, initrd)?;
    keep(&with)?;
    copy(&btrfs, &squashfs, &[])?;
    outcome.add(boot("try", "squashfs", &squashfs, &with)?);
    outcome.add(boot("remove", "btrfs", &btrfs, &with)?);
    keep(&without)?;
    outcome.add(boot("gone", "btrfs", &btrfs, &without)?);
    output_of(
        Command::new("btrfs")
            .args(["check", "--check-data-csum"])
            .arg(&btrfs),
    )?;
    Ok(outcome)
}

/// A Debian with DKMS and our package, not installed yet.
fn debian(folder: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("write {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let at = folder.join(format!(
        "root-{}",
        candidate("linux-image-cloud-amd64", Arch::Amd64)?
    ));
    let done = at.join("functions");
    if !done.is_file() {
        let _ = fs::remove_dir_all(&at);
        let mut mmdebstrap = Command::new("mmdebstrap");
        mmdebstrap.args([
            "--quiet",
            "--variant=minbase",
            "--include",
            ROOT,
            "bookworm",
        ]);
        output_of(mmdebstrap.arg(&at))?;
    }
    put(&package(folder)?, &at.join("restow-dkms.deb"), 0o644)?;
    for (name, to) in [("init-dkms", "init-dkms"), ("init-functions", "functions")] {
        put(&root().join("kmod").join(name), &at.join(to), 0o755)?;
    }
    // Few modules, or else a machine without virtualisation makes its initramfs for minutes.
    let initramfs = at.join("etc/initramfs-tools");
    write(&initramfs.join("conf.d/few"), "MODULES=list\n")?;
    write(
        &initramfs.join("modules"),
        "virtio_pci\nvirtio_blk\nbtrfs\nsquashfs\n",
    )?;
    // Without systemd, nothing switches the machine off.
    let off = at.join("usr/local/sbin/poweroff");
    let _ = fs::remove_file(&off);
    std::os::unix::fs::symlink("/bin/busybox", off).map_err(failed)?;
    Ok(at)
}
