//! The `restow` command: parses the command line and calls the libraries.
//!
//! Only this crate prints, and only it reads the environment and the clock.
#![forbid(unsafe_code)]

mod args;
mod bar;
mod cat;
mod check;
mod compat;
mod copy;
mod delta;
mod diff;
mod index;
mod info;
mod ls;
mod manifest;
mod message;
mod mount;
mod options;
#[cfg(feature = "pages")]
mod pages;
mod patch;
mod plan;
mod receive;
mod send;
mod signals;
mod stream;
mod text;
mod tips;
mod unmount;
mod usage;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use tree::{Error, temporary};

use args::{Command, Restow};

/// Exit code if differences or damage were found, or something could not be preserved.
const FOUND: u8 = 1;
/// Exit code if the command failed.
const FAILED: u8 = 2;
/// Exit code if the command failed, and may not fail again (`EX_TEMPFAIL` of sysexits.h).
const FAILED_FOR_NOW: u8 = 75;

fn main() -> ExitCode {
    let words: Vec<OsString> = mount::arguments(std::env::args_os());
    #[cfg(feature = "pages")]
    if let [_, command, folder] = &words[..]
        && command == "pages"
    {
        let write = || pages::write(folder.as_ref()).map(|()| ExitCode::SUCCESS);
        return finish(write, true, FAILED);
    }
    if let Some((program, rest)) = compat::called(&words) {
        return finish(|| program.run(rest), true, program.failed());
    }
    let typed = Restow::command().try_get_matches_from(&words);
    let typed = typed.unwrap_or_else(|error| tips::with_tip(error, &words).exit());
    let Restow {
        command,
        no_progress,
        progress,
        #[cfg(feature = "remote")]
        remote,
    } = Restow::from_arg_matches(&typed).unwrap_or_else(|error| error.exit());
    bar::show_as(if no_progress {
        bar::Form::None
    } else {
        progress
    });
    #[cfg(feature = "remote")]
    options::read_objects(remote);
    let must_write_all = command.must_write_all();
    finish(|| run(&command, &typed), must_write_all, FAILED)
}

/// Runs a command, and turns its result into an exit code.
fn finish(run: impl FnOnce() -> Result<ExitCode>, must_write_all: bool, failed: u8) -> ExitCode {
    let result = signals::watch().map_err(Into::into).and_then(|()| run());
    if temporary::is_stopping() {
        // A signal caused the failure. Its thread removes unfinished output and ends the
        // process.
        loop {
            std::thread::park();
        }
    }
    match result {
        Ok(code) => code,
        Err(error) if message::is_closed_pipe(&error) && !must_write_all => ExitCode::SUCCESS,
        Err(error) => {
            let is_temporary = failed == FAILED && message::is_temporary(&error);
            let code = if is_temporary { FAILED_FOR_NOW } else { failed };
            message::tell(&message::of_error(&in_standard_output(error)));
            ExitCode::from(code)
        }
    }
}

fn run(command: &Command, typed: &ArgMatches) -> Result<ExitCode> {
    let is_clean = match command {
        Command::Copy(args) => {
            let typed = typed.subcommand_matches("copy").unwrap_or(typed);
            copy::run(args, typed)?
        }
        Command::Index(args) => index::run(args)?,
        Command::Ls(args) => ls::run(args).map(|()| true)?,
        Command::Cat(args) => cat::run(args).map(|()| true)?,
        Command::Diff(args) => !diff::run(args)?,
        Command::Manifest(args) => manifest::run(args).map(|()| true)?,
        Command::Info(args) => info::run(args).map(|()| true)?,
        Command::Check(args) => check::run(args)?,
        Command::Stream(args) => stream::run(args)?,
        Command::Receive(args) => receive::run(args)?,
        Command::Plan(args) => plan::run(args)?,
        Command::Send(args) => send::run(args).map(|()| true)?,
        Command::Mount(args) => return mount::run(args),
        Command::Unmount(args) => unmount::run(args).map(|()| true)?,
        Command::Delta(args) => delta::run(args).map(|()| true)?,
        Command::Patch(args) => patch::run(args).map(|()| true)?,
        Command::Usage(args) => usage::run(args).map(|()| true)?,
    };
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// Adds the place to an error without one. It is standard output: everything else that is read or
/// written has a name.
fn in_standard_output(error: anyhow::Error) -> anyhow::Error {
    let has_no_place = error.chain().next().is_some_and(|cause| {
        let error = message::tree_error(cause);
        cause.is::<io::Error>() || matches!(error, Some(Error::Io(_)))
    });
    if has_no_place {
        error.context("write standard output")
    } else {
        error
    }
}
