//! What users install: man pages and completions, a static program, a Debian package.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, output_of, run, succeeds};
use crate::debian_changelog;
use crate::environment::root;
use crate::outcome::{Outcome, Report};
use crate::tools::{ensure_target, is_there, target_dir};

/// The target of the static program: musl is linked into it.
const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";

/// The length of `restow-patch`, which devices hold beside their system.
const PATCH_BYTES_MAX: u64 = 1_000_000;

/// Who answers for the Debian package.
const MAINTAINER: &str = "The restow authors <restow@packages.invalid>";

/// What the package says about itself, after the first line.
const DESCRIPTION: &str = concat!(
    " restow copies Linux file trees between directories, tar archives, SquashFS\n",
    " images, btrfs images and btrfs send streams, and keeps data compressed where\n",
    " the destination can hold it as it is stored. It also lists, compares, checks\n",
    " and describes them, and mounts them read-only through FUSE.",
);

/// Where the program has the names of others, for the front of PATH: other packages own these names
/// in `usr/bin`.
const LINKS: &str = "usr/lib/restow/bin";

/// Packs the crates that are published, and builds each from its package before those that depend
/// on it.
pub(crate) fn crates(report: &mut Report, arguments: &[String]) {
    report.step("package", || {
        run(cargo(["publish", "--dry-run", "--workspace"]).args(arguments))
    });
}

/// Man pages and completions, below the folder that is named.
pub(crate) fn pages(report: &mut Report, arguments: &[String]) {
    let folder = folder(arguments, "pages");
    report.step("pages", || outcome(make_pages(&folder)));
}

/// The static programs, or only the one that is named.
pub(crate) fn static_program(report: &mut Report, arguments: &[String]) {
    let is_selected = |name: &str| arguments.is_empty() || arguments.iter().any(|it| it == name);
    if is_selected("restow") {
        report.step("static", static_restow);
    }
    if is_selected("restow-patch") {
        report.step("static: restow-patch", || {
            static_patch(&["--features", "encode"])
        });
        report.step("static: restow-patch, no encoder", || static_patch(&[]));
    }
}

fn static_restow() -> Outcome {
    if let Err(reason) = ensure_target(STATIC_TARGET) {
        return Outcome::skipped(reason);
    }
    let mut build = cargo(["build", "--release", "--locked", "--package", "restow-cli"]);
    let built = run(build.args(["--target", STATIC_TARGET]));
    if !built.failed.is_empty() {
        return built;
    }
    let program = target_dir().join(STATIC_TARGET).join("release/restow");
    outcome(runs_in_an_empty_root(&program))
}

fn static_patch(features: &[&str]) -> Outcome {
    if let Err(reason) = ensure_target(STATIC_TARGET) {
        return Outcome::skipped(reason);
    }
    let mut build = cargo(["build", "--profile", "small", "--locked"]);
    let package = ["--package", "restow-patch", "--no-default-features"];
    let target = ["--target", STATIC_TARGET];
    let built = run(build.args(package).args(target).args(features));
    if !built.failed.is_empty() {
        return built;
    }
    let program = target_dir().join(STATIC_TARGET).join("small/restow-patch");
    outcome(runs_in_an_empty_root(&program).and_then(|()| patch_bytes(&program).map(drop)))
}

/// How many bytes `restow-patch` has; too many are an error.
pub(crate) fn patch_bytes(program: &Path) -> Result<u64, String> {
    match at(program, fs::metadata(program))?.len() {
        bytes if bytes > PATCH_BYTES_MAX => Err(format!(
            "restow-patch has {bytes} bytes; {PATCH_BYTES_MAX} are allowed"
        )),
        bytes => Ok(bytes),
    }
}

