//! Going on in the background. The command starts itself again with `-f`; the second process mounts
//! and serves, the first waits until the mount answers. So nothing has to survive a fork: the
//! threads and locks of a process are all its own.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

/// Tells the second process that it is one.
const BACKGROUND: &str = "RESTOW_MOUNT_BACKGROUND";

/// Exit code if the second process was killed before its mount answered.
const KILLED: u8 = 2;

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountProcess {
    /// The one that the user started, or the only one.
    First,
    Second,
}

pub(super) fn part() -> MountProcess {
    if env::var_os(BACKGROUND).is_some() {
        MountProcess::Second
    } else {
        MountProcess::First
    }
}

/// Starts this program again with these arguments and waits until its mount answers. Returns the
/// number of the process, or its exit code if the mount does not answer; it has printed why.
///
/// # Errors
/// It cannot be started.
pub(super) fn start(args: Vec<OsString>) -> Result<Result<u32, ExitCode>> {
    let program = env::current_exe().context("find this program through /proc")?;
    let mut child = Command::new(program)
        .args(args)
        .env(BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("start in the background")?;
    let mut answers = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut answers)?;
    }
    if !answers.is_empty() {
        return Ok(Ok(child.id()));
    }
    let code = child
        .wait()?
        .code()
        .and_then(|code| u8::try_from(code).ok());
    Ok(Err(ExitCode::from(code.unwrap_or(KILLED))))
}

/// Leaves the session of the terminal, and the current directory, which could not be unmounted
/// otherwise.
///
/// # Errors
/// The kernel refuses.
pub(super) fn leave() -> Result<()> {
    linux::leave_terminal().context("leave the terminal")?;
    Ok(env::set_current_dir("/")?)
}

/// Lets the first process return, because the mount answers.
///
/// # Errors
/// It is gone.
pub(super) fn answer() -> Result<()> {
    let mut out = std::io::stdout();
    out.write_all(b"1")?;
    out.flush()?;
    Ok(linux::leave_standard_streams()?)
}

/// Writes a message to the system's log, where there is one: as an error (3) of a daemon (3), as
/// syslog(3) does.
pub(super) fn log(message: &str) {
    let id = std::process::id();
    let line = format!("<27>restow[{id}]: {message}");
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(line.as_bytes(), "/dev/log");
    }
}

/// Writes one byte to a pipe that a program waits at: `s` when the mount answers, `f` when it
/// failed.
pub(super) fn notify(pipe: Option<&std::path::Path>, byte: u8) {
    if let Some(pipe) = pipe {
        let file = fs::File::options().write(true).open(pipe);
        let _ = file.and_then(|mut file| file.write_all(&[byte]));
    }
}
