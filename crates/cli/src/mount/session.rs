//! Serving a mount until it is unmounted.

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fuse::Server;

use super::attach::{Attached, Undo};
use crate::message;
use crate::signals;

/// More threads than this do not help a mount by default: decoding is as fast as the programs that
/// read.
const THREADS_USUAL_MAX: usize = 8;
/// How long a signal waits for requests to end.
const STOP: Duration = Duration::from_millis(100);
/// How often an idle mount is looked at, as a part of the time that it may be idle.
const IDLE_PARTS: u32 = 4;

/// How a mount is served.
pub(super) struct Serving {
    pub(super) server: Arc<Server>,
    pub(super) threads: usize,
    pub(super) timeout: Option<Duration>,
    /// Called at every end.
    pub(super) at_end: Box<dyn Fn() + Send + Sync>,
}

/// The number of threads for a mount.
pub(super) fn usual_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, Into::into);
    cores.min(THREADS_USUAL_MAX)
}

impl Serving {
    /// Serves until the file system is unmounted. `answers` is called when it does.
    ///
    /// # Errors
    /// The kernel refuses to go on.
    pub(super) fn run(
        self,
        attached: &Attached,
        answers: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let undo = attached.undo();
        let at_end: Arc<dyn Fn() + Send + Sync> = self.at_end.into();
        let ended = stop_on_signals(undo.clone(), Arc::clone(&at_end));
        let served = self.server.greet(&attached.device).context("talk to Linux");
        let result = served.and_then(|()| {
            answers()?;
            if let Some(timeout) = self.timeout {
                unmount_when_idle(&self.server, undo.clone(), timeout)?;
            }
            for _ in 1..self.threads {
                let device = clone(&attached.device)?;
                let server = Arc::clone(&self.server);
                thread::Builder::new()
                    .name("fuse".into())
                    .spawn(move || server.serve(&device))?;
            }
            for _ in 0..self.server.ahead_threads() {
                let server = Arc::clone(&self.server);
                thread::Builder::new()
                    .name("ahead".into())
                    .spawn(move || server.read_ahead())?;
            }
            self.server.serve(&attached.device).context("talk to Linux")
        });
        if result.is_err() {
            let _ = undo.detach();
        }
        at_end();
        // A signal's thread waits for this to end the process.
        drop(ended);
        result
    }
}

/// A descriptor of its own for another thread.
fn clone(device: &File) -> io::Result<File> {
    linux::clone_fuse_device(device)
        .map(File::from)
        // In a sandbox, the device may be gone by now.
        .or_else(|_| device.try_clone())
}

/// Lets signals detach the mount and end the process. The returned guard is dropped when the mount
/// has ended.
fn stop_on_signals(undo: Undo, at_end: Arc<dyn Fn() + Send + Sync>) -> Sender<()> {
    let (sender, receiver) = mpsc::channel::<()>();
    let receiver = Mutex::new(receiver);
    signals::on_signal(move || {
        if let Err(error) = undo.detach() {
            message::tell(&format!("unmount: {error}"));
        }
        // Without open files, the mount is gone, and with it all threads. Otherwise the end of the
        // process ends it.
        let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
        if receiver.recv_timeout(STOP) == Err(RecvTimeoutError::Timeout) {
            at_end();
        }
        std::process::exit(0);
    });
    sender
}

/// Unmounts when nothing was asked for as long as `timeout`, and nothing is open.
fn unmount_when_idle(server: &Arc<Server>, undo: Undo, timeout: Duration) -> io::Result<()> {
    let server = Arc::clone(server);
    let wait = move || {
        let mut seen = 0;
        let mut idle = 0;
        loop {
            thread::park_timeout(timeout / IDLE_PARTS);
            let now = server.counters().all();
            idle = if now == seen { idle + 1 } else { 0 };
            seen = now;
            // A mount with open files is busy.
            if idle >= IDLE_PARTS && undo.unmount().is_ok() {
                return;
            }
        }
    };
    thread::Builder::new().name("idle".into()).spawn(wait)?;
    Ok(())
}
