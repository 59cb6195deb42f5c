//! Objects of a server on this machine.

mod credentials;
mod failures;
mod hostile;
mod reading;
mod writing;

use remote::{Opened, RemoteFile, RemoteOptions};
use testkit::{RangeServer, Rng};

/// Bytes that show where they come from.
fn object(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(len as u64).fill(&mut bytes);
    bytes
}

fn open_with(address: &str, options: &RemoteOptions) -> std::io::Result<RemoteFile> {
    match remote::open(address, options)? {
        Opened::File(file) => Ok(*file),
        _ => panic!("{address} can only be read in order"),
    }
}

fn open(server: &RangeServer) -> RemoteFile {
    open_with(&server.url("object"), &RemoteOptions::default()).unwrap()
}

fn refusal(address: &str, options: &RemoteOptions) -> String {
    match remote::open(address, options) {
        Ok(_) => panic!("{address} was opened"),
        Err(error) => error.to_string(),
    }
}
