//! Writes file content to an image: cut into extents, compressed on all threads, placed in order.

mod area;
mod choice;
mod encode;
mod job;
mod jobs;
mod part;
mod reserve;
mod reuse;
mod share;
mod sink;
mod trial;

use std::collections::BTreeSet;

use tree::{
    Duplicates, ImageSummary, Inventory, Lost, Parallel, PartNumber, PartReader, PartWriter,
    Progress, Result, ordered,
};

pub(crate) use self::area::{Area, ExtentSlice, FileContent};
use self::encode::DataEncoder;
use self::jobs::jobs;
pub use self::part::part_source;
use self::part::{PartResults, stored_files};
use self::reuse::OldData;
use self::share::Originals;
use self::sink::Sink;
pub use self::trial::{ImageTrial, TrialPart, TrialResult, TrialWorker};
use crate::options::Options;
use crate::write::describe::FileDescriptions;
use crate::write::devices::Devices;

/// More jobs are in flight than usual, of up to 128 KiB each: text at a high level takes a hundred
/// times as long as noise, and results after a slow job have to wait.
const JOBS_FACTOR: usize = 4;
/// As far as these are not exceeded.
const JOBS_MAX: usize = 128;

/// Encodes the content of all files that are not already left out, or takes it from parts, and
/// writes it.
#[allow(clippy::too_many_arguments, reason = "each is a separate input")]
pub(crate) fn write<'a>(
    inventory: &Inventory,
    described: &FileDescriptions,
    duplicates: &Duplicates,
    lost: Lost,
    parts: Option<&mut PartReader<'_>>,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    devices: &'a Devices<'a>,
) -> Result<Area<'a>> {
    let originals = Originals::new(inventory, duplicates);
    let mut work = DataEncoder::new(inventory, Some(described), options);
    let old_differs = work.reuse(OldData::find(inventory, options, parallel));
    let lost_before = lost.files().collect();
    let area = Area::new(inventory.file_count(), lost, options, devices)?;
    let mut sink = Sink::new(area, &work, progress);
    if let Some(parts) = parts {
        let mut results = PartResults::new(parts, &work, &originals, options);
        while let Some(done) = results.next()? {
            sink.take(done)?;
        }
    } else {
        ordered(
            in_flight(parallel),
            jobs(inventory, &originals, &lost_before, options, 0..u64::MAX),
            || work.worker(),
            |worker, job| work.work(worker, job),
            |done| sink.take(done),
        )?;
    }
    let mut area = sink.finish(&originals);
    area.old_differs = old_differs;
    Ok(area)
}

fn in_flight(parallel: Parallel) -> Parallel {
    let jobs = parallel.jobs_max();
    parallel.in_flight(jobs.max(JOBS_MAX.min(JOBS_FACTOR * jobs)))
}

/// Encodes a share of the content of all files, and writes it to a part.
pub(crate) fn write_part(
    inventory: &Inventory<'_>,
    duplicates: &Duplicates,
    number: PartNumber,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    part: &mut PartWriter<'_>,
) -> Result<ImageSummary> {
    let originals = Originals::new(inventory, duplicates);
    let stored = stored_files(inventory, &originals).map(|file| inventory.size(file));
    let content_bytes = stored.fold(0, u64::saturating_add);
    let share = number.share(content_bytes);
    progress.expect(None, Some(share.end.min(content_bytes) - share.start));
    let work = DataEncoder::new(inventory, None, options);
    let (none, mut summary) = (BTreeSet::new(), ImageSummary::default());
    ordered(
        in_flight(parallel),
        jobs(inventory, &originals, &none, options, share),
        || work.worker(),
        |worker, job| work.work(worker, job),
        |done| {
            let before = (summary.files, summary.content_bytes);
            part::put(part, &work, done, &mut summary)?;
            progress.advance(summary.files - before.0, summary.content_bytes - before.1);
            Ok(())
        },
    )?;
    Ok(summary)
}
