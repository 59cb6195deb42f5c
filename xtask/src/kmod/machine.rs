//! A kernel, booted in QEMU, and the verdicts that its first process prints.

use std::path::Path;
use std::process::Command;

use super::arch::Arch;
use crate::command::{limited_work, line_of};
use crate::outcome::Outcome;

const COMMAND_LINE: &str = "quiet panic=-1 oops=panic panic_on_warn=1 log_buf_len=2M";

/// A machine of two processors and 512 MiB.
pub(super) struct Machine {
    command: Command,
    arch: Arch,
}

impl Machine {
    /// One that boots a kernel with an initramfs.
    pub(super) fn new(arch: Arch, image: &Path, archive: &Path) -> Self {
        let mut command = Command::new(arch.qemu());
        command
            .args(arch.machine().0)
            .args(["-accel", "tcg", "-m", "512M", "-smp", "2"])
            .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
            .args(["-no-reboot", "-nic", "none"])
            .arg("-kernel")
            .arg(image)
            .arg("-initrd")
            .arg(archive);
        let mut machine = Self { command, arch };
        machine.kernel_words("");
        machine
    }

    /// Adds words to the command line of the kernel.
    pub(super) fn kernel_words(&mut self, words: &str) {
        let (_, console) = self.arch.machine();
        self.options([
            "-append",
            &format!("console={console} {COMMAND_LINE} {words}"),
        ]);
    }

    /// Adds options of QEMU; if one was already given, the last counts.
    pub(super) fn options<const N: usize>(&mut self, options: [&str; N]) {
        self.command.args(options);
    }

    /// Adds a disk, whose letter follows that of the last one.
    pub(super) fn disk(&mut self, file: &Path, options: &str) {
        let file = file.display();
        self.options([
            "-drive",
            &format!("file={file},format=raw,if=virtio,{options}"),
        ]);
    }

    /// Runs it until it switches itself off, for at most this many seconds of processor time, and
    /// reads its verdicts.
    pub(super) fn run(self, seconds: u64) -> Outcome {
        match self.console(seconds) {
            Ok(console) => verdicts(&console),
            Err(reason) => Outcome::failed(reason),
        }
    }

    /// Runs it, and gives what it wrote to its console, then what QEMU complains about.
    pub(super) fn console(self, seconds: u64) -> Result<String, String> {
        let mut command = limited_work(&self.command, seconds);
        let output = command
            .output()
            .map_err(|error| format!("{}: {error}", line_of(&command)))?;
        Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }
}
/// The verdicts that a machine wrote to its console.
pub(super) fn verdicts(console: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut is_done = false;
    for line in console.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix("PASSED ") {
            outcome.passed += 1;
            println!("passed: {name}");
        } else if let Some(name) = line.strip_prefix("FAILED ") {
            outcome.failed.push(name.to_owned());
        } else if let Some(note) = line.strip_prefix("NOTE ") {
            println!("{note}");
        }
        is_done |= line == "DONE";
    }
    if !is_done {
        let lines: Vec<_> = console.lines().collect();
        let last = &lines[lines.len().saturating_sub(40)..];
        println!("{}", last.join("\n"));
        let reason = "the machine did not come to its end: its last words are above";
        outcome.failed.push(reason.to_owned());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted() {
        let outcome = verdicts("x\r\nPASSED a\r\nFAILED b: c\r\nPASSED d\r\nDONE\r\n");
        assert_eq!(
            (outcome.passed, outcome.failed),
            (2, vec!["b: c".to_owned()])
        );
    }

    #[test]
    fn machine_that_stops_has_failed() {
        assert_eq!(verdicts("PASSED a\nKernel panic").failed.len(), 1);
    }
}
