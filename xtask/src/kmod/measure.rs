//! Files given to the devices in a booted kernel, with our codecs and with Linux's own behind the
//! same devices; what the devices count is the result. `kmod/init-measure` is what runs there.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::build::{Modules, run_quietly};
use super::folder::files;
use super::initramfs::Initramfs;
use super::machine::{Machine, verdicts};
use super::packages::out_folder;
use crate::environment::root;

pub(super) const LINUX: &str = "linux";
pub(super) const OURS: &str = "ours";
pub(super) const COMPRESS: &str = "zstd_compress_test";
pub(super) const DECOMPRESS: &str = "zstd_decompress_test";

/// How Linux's own zstd is built into the devices.
const KBUILD: &str =
    "obj-m := zstd_compress_test.o zstd_decompress_test.o\nccflags-y := -DLINUX_ZSTD\n";

/// A file given to a device, or a device that is only loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// Whose codec it is.
    pub(super) who: &'static str,
    pub(super) device: &'static str,
    pub(super) method: &'static str,
    pub(super) level: i32,
    /// What the parameters are chosen for, 0 for content of unknown size.
    pub(super) content_size: u64,
    /// Bytes of each frame, whose size is known then; 0 for one frame of unknown size.
    pub(super) frame_size: usize,
    /// The name of one of the files.
    pub(super) file: Option<String>,
}

impl Job {
    fn line(&self) -> String {
        let file = (self.file.as_ref()).map_or("-".to_owned(), |name| format!("/data/{name}"));
        let Job {
            who,
            device,
            method,
            level,
            content_size,
            frame_size,
            ..
        } = self;
        format!("{who} {device} {method} {level} {content_size} {frame_size} {file}")
    }
}

/// What a device counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) uncompressed: u64,
    pub(super) compressed: u64,
    pub(super) workspace: u64,
    /// Instructions, where the machine's clock counts those.
    pub(super) cycles: u64,
}

/// The machine that does the jobs.
pub(super) struct Bench<'m> {
    pub(super) modules: &'m Modules,
    /// Name and content of each file.
    pub(super) files: &'m [(String, Vec<u8>)],
    /// Whether the clock counts instructions.
    pub(super) counts_instructions: bool,
    pub(super) seconds_max: u64,
}

impl Bench<'_> {
    /// Does the jobs in this order, and gives what each came to.
    pub(super) fn run(&self, jobs: &[Job]) -> Result<Vec<Counts>, String> {
        let folder = out_folder().join(format!("measure-{}", self.modules.kernel.version));
        fs::create_dir_all(&folder)
            .map_err(|error| format!("create {}: {error}", folder.display()))?;
        let archive = self.archive(&folder, jobs)?;
        let mut machine = Machine::new(
            self.modules.kernel.arch,
            &self.modules.kernel.image,
            &archive,
        );
        let bytes: usize = self.files.iter().map(|(_, content)| content.len()).sum();
        // The archive, its files, and the workspaces.
        let memory = 512 + 3 * (bytes >> 20);
        machine.options(["-m", &format!("{memory}M")]);
        if self.counts_instructions {
            // Each takes a nanosecond of the only processor, whose clock has 1 GHz. Memory is
            // copied and cleared by words: there each is an instruction, and would be for bytes.
            machine.options(["-smp", "1", "-icount", "shift=0,sleep=off"]);
            machine.options(["-cpu", "max,erms=off"]);
        }
        let console = machine.console(self.seconds_max)?;
        let outcome = verdicts(&console);
        if let Some(reason) = outcome.failed.into_iter().next() {
            return Err(reason);
        }
        let of = |job: &Job| {
            counts(&console, &job.line()).ok_or_else(|| format!("no result of: {}", job.line()))
        };
        jobs.iter().map(of).collect()
    }

    fn archive(&self, folder: &Path, jobs: &[Job]) -> Result<std::path::PathBuf, String> {
        let kernel = &self.modules.kernel;
        let mut archive = Initramfs::new();
        archive.host_file("init", &root().join("kmod/init-measure"))?;
        archive.host_file("bin/busybox", &kernel.root.join("bin/busybox"))?;
        let mut plan = String::new();
        for job in jobs {
            let _ = writeln!(plan, "{}", job.line());
        }
        archive.file("plan", plan.as_bytes());
        archive.folder("data");
        for (name, content) in self.files {
            archive.file(&format!("data/{name}"), content);
        }
        for (who, modules) in [
            (OURS, &self.modules.folder),
            (LINUX, &self.devices(folder)?),
        ] {
            archive.folder(who);
            for (file, path) in files(modules)? {
                if file.ends_with(".ko") {
                    archive.module(&format!("{who}/{file}"), kernel, &path, folder)?;
                }
            }
        }
        for codec in ["zstd_compress", "zstd_decompress"] {
            if let Some(content) = kernel.module(codec)? {
                archive.file(&format!("{LINUX}/{codec}.ko"), &content);
            }
        }
        let path = folder.join("initramfs.cpio");
        fs::write(&path, archive.finish())
            .map_err(|error| format!("write {}: {error}", path.display()))?;
        Ok(path)
    }

    /// Builds the devices for Linux's own zstd.
    fn devices(&self, folder: &Path) -> Result<std::path::PathBuf, String> {
        let at = folder.join("devices");
        let failed = |error| format!("write {}: {error}", at.display());
        fs::create_dir_all(&at).map_err(failed)?;
        fs::write(at.join("Kbuild"), KBUILD).map_err(failed)?;
        for name in [
            "codec.h",
            "device.h",
            "zstd_compress_test.c",
            "zstd_decompress_test.c",
        ] {
            fs::copy(root().join("kmod").join(name), at.join(name)).map_err(failed)?;
        }
        let mut command = self.modules.kernel.make();
        command
            .arg("--silent")
            .arg(format!("M={}", at.display()))
            .args([
                "CONFIG_DEBUG_INFO=",
                "CONFIG_DEBUG_INFO_BTF_MODULES=",
                "modules",
            ]);
        run_quietly(&mut command)?;
        Ok(at)
    }
}

/// The counts behind the line of a job, if it succeeded.
fn counts(console: &str, job: &str) -> Option<Counts> {
    let start = format!("RESULT {job} ");
    let line = console.lines().find_map(|line| line.strip_prefix(&start))?;
    let mut numbers = line.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    (next()? == 0).then_some(Counts {
        uncompressed: next()?,
        compressed: next()?,
        workspace: next()?,
        cycles: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_their_jobs() {
        let job = Job {
            who: OURS,
            device: COMPRESS,
            method: "zstd",
            level: 3,
            content_size: 0,
            frame_size: 4096,
            file: Some("a".to_owned()),
        };
        let console = "RESULT ours zstd_compress_test zstd 3 0 4096 /data/a 0 100 40 5000 123\r\n";
        let counted = Counts {
            uncompressed: 100,
            compressed: 40,
            workspace: 5000,
            cycles: 123,
        };
        assert_eq!(counts(console, &job.line()), Some(counted));
        assert_eq!(counts(&console.replace("/a 0", "/a -5"), &job.line()), None);
        assert_eq!(counts("", &job.line()), None);
    }
}