/// The Debian package, in the folder that is named; built, inspected, installed and removed.
pub(crate) fn deb(report: &mut Report, arguments: &[String]) {
    let folder = folder(arguments, "deb");
    if !is_there("dpkg-deb") {
        let reason = "dpkg-deb: apt-get install dpkg".to_owned();
        return report.step("deb", || Outcome::skipped(reason));
    }
    let mut package = None;
    report.step("deb", || match make_deb(&folder) {
        Ok(made) => {
            println!("{}", made.display());
            package = Some(made);
            Outcome::passed()
        }
        Err(reason) => Outcome::failed(reason),
    });
    let Some(package) = package else { return };
    report.step("deb: install and remove", || {
        outcome(install(&package, &folder))
    });
    report.step("deb: lintian", || {
        if !is_there("lintian") {
            return Outcome::skipped("lintian: apt-get install lintian");
        }
        let mut lintian = Command::new("lintian");
        run(lintian
            .args(["--fail-on", "error", "--tag-display-limit", "0"])
            .arg(&package))
    });
}

fn folder(arguments: &[String], name: &str) -> PathBuf {
    match arguments.first() {
        Some(folder) => root().join(folder),
        None => target_dir().join("package").join(name),
    }
}

fn outcome(result: Result<(), String>) -> Outcome {
    result.map_or_else(Outcome::failed, |()| Outcome::passed())
}

fn done(command: &mut Command) -> Result<(), String> {
    output_of(command).map(drop)
}

/// Names what failed.
pub(crate) fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

fn make_pages(folder: &Path) -> Result<(), String> {
    if folder.exists() {
        at(folder, fs::remove_dir_all(folder))?;
    }
    let mut write = cargo(["run", "--quiet", "--package", "restow-cli"]);
    done(
        write
            .args(["--features", "pages", "--", "pages"])
            .arg(folder),
    )?;
    let mut pages = names(&folder.join("man1"))?;
    pages.sort();
    for page in &pages {
        if is_there("mandoc") {
            let mut lint = Command::new("mandoc");
            lint.args(["-T", "lint", "-W", "warning"]).arg(page);
            done(&mut lint).map_err(|words| format!("{}: {words}", page.display()))?;
        }
    }
    for (shell, file) in [
        ("bash", "restow.bash"),
        ("zsh", "_restow"),
        ("fish", "restow.fish"),
    ] {
        let file = folder.join("completions").join(file);
        if is_there(shell) {
            done(Command::new(shell).arg("-n").arg(&file))?;
        }
    }
    println!("{} man pages in {}", pages.len(), folder.display());
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = at(folder, fs::read_dir(folder))?;
    entries
        .map(|entry| at(folder, entry).map(|entry| entry.path()))
        .collect()
}

/// Runs the program where there is no library, no device and no other file.
fn runs_in_an_empty_root(program: &Path) -> Result<(), String> {
    let size = at(program, fs::metadata(program))?.len();
    println!("{}: {size} bytes", program.display());
    let empty = target_dir().join("package/empty");
    let _ = fs::remove_dir_all(&empty);
    at(&empty, fs::create_dir_all(&empty))?;
    at(program, fs::copy(program, empty.join("program")))?;
    // Without root, a user namespace gives the right to change the root.
    let mut chroot = Command::new("unshare");
    chroot
        .args(["--user", "--map-root-user", "chroot"])
        .arg(&empty);
    let mut direct = Command::new("chroot");
    direct.arg(&empty);
    let mut command = if succeeds(Command::new("unshare").args(["--user", "true"])) {
        chroot
    } else {
        direct
    };
    let version = output_of(command.args(["/program", "--version"]))?;
    println!("in an empty root: {}", version.trim());
    Ok(())
}

