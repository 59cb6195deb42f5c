//! Processes that go on after the command that started them has returned.

use std::fs::File;
use std::io;

/// Makes this process the leader of a session of its own, so that signals of the terminal do not
/// reach it.
///
/// # Errors
/// The kernel's error: it is the leader of a process group.
pub fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Redirects standard input, output and error to `/dev/null`. They stay open: a file opened
/// later must not get their numbers.
///
/// # Errors
/// The kernel's error.
pub fn leave_standard_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}
