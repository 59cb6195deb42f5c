//! The file system that the kernel starts with: an archive in the "newc" form of cpio, not
//! compressed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::folder::files;
use super::packages::Kernel;
use crate::command::output_of;

/// An archive.
#[derive(Default)]
pub(super) struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o40755;
const CHARACTER_DEVICE: u32 = 0o20600;
const PROGRAM: u32 = 0o100755;

impl Initramfs {
    /// One with the folders and the device that every init needs.
    pub(super) fn new() -> Self {
        let mut archive = Self::default();
        for folder in ["bin", "dev", "proc", "sys", "tmp", "mnt"] {
            archive.entry(folder, DIRECTORY, 0, &[]);
        }
        // Where the kernel's first process writes to.
        archive.entry("dev/console", CHARACTER_DEVICE, 5, &[]);
        archive
    }

    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, DIRECTORY, 0, &[]);
    }

    /// Adds a file of this content, and the folders above it.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        for (end, _) in name.match_indices('/') {
            self.entry(&name[..end], DIRECTORY, 0, &[]);
        }
        self.entry(name, PROGRAM, 0, content);
    }

    /// Adds a file of the host.
    pub(super) fn host_file(&mut self, name: &str, path: &Path) -> Result<(), String> {
        let content =
            fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))?;
        self.file(name, &content);
        Ok(())
    }

    /// Adds a folder with the files that a folder of the host has.
    pub(super) fn host_files(&mut self, name: &str, folder: &Path) -> Result<(), String> {
        self.folder(name);
        for (file, path) in files(folder)? {
            self.host_file(&format!("{name}/{file}"), &path)?;
        }
        Ok(())
    }

    /// Adds a program of the host, with the libraries that it needs, where they are on the host.
    pub(super) fn host_program(&mut self, name: &str, path: &Path) -> Result<(), String> {
        let libraries = output_of(Command::new("ldd").arg(path))?;
        self.host_file(name, path)?;
        for word in libraries.split_whitespace() {
            if word.starts_with('/') {
                self.host_file(word.trim_start_matches('/'), Path::new(word))?;
            }
        }
        Ok(())
    }

    /// Adds a kernel module without what only debuggers need, which is most of it; `scratch` is a
    /// folder for that.
    pub(super) fn module(
        &mut self,
        name: &str,
        kernel: &Kernel,
        path: &Path,
        scratch: &Path,
    ) -> Result<(), String> {
        let stripped = scratch.join("stripped.ko");
        let mut strip = Command::new(kernel.arch.tool("objcopy"));
        output_of(strip.arg("--strip-debug").arg(path).arg(&stripped))?;
        self.host_file(name, &stripped)
    }

    /// The bytes of the archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, 0, &[]);
        self.bytes
    }

    /// Adds a header of thirteen numbers in hexadecimal digits, the name and the content, each
    /// padded to four bytes.
    fn entry(&mut self, name: &str, mode: u32, major: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("files of an initramfs are small");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        let minor = u32::from(major != 0);
        let links = 1;
        // The inode's number, mode, owner, group, links, time, size, device, special device, length
        // of the name, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            0,
            size,
            0,
            0,
            major,
            minor,
            name_size,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_those_of_the_format() {
        let mut archive = Initramfs::default();
        archive.file("ab", b"xyz");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes[..110].to_vec()).unwrap();
        assert_eq!(
            text,
            "07070100000001000081ed0000000000000000000000010000000000000003\
             00000000000000000000000000000000000000030000000000"[..110]
        );
        // The name ends at a multiple of four: the header has 110 bytes.
        assert_eq!(&bytes[110..122], b"ab\0\0\0\0xyz\x0007");
        assert!(bytes.len().is_multiple_of(4));
    }
}
