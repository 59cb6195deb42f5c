//! Copies to tar archives.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result};
use tree::{Error, KeptCount, Output};

use super::args::Copy;
use super::job::{Done, Job, Lost};
use super::kind::Kind;
use super::packed::Packing;
use crate::message;

/// Refuses a compression that does not fit the name, before the source is read.
///
/// # Errors
/// It is that of another format, or there is no such level.
pub(crate) fn refuse(args: &Copy, kind: Kind) -> Result<()> {
    packing(args, kind).map(drop)
}

fn packing(args: &Copy, kind: Kind) -> Result<Option<Packing>> {
    let compress = args.image.compress.as_deref();
    let wrapper = kind.wrapper();
    wrapper
        .map(|wrapper| Packing::of(wrapper, compress))
        .transpose()
}

/// Writes a tar archive, compressed or not.
///
/// # Errors
/// The source cannot be read, or the destination cannot be written.
pub(crate) fn write(job: &Job<'_>, kind: Kind) -> Result<Done> {
    let bar = job.bar();
    let inventory = job.inventory(&bar)?;
    let names = job.names(&bar, &inventory);
    let mut output = if job.args.dst == Path::new("-") {
        Output::stream(File::from(io::stdout().as_fd().try_clone_to_owned()?))
    } else {
        Output::create(&job.args.dst, job.args.overwrite).with_context(|| job.on_dst("create"))?
    };
    let fill = |out: &mut dyn Write| {
        let skips = job.args.rescue.skips();
        tree::tar::write(&inventory, skips, job.parallel, &names, out)
    };
    let written = match packing(job.args, kind)? {
        None => fill(&mut output).map(|summary| {
            let bytes = summary.archive_bytes;
            (summary, bytes)
        }),
        Some(packing) => packing.write(job.parallel, &mut output, fill),
    };
    let (summary, written) = match written {
        Err(error @ Error::File { .. }) => return Err(job.source.name_error(error).into()),
        written => written.with_context(|| job.on_dst("write"))?,
    };
    output.commit().with_context(|| job.on_dst("finish"))?;
    names.finish();
    let mut listed = job.losses(&inventory, &summary.unreadable);
    for (path, error) in &summary.damaged {
        let name = job.source.path_name(path);
        let reason = message::of_reason(&message::of_tree_error(error));
        let words =
            format!("{name}: zeros in place of a part that could not be read again: {reason}");
        let path = path.clone();
        listed.push(Lost { path, words });
    }
    let lost = summary.sockets.iter().map(|path| {
        format!(
            "{}: not copied: tar archives cannot hold sockets",
            job.source.path_name(path)
        )
    });
    Ok(Done {
        files: summary.entries,
        read: summary.content_bytes,
        written,
        used: None,
        kept: KeptCount::default(),
        listed,
        lost: lost.collect(),
        notes: Vec::new(),
    })
}
