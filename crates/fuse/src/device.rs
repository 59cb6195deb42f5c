//! Where requests come from and replies go to.

use std::fs::File;
use std::io::{self, Read, Write};

/// The device that the kernel sends requests through, or a script of them in a test.
pub trait FuseDevice: Sync {
    /// Waits for a request and reads it into `buffer`; returns its length.
    ///
    /// # Errors
    /// `ENODEV` when the file system was unmounted; otherwise the kernel's error.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends a reply.
    ///
    /// # Errors
    /// `NotFound` if the request was given up; otherwise the kernel's error.
    fn send(&self, reply: &[u8]) -> io::Result<()>;
}

impl FuseDevice for File {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut device = self;
        device.read(buffer)
    }

    fn send(&self, reply: &[u8]) -> io::Result<()> {
        // The kernel takes a reply as a whole or not at all.
        let mut device = self;
        device.write(reply).map(|_| ())
    }
}
