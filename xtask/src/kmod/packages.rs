//! The kernel that the modules are built for: Debian's current one, unpacked from its packages and
//! not installed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::arch::Arch;
use super::folder::{files, make};
use crate::command::{output_of, run};
use crate::tools;

/// The metapackage whose dependency is the current kernel of a series: that of virtual machines,
/// which is the smallest. Without a series it is the distribution's own kernel.
fn headers_of(series: Option<&str>, arch: Arch) -> String {
    let arch = arch.name();
    match series {
        Some(series) => format!("linux-headers-{series}-cloud-{arch}"),
        None => format!("linux-headers-cloud-{arch}"),
    }
}

/// The shell of the booted machine.
const BUSYBOX: &str = "busybox-static";

/// An unpacked kernel.
pub(super) struct Kernel {
    /// What `uname -r` says of it.
    pub(super) release: String,
    /// The version of its packages.
    pub(super) version: String,
    /// Where modules are built for it.
    pub(super) headers: PathBuf,
    /// What boots.
    pub(super) image: PathBuf,
    /// Where its packages are unpacked.
    pub(super) root: PathBuf,
    /// Whether they are installed there, with a compiler that builds modules for it.
    pub(super) is_installed: bool,
    pub(super) arch: Arch,
}

/// The series that stands for the distribution's kernel for the other architecture.
const ARM64: &str = "arm64";

/// The series that stands for the kernel of another Debian, whose root [`NEWER_ROOT`] names.
const NEWEST: &str = "newest";

/// Names a root with a kernel that is newer than the distribution's, and the compiler of that.
const NEWER_ROOT: &str = "RESTOW_NEWER_ROOT";

/// Runs a command in a root that sees the folder of all that is built where it is here.
const IN_ROOT: &str = "unset MAKEFLAGS MFLAGS RUSTFLAGS; root=$1 out=$2; shift 2; mkdir -p \"$root$out\" && mount --bind \"$out\" \"$root$out\" && \
    mount -t proc proc \"$root/proc\" && exec chroot \"$root\" \"$@\"";

impl Kernel {
    /// `make` in the kernel's headers.
    pub(super) fn make(&self) -> Command {
        let mut plain = make(&self.headers);
        plain.args(self.arch.make_words());
        if !self.is_installed {
            return plain;
        }
        let mut command = self.in_root();
        command
            .arg("make")
            .args(
                plain
                    .get_args()
                    .filter(|word| *word != self.headers.as_os_str()),
            )
            .arg(format!("/usr/src/linux-headers-{}", self.release));
        command
    }

    /// Where a kernel is installed, the words before a command that runs there.
    fn in_root(&self) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", IN_ROOT])
            .arg("sh")
            .arg(&self.root)
            .arg(out_folder());
        command
    }

    /// The content of one of the kernel's own modules, unless that is built in.
    pub(super) fn module(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let mut find = Command::new("find");
        find.arg(self.root.join("lib/modules"));
        let found = output_of(find.args(["-name", &format!("{name}.ko*")]))?;
        let Some(path) = found.lines().next() else {
            return Ok(None);
        };
        if path.ends_with(".xz") {
            let output = Command::new("xz").args(["-dc", path]).output();
            return Ok(Some(output.map_err(|error| format!("xz: {error}"))?.stdout));
        }
        fs::read(path)
            .map(Some)
            .map_err(|error| format!("read {path}: {error}"))
    }
}

/// Where everything of the modules is built.
pub(super) fn out_folder() -> PathBuf {
    tools::target_dir().join("kmod")
}

/// The current kernel of a series, downloaded unless it is there.
pub(super) fn kernel(series: Option<&str>) -> Result<Kernel, String> {
    if series == Some(NEWEST) {
        return installed();
    }
    let (series, arch) = match series {
        Some(ARM64) => (None, Arch::Arm64),
        series => (series, Arch::Amd64),
    };
    let newest = headers_of(series, arch);
    // A fresh machine lacks the lists of packages, and old lists name packages that are gone.
    unpacked(&newest, arch).or_else(|_| {
        update(&newest, arch)?;
        unpacked(&newest, arch)
    })
}

/// A program of apt, for packages of an architecture: those of another one have lists of their own.
fn apt(program: &str, arch: Arch) -> Result<Command, String> {
    let mut command = Command::new(program);
    if arch == Arch::Arm64 {
        let lists = out_folder().join("apt-arm64");
        fs::create_dir_all(lists.join("partial"))
            .map_err(|error| format!("create {}: {error}", lists.display()))?;
        for option in [
            "APT::Architecture=arm64",
            "APT::Architectures=arm64,amd64",
            "APT::Sandbox::User=root",
            &format!("Dir::State::Lists={}", lists.display()),
            &format!("Dir::Cache={}", lists.display()),
        ] {
            command.args(["-o", option]);
        }
    }
    Ok(command)
}

/// The kernel of another Debian.
fn installed() -> Result<Kernel, String> {
    let root = env::var_os(NEWER_ROOT).filter(|_| tools::is_root());
    let root = PathBuf::from(root.ok_or_else(|| {
        format!("as root, {NEWER_ROOT} must name the root of a newer Debian: kmod/README.md")
    })?);
    let release = (files(&root.join("boot"))?.into_iter())
        .find_map(|(name, _)| name.strip_prefix("vmlinuz-").map(str::to_owned))
        .ok_or_else(|| format!("{} has no kernel", root.display()))?;
    let mut query = Command::new("dpkg-query");
    query.arg("--admindir").arg(root.join("var/lib/dpkg"));
    query.args(["-W", "-f", "${Version}"]);
    Ok(Kernel {
        version: output_of(query.arg(format!("linux-image-{release}")))?,
        headers: root.join(format!("usr/src/linux-headers-{release}")),
        image: root.join(format!("boot/vmlinuz-{release}")),
        root,
        release,
        is_installed: true,
        arch: Arch::Amd64,
    })
}

