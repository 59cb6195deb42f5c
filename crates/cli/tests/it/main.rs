//! The integration tests of `restow`: the program itself, from outside.

mod acls; // access control lists and labels in archives of and for other programs
mod address; // subvolumes and odd names in the addresses of sources
mod btrfs; // btrfs images, made
mod btrfs_source; // btrfs images, read, checked and described
mod chain; // daily backups: sent, kept, restored, cut, damaged and forged
mod cloned; // directories that share their data with the source
mod compat; // the command lines of other programs
mod copy; // directories and tar archives in all directions, compared by programs that are not ours
mod cpio; // archives of cpio, and initramfs
mod delta; // patches between images, made and applied
mod disk_files; // disk files of virtual machines
mod dual; // images that are EROFS images, too
mod erofs; // EROFS images
mod escapes; // names that would steer a terminal, printed by every command
mod examples; // every command in README.md and in the help texts
mod failures; // full disks, files that may not be read
mod holes; // files of 8 EB
mod hostile; // SquashFS images that mean harm
mod index; // EROFS images of metadata alone, over images that stay as they are
mod interrupt; // signals in the midst of a copy
mod joined; // several sources at once, and single files
mod json; // what --json prints
mod labels; // labels for SELinux
mod lost_writes; // what Linux accepts and then cannot write
mod lzo_tails; // LZO extents of every length, as Linux has them
mod memory; // memory that commands for send streams use
mod mount; // mounts of every container, compared with the tree and with mounts of Linux
mod mount_points; // directories with mount points
mod mounted; // directories on a mounted btrfs, as containers of compressed extents
mod oci; // container images
mod oci_images; // layers of container images that are images of file systems
mod oci_write; // container images, written
mod overlayfs; // layers of overlayfs, beside mounts of Linux
mod overwrite; // files, links, devices and streams that are written over
mod packed; // compressed archives
mod partitions; // images in partitions of disk images
mod parts; // images that several machines make
mod pass_through; // encoded data that goes from one format into another
mod plan; // predictions, compared with copies
mod plan_real; // the same for real trees, with times
mod receive; // send streams, received
mod receive_attributes; // send streams, received with attributes that the target adds or lacks
mod receive_directory; // send streams, received into directories
mod receive_fallback; // compressed data that Linux does not take as it is
mod receive_image; // send streams, received into images
mod receive_mounted; // send streams, received into a mounted btrfs
#[cfg(feature = "remote")]
mod remote; // sources of a web server, for all commands that read
#[cfg(feature = "remote")]
mod remote_write; // objects as destinations
mod rescue; // merged and replaced directories, and sources that cannot be read as a whole
mod reuse; // images that keep the data of older ones
mod selection; // directories of sources, lists of files, stripped names, followed links
mod send; // send streams of images and of other trees, also compared with those of Linux
mod send_dirs; // send streams of trees with many directories, compared with those of Linux
mod send_exact; // shapes that need care, byte for byte as by Linux
mod send_incremental; // incremental send streams of images, compared with those of Linux
mod send_mounted; // send streams of mounted subvolumes, and transfers that are continued
mod send_usr; // send streams of a large part of /usr
mod squash; // SquashFS images
mod stream; // send streams
mod times; // which times of files an image gets
mod typed; // names, sizes, dates and patterns as people type them
mod usage; // where the stored bytes are, as compsize counts them
mod verity; // hash trees of dm-verity
mod words; // help, messages and exit codes

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use testkit::{TempDir, Tool, run};

/// A command that runs the program, with nothing on standard input.
fn restow<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_restow"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command line of words without quotes in a directory; it must succeed. Gives standard
/// output and standard error.
#[track_caller]
fn ok(dir: &TempDir, line: &str) -> (String, String) {
    let (code, out, words) = run_in(dir.path(), line.split_whitespace());
    assert_eq!(code, 0, "{line}: {words}");
    (out, words)
}

/// Runs it in a directory; gives exit code, standard output and standard error.
fn run_in<A: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = A>) -> (i32, String, String) {
    let output = restow(args).current_dir(dir).output().unwrap();
    shown(&output)
}

fn shown(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Runs `btrfs` in a directory, without its messages; gives its standard output.
fn btrfs_in(btrfs: &Tool, dir: &Path, args: &[&str]) -> Vec<u8> {
    run(btrfs
        .command()
        .args(args)
        .current_dir(dir)
        .stderr(Stdio::null()))
    .stdout
}

/// The names in a directory, hidden ones as well.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
