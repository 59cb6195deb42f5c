//! Writes file content to an image: cut into extents, compressed on all threads, placed in order.

mod area;
mod choice;
mod encode;
mod job;
mod jobs;
mod reserve;
mod reuse;
mod share;
mod sink;
mod trial;

use tree::{Duplicates, Inventory, Lost, Parallel, Progress, Result, ordered};

pub(crate) use self::area::{Area, ExtentSlice, FileContent};
use self::encode::DataEncoder;
use self::jobs::jobs;
use self::reuse::OldData;
use self::share::Originals;
use self::sink::Sink;
pub use self::trial::{ImageTrial, TrialPart, TrialResult, TrialWorker};
use crate::options::Options;
use crate::write::describe::FileDescriptions;
use crate::write::devices::Devices;

/// Number of jobs in flight per thread. Text at a high level takes a hundred times as long as
/// noise, and results after a slow job have to wait.
const JOBS_PER_THREAD: usize = 16;
/// With more threads than this, each has four jobs in flight, of up to 128 KiB each.
const JOBS_MAX: usize = 128;

/// Encodes and writes the content of all files that are not already left out.
#[allow(clippy::too_many_arguments, reason = "each is a separate input")]
pub(crate) fn write<'a>(
    inventory: &Inventory,
    described: &FileDescriptions,
    duplicates: &Duplicates,
    lost: Lost,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    devices: &'a Devices<'a>,
) -> Result<Area<'a>> {
    let originals = Originals::new(inventory, duplicates);
    let mut work = DataEncoder::new(inventory, described, options);
    let old_differs = work.reuse(OldData::find(inventory, options, parallel));
    let lost_before = lost.files().collect();
    let area = Area::new(inventory.file_count(), lost, options, devices)?;
    let mut sink = Sink::new(area, &work, progress);
    let in_flight = JOBS_MAX.min(JOBS_PER_THREAD * parallel.threads());
    ordered(
        parallel.in_flight(in_flight.max(4 * parallel.threads())),
        jobs(inventory, &originals, &lost_before, options),
        || work.worker(),
        |worker, job| work.work(worker, job),
        |done| sink.take(done),
    )?;
    let mut area = sink.finish(&originals);
    area.old_differs = old_differs;
    Ok(area)
}
