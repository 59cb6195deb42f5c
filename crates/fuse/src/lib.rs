//! Serves a [`tree::FileSystem`] to the kernel, read-only, over the protocol of FUSE.
//!
//! A [`Server`] answers requests; it knows no format and makes no system call but reading and
//! writing its [`FuseDevice`]. Whoever uses it opens and mounts the device, starts a thread for
//! each [`Server::serve`], and prints what it reports.
//!
//! The tree does not change, so the kernel may keep everything for as long as it likes, except for
//! a [live](Options::is_live) tree: a directory is sent once, with the attributes of its files;
//! files are not opened and closed; a name that does not exist is asked for once. Numbers of files
//! in the protocol are those of the tree, so nothing needs to be remembered about what the kernel
//! knows, and a file handle of NFS is valid after the next mount.
//!
//! ```no_run
//! use std::fs::File;
//! use std::os::fd::AsRawFd;
//! use std::sync::Arc;
//!
//! use fuse::{Options, Server};
//! use linux::MountHow;
//!
//! let tree = tree::HostDir::open("/usr/share/doc".as_ref())?;
//! let options = Options { is_live: true, ..Options::default() };
//! let server = Server::new(Arc::new(tree), options, |problem| println!("{problem:?}"))?;
//! let device = File::from(linux::open_fuse_device()?);
//! let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
//! linux::mount(b"doc", "/mnt".as_ref(), "fuse.example", MountHow::default(), data.as_bytes())?;
//! server.greet(&device)?; // the mount answers
//! server.serve(&device)?; // until it is unmounted
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

mod ahead;
mod attributes;
mod counters;
mod device;
mod directory;
mod files;
mod greeting;
mod listing;
mod lookup;
mod numbers;
mod places;
mod raw;
mod reply;
mod served;
mod server;
mod siblings;

pub use attributes::Owner;
pub use counters::Counters;
pub use device::FuseDevice;
pub use numbers::Numbers;
pub use served::{Options, Problem, Trace};
pub use server::Server;