/// Builds the package and gives its path.
fn make_deb(folder: &Path) -> Result<PathBuf, String> {
    let pages = folder.join("pages");
    make_pages(&pages)?;
    done(&mut cargo([
        "build",
        "--release",
        "--locked",
        "--package",
        "restow-cli",
    ]))?;
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(&tree);
    let program = target_dir().join("release/restow");
    put(&program, &tree.join("usr/bin/restow"), 0o755)?;
    let links = tree.join(LINKS);
    at(&links, fs::create_dir_all(&links))?;
    for name in other_programs()? {
        let link = links.join(name);
        at(&link, symlink("../../../bin/restow", &link))?;
    }
    for page in names(&pages.join("man1"))? {
        let name = page.file_name().unwrap_or_default();
        let to = tree.join("usr/share/man/man1").join(name);
        put(&page, &to, 0o644)?;
        done(Command::new("gzip").arg("-9n").arg(&to))?;
    }
    for (file, to) in [
        (
            "restow.bash",
            "usr/share/bash-completion/completions/restow",
        ),
        ("_restow", "usr/share/zsh/vendor-completions/_restow"),
        (
            "restow.fish",
            "usr/share/fish/vendor_completions.d/restow.fish",
        ),
    ] {
        put(&pages.join("completions").join(file), &tree.join(to), 0o644)?;
    }
    let fields = format!(
        "Depends: {}\nSection: utils\nPriority: optional\n\
         Description: copies file trees between archives, images and send streams\n{DESCRIPTION}\n",
        libraries(&program)?
    );
    packed(&tree, "restow", &root().join("README.md"), &fields)
}

/// Adds the documents of every package to a tree, and packs it beside it; `fields` are those of the
/// control file that differ.
pub(crate) fn packed(
    tree: &Path,
    name: &str,
    readme: &Path,
    fields: &str,
) -> Result<PathBuf, String> {
    let doc = tree.join("usr/share/doc").join(name);
    write(&doc.join("changelog"), &changelog()?)?;
    done(Command::new("gzip").arg("-9n").arg(doc.join("changelog")))?;
    put(readme, &doc.join("README.md"), 0o644)?;
    write(&doc.join("copyright"), &copyright()?)?;
    write(
        &tree.join("DEBIAN/control"),
        &(control(name, tree)? + fields),
    )?;
    write(&tree.join("DEBIAN/md5sums"), &sums(tree)?)?;
    let package = tree.with_file_name(format!("{name}_{}_{}.deb", version()?, architecture()?));
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group", "--build"])
        .arg(tree)
        .arg(&package);
    done(&mut build)?;
    Ok(package)
}

/// The programs whose command lines are taken: a section of docs/compat.md each.
fn other_programs() -> Result<Vec<String>, String> {
    let path = root().join("docs/compat.md");
    let page = at(&path, fs::read_to_string(&path))?;
    let names = page.lines().filter_map(|line| line.strip_prefix("## "));
    Ok(names.map(str::to_owned).collect())
}

/// Copies a file, with this mode in whatever folder is needed.
pub(crate) fn put(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let parent = to.parent().unwrap_or(to);
    at(parent, fs::create_dir_all(parent))?;
    at(from, fs::copy(from, to))?;
    at(
        to,
        fs::set_permissions(to, fs::Permissions::from_mode(mode)),
    )
}

pub(crate) fn write(to: &Path, words: &str) -> Result<(), String> {
    let parent = to.parent().unwrap_or(to);
    at(parent, fs::create_dir_all(parent))?;
    at(to, fs::write(to, words))
}

pub(crate) fn version() -> Result<String, String> {
    let manifest = root().join("Cargo.toml");
    let text = at(&manifest, fs::read_to_string(&manifest))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|rest| rest.split('"').next());
    version
        .map(str::to_owned)
        .ok_or("Cargo.toml has no version".to_owned())
}

