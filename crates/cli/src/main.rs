//! The `restow` command: reads what was typed, and does it with the libraries below.
//!
//! Nobody below this crate prints, reads the environment or the clock.
#![forbid(unsafe_code)]

mod args;
mod bar;
mod btrfs_create;
mod btrfs_image;
mod cat;
mod copy;
mod diff;
mod edits;
mod ls;
mod manifest;
mod open;
mod readable;
mod signals;
mod squash;
mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use tree::{Error, Parallel, temporary};

use args::{Command, Restow, Threads};

/// Differences or damage were found, or something could not be kept.
const FOUND: u8 = 1;
/// It could not be done.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let typed = Restow::command().get_matches();
    let Restow { command } = Restow::from_arg_matches(&typed).unwrap_or_else(|error| error.exit());
    let result = signals::watch()
        .map_err(Into::into)
        .and_then(|()| run(&command, &typed));
    if temporary::is_stopping() {
        // Whatever failed, failed because a signal came. Its thread removes what is unfinished and ends the process.
        loop {
            std::thread::park();
        }
    }
    match result {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let error = in_standard_output(error);
            tell(&text::of_error(&error));
            ExitCode::from(FAILED)
        }
    }
}

fn run(command: &Command, typed: &ArgMatches) -> Result<ExitCode> {
    let found = |nothing: bool| {
        if nothing {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(FOUND)
        }
    };
    Ok(match command {
        Command::Copy(args) => {
            let typed = typed.subcommand_matches("copy").unwrap_or(typed);
            found(copy::run(args, typed)?)
        }
        Command::Ls(args) => {
            ls::run(args)?;
            ExitCode::SUCCESS
        }
        Command::Cat(args) => {
            cat::run(args)?;
            ExitCode::SUCCESS
        }
        Command::Diff(args) => found(!diff::run(args)?),
        Command::Info(args) => {
            info(args)?;
            ExitCode::SUCCESS
        }
        Command::Check(args) => found(check(args)?),
        Command::Manifest(args) => {
            manifest::run(args)?;
            ExitCode::SUCCESS
        }
    })
}

/// `restow info`: what an image says of itself.
fn info(args: &args::Info) -> Result<()> {
    if open::is_btrfs_image(&args.file, args.source.image_at)? {
        return btrfs_image::info(args);
    }
    if args.path.is_some() {
        bail!("--path is for btrfs images");
    }
    squash::info(args)
}

/// `restow check`: whether nothing is wrong with an image.
fn check(args: &args::Check) -> Result<bool> {
    if open::is_btrfs_image(&args.file, args.image_at)? {
        return btrfs_image::check(args);
    }
    squash::check(args)
}

/// Whether whoever read our output has closed it, which is their right.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| match cause.downcast_ref::<Error>() {
            Some(Error::Io(error)) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => {
                let error = cause.downcast_ref::<io::Error>();
                error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
            }
        })
}

fn threads(args: Threads) -> Parallel {
    args.threads
        .map_or_else(Parallel::available, |threads| Parallel::new(threads.into()))
}

/// Says where it was, of an error that does not: whatever else is read or written has a name.
fn in_standard_output(error: anyhow::Error) -> anyhow::Error {
    let has_no_place = error.chain().next().is_some_and(|cause| {
        let error = cause.downcast_ref::<Error>();
        cause.is::<io::Error>() || matches!(error, Some(Error::Io(_)))
    });
    if has_no_place {
        error.context("write standard output")
    } else {
        error
    }
}

/// Tells the user something. That nobody can be told is no reason to fail.
fn tell(words: &str) {
    let _ = writeln!(io::stderr(), "restow: {words}");
}
