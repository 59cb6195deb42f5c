//! Images that several machines make in parts.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tree::{
    Duplicates, Error as TreeError, ImagePart, ImageSummary, Output, PartMismatch, PartSource,
    Parts, ReadAt,
};

use super::format::Format;
use super::job::CopyJob;
use super::options::CopyOptions;
use super::summary::CopySummary;
use crate::error::{During, refuse};
use crate::{Error, Input, Result, text};

/// How many missing parts are named.
const NAMED_MAX: usize = 20;

/// A part of `--parts`.
pub(super) struct PartFile {
    path: PathBuf,
    part: ImagePart,
}

impl PartFile {
    fn name(&self) -> String {
        text::of_host_path(&self.path, "standard input")
    }
}

/// Refuses options with which an image depends on more than its files and options.
///
/// # Errors
/// There is such an option.
pub(super) fn refuse_dependent(options: &CopyOptions) -> Result<()> {
    let name = if options.reuse.is_some() {
        "--reuse"
    } else if options.skip_unreadable {
        "--skip-unreadable"
    } else if options.keep_damaged {
        "--keep-damaged"
    } else if options.accept_changed {
        "--accept-changed"
    } else {
        return Ok(());
    };
    if options.part.is_some() || !options.parts.is_empty() {
        refuse!("{name} does not go with --part and --parts: all machines must see the same files");
    }
    Ok(())
}

/// Writes a part, which `make` makes with the equal files, if they are known.
///
/// # Errors
/// The source cannot be read, the destination cannot be written, or a given part is not one of this
/// image.
pub(super) fn write(
    job: &CopyJob<'_>,
    source: &PartSource,
    make: impl FnOnce(Option<Duplicates>, &mut Output) -> tree::Result<ImageSummary>,
) -> Result<CopySummary> {
    let given = given(job, source)?;
    let equal = match given.iter().find(|file| file.part.number().number < 2) {
        Some(file) => {
            let equal = open(job, &file.path);
            let equal = equal.and_then(|bytes| file.part.equal_files(&bytes, &job.inventory));
            Some(equal.during(|| format!("read {}", file.name()))?)
        }
        None if given.is_empty() => None,
        None => refuse!("--parts: only parts 0 and 1 list the equal files"),
    };
    let mut output = job.output()?;
    let made = make(equal, &mut output);
    let image = job.finish(made, output)?;
    let mut summary = CopySummary::of_image(&image, false);
    summary.files = image.files;
    Ok(summary)
}

/// All parts of the image in order; nothing if it is not joined.
///
/// # Errors
/// They are not the parts of this image.
pub(super) fn all(job: &CopyJob<'_>, source: impl FnOnce() -> PartSource) -> Result<Vec<PartFile>> {
    if job.options.parts.is_empty() {
        return Ok(Vec::new());
    }
    let mut files = given(job, &source())?;
    let number = |file: &PartFile| file.part.number().number;
    files.retain(|file| number(file) > 0);
    files.sort_by_key(number);
    let Some(first) = files.first() else {
        refuse!("--parts: there is no part of an image");
    };
    let of = first.part.number().of;
    for pair in files.windows(2) {
        let [a, b] = pair else { continue };
        let names = format!("{} and {}", a.name(), b.name());
        if number(a) == number(b) {
            refuse!("{names} are both part {}", number(a));
        }
        if b.part.number().of != of {
            refuse!("{names} are parts of {of} and of {}", b.part.number().of);
        }
        if !a.part.has_equal_files_of(&b.part) {
            refuse!(
                "{names} found other files to be equal: content changed without a modification time"
            );
        }
    }
    let missing = (1..=of).filter(|&it| files.binary_search_by_key(&it, number).is_err());
    let missing: Vec<u32> = missing.collect();
    if let Some(first) = missing.first() {
        let named: Vec<String> = missing.iter().take(NAMED_MAX).map(u32::to_string).collect();
        let more = match missing.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (named, source) = (named.join(", "), job.source.name());
        let to = if job.format == Format::Btrfs {
            "--to btrfs "
        } else {
            ""
        };
        refuse!(
            "part {named}{more} of {of} missing; `restow copy {to}--part {first}/{of} {source} {first}.part` with the same options makes it"
        );
    }
    Ok(files)
}

/// Joins the parts by `make`.
///
/// # Errors
/// A part is damaged, or the destination cannot be written.
pub(super) fn join<T>(
    job: &CopyJob<'_>,
    files: &[PartFile],
    make: impl FnOnce(Parts<'_>) -> tree::Result<T>,
) -> Result<T> {
    let parts: Vec<ImagePart> = files.iter().map(|file| file.part.clone()).collect();
    let open = |index: usize| open(job, &files[index].path);
    match make((&parts, &open)) {
        Err(TreeError::Part { number, error, .. }) if number as usize <= files.len() => {
            let name = files[number as usize - 1].name();
            Err(Error::from(*error).during(format!("read {name}")))
        }
        joined => job.name_error(joined),
    }
}

/// The parts that the options name.
fn given(job: &CopyJob<'_>, source: &PartSource) -> Result<Vec<PartFile>> {
    let mut paths = Vec::new();
    for path in &job.options.parts {
        if !path.is_dir() {
            paths.push(path.clone());
            continue;
        }
        let listing = || format!("list {}", text::of_host_path(path, "-"));
        for entry in fs::read_dir(path).during(listing)? {
            let path = entry.during(listing)?.path();
            if path.extension() == Some(OsStr::new("part")) {
                paths.push(path);
            }
        }
    }
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let (inventory, mut files) = (&job.inventory, Vec::new());
    for path in paths {
        let name = text::of_host_path(&path, "standard input");
        let read = || {
            let bytes = open(job, &path)?;
            let part = ImagePart::read(&*bytes)?;
            let mismatch = part.mismatch(&bytes, inventory, source)?;
            Ok::<_, TreeError>((part, mismatch))
        };
        let (part, mismatch) = read().during(|| format!("read {name}"))?;
        match mismatch {
            None => files.push(PartFile { path, part }),
            Some(PartMismatch::Version(version)) => refuse!(
                "{name} was made by version {} of restow, this is {}",
                text::of_name(&version),
                env!("CARGO_PKG_VERSION")
            ),
            Some(PartMismatch::Options) => {
                refuse!("{name} was made with other options, or for another format")
            }
            Some(PartMismatch::Tree(None)) => refuse!("{name} was made of another tree"),
            Some(PartMismatch::Tree(Some(entry))) => refuse!(
                "{name} was made of another tree: {} has another name, size or modification time",
                job.source.path_name(&inventory.path(entry))
            ),
        }
    }
    Ok(files)
}

fn open(job: &CopyJob<'_>, path: &Path) -> tree::Result<Arc<dyn ReadAt>> {
    let input = Input::open_with(path, &job.options.remote)?;
    let bytes = input.seekable().map(Arc::clone);
    bytes.ok_or(TreeError::InvalidInput("neither a file nor an object"))
}