/// The kernel whose headers the metapackage `newest` depends on.
fn unpacked(newest: &str, arch: Arch) -> Result<Kernel, String> {
    let headers = depends(newest, arch)?
        .into_iter()
        .find(|name| name.starts_with("linux-headers-"))
        .ok_or_else(|| format!("{newest} depends on no headers"))?;
    let release = headers["linux-headers-".len()..].to_owned();
    let version = candidate(&headers, arch)?;
    let folder = out_folder().join(match arch {
        Arch::Amd64 => format!("kernel-{version}"),
        Arch::Arm64 => format!("kernel-{version}-arm64"),
    });
    let root = folder.join("root");
    let kernel = Kernel {
        headers: root.join("usr/src").join(&headers),
        image: root.join(format!("boot/vmlinuz-{release}")),
        root,
        version,
        release,
        is_installed: false,
        arch,
    };
    let unpacked = folder.join("unpacked");
    if !unpacked.is_file() {
        let _ = fs::remove_dir_all(&folder);
        let mut packages = depends(&headers, arch)?;
        // Not an image, of which there are two, nor the compiler, which is there.
        packages.retain(|name| name.starts_with("linux-") && !name.starts_with("linux-image-"));
        for name in &mut packages {
            // Its programs run here.
            if arch == Arch::Arm64 && name.starts_with("linux-kbuild-") {
                name.push_str(":amd64");
            }
        }
        packages.extend([
            format!("linux-image-{}", kernel.release),
            headers,
            BUSYBOX.to_owned(),
        ]);
        download_for(arch, &packages, &folder)?;
        unpack(&folder, &kernel)?;
        fs::write(&unpacked, "")
            .map_err(|error| format!("write {}: {error}", unpacked.display()))?;
    }
    Ok(kernel)
}

/// The package of the sources of a kernel, which has the same version.
pub(super) fn source_name(kernel: &Kernel) -> String {
    let mut numbers = kernel.version.split('.');
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    format!("linux-source-{major}.{minor}")
}

/// Unpacks the sources of a kernel into a folder, as far as these words for `tar` say, and gives
/// their folder in it.
pub(super) fn sources(kernel: &Kernel, folder: &Path, words: &str) -> Result<PathBuf, String> {
    let name = source_name(kernel);
    let archive = if kernel.is_installed {
        format!("cat {}/usr/src/{name}.tar.xz", kernel.root.display())
    } else {
        download(&[format!("{name}={}", kernel.version)], folder)?;
        format!("dpkg-deb --fsys-tarfile {name}_*.deb | tar -xOf - ./usr/src/{name}.tar.xz")
    };
    let script = format!("set -e; {archive} | xz -dc | tar -xf - {words}; rm -f {name}_*.deb");
    output_of(Command::new("sh").args(["-c", &script]).current_dir(folder))?;
    Ok(folder.join(name))
}

/// Asks for the lists of packages.
fn update(wanted: &str, arch: Arch) -> Result<(), String> {
    let mut command = apt("apt-get", arch)?;
    command.args(["update", "-q"]);
    if arch == Arch::Amd64 {
        let Some(prefix) = tools::root_prefix() else {
            return Err(format!("apt knows no {wanted}: apt-get update"));
        };
        let words = [prefix, &["apt-get", "update", "-q"]].concat();
        command = Command::new(words[0]);
        command.args(&words[1..]);
    }
    match run(&mut command).failed.pop() {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// The packages that a package depends on.
fn depends(package: &str, arch: Arch) -> Result<Vec<String>, String> {
    let list = output_of(apt("apt-cache", arch)?.args(["depends", package]))?;
    Ok(list
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .map(str::to_owned)
        .collect())
}

/// The version of a package that would be installed.
pub(super) fn candidate(package: &str, arch: Arch) -> Result<String, String> {
    let policy = output_of(apt("apt-cache", arch)?.args(["policy", package]))?;
    policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .map(str::to_owned)
        .ok_or_else(|| format!("apt knows no {package}"))
}

/// Downloads packages into a folder, which takes no root.
pub(super) fn download(packages: &[String], folder: &Path) -> Result<(), String> {
    download_for(Arch::Amd64, packages, folder)
}

fn download_for(arch: Arch, packages: &[String], folder: &Path) -> Result<(), String> {
    println!("downloading: {}", packages.join(" "));
    fs::create_dir_all(folder).map_err(|error| format!("create {}: {error}", folder.display()))?;
    let mut command = apt("apt-get", arch)?;
    command
        .args(["download", "-q"])
        .args(packages)
        .current_dir(folder);
    output_of(&mut command).map(drop)
}

/// Unpacks the packages of `folder` into the root of `kernel`, and lets the headers find each other
/// there.
fn unpack(folder: &Path, kernel: &Kernel) -> Result<(), String> {
    let failed = |error| format!("unpack {}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let package = entry.map_err(failed)?.path();
        if package
            .extension()
            .is_some_and(|extension| extension == "deb")
        {
            let mut command = Command::new("dpkg-deb");
            output_of(command.arg("-x").arg(&package).arg(&kernel.root))?;
            fs::remove_file(&package).map_err(failed)?;
        }
    }
    let makefile = kernel.headers.join("Makefile");
    let text = fs::read_to_string(&makefile).map_err(failed)?;
    let below = format!("include {}/usr/src/", kernel.root.display());
    fs::write(&makefile, text.replace("include /usr/src/", &below)).map_err(failed)
}