fn architecture() -> Result<String, String> {
    let name = output_of(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(name.trim().to_owned())
}

/// Debian's form of the changelog. What is not released yet has the date of its last commit.
fn changelog() -> Result<String, String> {
    let path = root().join("CHANGELOG.md");
    let text = at(&path, fs::read_to_string(&path))?;
    let mut last = Command::new("git");
    last.args(["log", "-1", "--format=%cD"]).current_dir(root());
    let date = output_of(&mut last)?;
    debian_changelog::of(&text, &version()?, date.trim(), MAINTAINER, |day| {
        let mut date = Command::new("date");
        let date = output_of(date.env("LC_ALL", "C").args(["--utc", "-R", "-d", day]))?;
        Ok(date.trim().to_owned())
    })
}

/// The licences. The libraries that are linked into the program are listed by name.
fn copyright() -> Result<String, String> {
    let mit = root().join("LICENSE-MIT");
    let mit = at(&mit, fs::read_to_string(&mit))?;
    let mut words = String::from(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: restow\n\n\
         Files: *\nCopyright: the restow authors\nLicense: MIT or Apache-2.0\n\n\
         License: Apache-2.0\n On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n\n\
         License: MIT\n",
    );
    for line in mit.lines() {
        words += if line.is_empty() { " ." } else { " " };
        words += line;
        words.push('\n');
    }
    Ok(words)
}

/// The fields of a control file that every package has.
fn control(name: &str, tree: &Path) -> Result<String, String> {
    let sizes = output_of(
        Command::new("du")
            .args(["-sk", "--apparent-size"])
            .arg(tree),
    )?;
    let size = sizes.split_whitespace().next().unwrap_or("0").to_owned();
    Ok(format!(
        "Package: {name}\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\n",
        version()?,
        architecture()?,
    ))
}

/// The packages that a program needs: the C library of at least the version of its newest symbol.
fn libraries(program: &Path) -> Result<String, String> {
    let symbols = output_of(Command::new("objdump").arg("-p").arg(program))?;
    let versions = symbols
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("GLIBC_"));
    let numbers = versions.filter_map(|version| {
        let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
        Some((parts.next()??, parts.next()??))
    });
    let (major, minor) = numbers
        .max()
        .ok_or("it needs no version of the C library")?;
    Ok(format!("libc6 (>= {major}.{minor}), libgcc-s1 (>= 4.2)"))
}

fn sums(tree: &Path) -> Result<String, String> {
    let mut list = Command::new("sh");
    list.args([
        "-c",
        "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum",
    ]);
    output_of(list.current_dir(tree))
}

/// Installs the package in a root of its own with nothing but dpkg's lists, and removes it again.
fn install(package: &Path, folder: &Path) -> Result<(), String> {
    let clean = folder.join("root");
    let _ = fs::remove_dir_all(&clean);
    for part in [
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "etc",
        "usr/bin",
    ] {
        at(&clean, fs::create_dir_all(clean.join(part)))?;
    }
    at(&clean, symlink("usr/bin", clean.join("bin")))?;
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        write(&clean.join(file), "")?;
    }
    let before = files(&clean)?;
    let dpkg = |words: &[&str], package: &Path| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root")
            .arg(&clean)
            .args(["--force-depends", "--force-not-root"]);
        done(dpkg.args(words).arg(package))
    };
    dpkg(&["--install"], package)?;
    let installed = files(&clean)?;
    for file in ["usr/bin/restow", "usr/share/man/man1/restow-copy.1.gz"] {
        if !installed.iter().any(|path| path == &clean.join(file)) {
            return Err(format!("{file} was not installed"));
        }
    }
    done(Command::new(clean.join("usr/bin/restow")).arg("--version"))?;
    for name in other_programs()? {
        done(Command::new(clean.join(LINKS).join(name)).arg("--help"))?;
    }
    dpkg(&["--purge"], Path::new("restow"))?;
    let of_package = |path: &PathBuf| {
        !path.starts_with(clean.join("var/lib/dpkg")) && !path.starts_with(clean.join("var/log"))
    };
    let left: Vec<_> = files(&clean)?
        .into_iter()
        .filter(of_package)
        .filter(|path| !before.contains(path))
        .collect();
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!("the removed package leaves {left:?}"))
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut all = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for path in names(&folder)? {
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else {
                all.push(path);
            }
        }
    }
    Ok(all)
}
