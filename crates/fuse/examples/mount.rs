//! Mounts a tar archive until somebody unmounts it, as root: `cargo run -p restow-fuse --example
//! mount -- ARCHIVE DIRECTORY`.
use std::error::Error;
use std::fs::File;
use std::io::{Write, stderr, stdout};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use fuse::{FuseDevice, Options, Server};
use linux::MountHow;
use tree::tar::Tar;
use tree::{FileSystem, Limits};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(archive), Some(point)) = (arguments.next(), arguments.next()) else {
        return Err("usage: mount ARCHIVE DIRECTORY".into());
    };
    let tree = Tar::open(Box::new(File::open(archive)?), Limits::default())?;
    let device = File::from(linux::open_fuse_device()?);
    let number = device.as_raw_fd();
    let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0,default_permissions");
    let (point, how) = (Path::new(&point), MountHow::default());
    linux::mount(b"archive", point, "fuse.example", how, data.as_bytes())?;
    let served = serve(Arc::new(tree), &device);
    if served.is_err() {
        linux::detach(point)?;
    }
    Ok(writeln!(stdout(), "answered {} requests", served?)?)
}

/// Answers requests until the file system is unmounted; returns their number.
pub(crate) fn serve(
    tree: Arc<dyn FileSystem>,
    device: &impl FuseDevice,
) -> Result<u64, Box<dyn Error>> {
    let server = Server::new(tree, Options::default(), |problem| {
        let _ = writeln!(stderr(), "{problem:?}");
    })?;
    server.greet(device)?;
    // More threads may do the same.
    server.serve(device)?;
    Ok(server.counters().all())
}
