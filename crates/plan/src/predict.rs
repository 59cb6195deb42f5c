//! The prediction: a first pass over all parts, a sample for each candidate, and from both the
//! whole.

use std::time::Duration;

use codec::Wrapper;
use erofs::Kernel;
use tree::{Duplicates, Inventory, Parallel, Result, setters};

use crate::archive::{Archive, archive_bytes};
use crate::candidate::{Candidate, Coding, Container};
use crate::cut::{Clock, Cut, Tried, measure, timed};
use crate::estimate::{Design, Estimate, Rounding};
use crate::images::{Btrfs, Erofs, Squashfs};
use crate::population::{Unit, draw};
use crate::schedule::{Beside, Workers, worked_seconds};
use crate::stream::CutStream;

/// The part of a time that is uncertain beside the sample: other processes, the clock rate, the
/// medium.
const TIME_ERROR: f64 = 0.1;
/// The same in seconds, for copies that take less than one: processes start, the medium answers.
const TIME_ERROR_SECONDS: f64 = 0.1;
/// A SquashFS image is read back, and its tables are decoded and compared: that takes this part of
/// the time to make them (measured with the sources of Linux).
const READ_BACK: f64 = 0.5;
/// Where the sample leaves more uncertain than this part of a time, a larger one is tried.
const SAMPLE_ERROR: f64 = 0.08;
/// How much larger, as long as that takes no longer than this, in seconds.
const SAMPLE_GROWTH: u64 = 4;
const SAMPLE_SECONDS: f64 = 1.5;
/// Parts that the first pass takes at least, and that each candidate tries.
const FIRST_PARTS: f64 = 48.0;
const TRIED_PARTS: f64 = 24.0;
/// How far parts that are like no drawn one are off the others, in parts of their length: what the
/// first pass did not draw can be anything; what it measured, a candidate mostly changes alike.
const UNLIKE_FIRST: f64 = 0.7;
const UNLIKE_TRIED: f64 = 0.1;
/// Linux begins to write what is older than this, in seconds, while a file is still being written.
const WRITTEN_LATER: f64 = 20.0;

/// A copy syncs its file, and the directory of that.
const SYNCS: f64 = 2.0;

/// What is predicted, and how.
///
/// New options may come, so a struct literal does not work: the methods, which have the names of
/// the fields, replace one each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanOptions {
    /// The format of the copy.
    pub container: Container,
    /// The candidates that are tried.
    pub candidates: Vec<Candidate>,
    /// The threads that try, and that a copy would have.
    pub parallel: Parallel,
    /// The processors of the machine.
    pub processors: usize,
    /// Which sample is drawn.
    pub seed: u64,
    /// The bytes that the first pass encodes, about, of a larger tree.
    pub first_bytes: u64,
    /// The bytes that each candidate encodes, about; as many parts as that allows.
    pub sample_bytes: u64,
    /// The destination.
    pub medium: Medium,
    /// The oldest Linux that can read an EROFS image. Codecs that it does not have are left out.
    pub min_kernel: Kernel,
}

setters!(PlanOptions {
    candidates: Vec<Candidate>,
    parallel: Parallel,
    processors: usize,
    seed: u64,
    first_bytes: u64,
    sample_bytes: u64,
    medium: Medium,
    min_kernel: Kernel,
});

impl PlanOptions {
    /// All usual candidates for a format, tried on 24 MiB each.
    pub fn new(container: Container) -> PlanOptions {
        let parallel = Parallel::available();
        PlanOptions {
            container,
            candidates: Candidate::usual(container),
            parallel,
            processors: parallel.threads(),
            seed: 0,
            first_bytes: 2 << 30,
            sample_bytes: 24 << 20,
            medium: Medium::default(),
            min_kernel: erofs::Options::default().min_kernel,
        }
    }
}

/// How fast the destination takes data; by default, a medium of 500 MB a second.
#[derive(Clone, Copy, Debug)]
pub struct Medium {
    /// Seconds that a byte takes to be written to a file that is not synced yet.
    pub write_seconds: f64,
    /// Seconds that a byte takes to be read back from it.
    pub read_seconds: f64,
    /// Bytes that reach the medium in a second.
    pub rate: f64,
    /// Seconds that a sync takes beside those of its bytes. A copy syncs a file and its directory.
    pub sync_seconds: f64,
}

impl Default for Medium {
    fn default() -> Medium {
        Medium {
            write_seconds: 0.5e-9,
            read_seconds: 0.2e-9,
            rate: 500e6,
            sync_seconds: 1e-3,
        }
    }
}

/// The subject of a prediction, and its means.
pub(crate) struct Question<'a> {
    pub(crate) inventory: &'a Inventory<'a>,
    pub(crate) options: &'a PlanOptions,
    pub(crate) clock: Clock<'a>,
    pub(crate) stage: &'a dyn Fn(PredictionStage<'_>),
}

/// What is done now.
#[derive(Clone, Copy, Debug)]
pub enum PredictionStage<'a> {
    /// Files are compared.
    Compare,
    /// The first pass.
    First,
    /// A candidate is tried.
    Try(&'a Candidate),
}

/// A predicted number and how far the real one may be off: it is within the error in 95 of 100
/// cases.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// The prediction.
    pub value: f64,
    /// The half length of the error bar.
    pub error: f64,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Parts of the whole tree.
    pub parts: u64,
    /// Parts and bytes of the first pass.
    pub first_parts: u64,
    /// Bytes of the first pass.
    pub first_bytes: u64,
    /// Parts that each candidate encoded.
    pub tried_parts: u64,
    /// Bytes that each candidate encoded.
    pub tried_bytes: u64,
}

/// A candidate and what it would cost.
#[derive(Clone, Debug)]
pub struct CandidateRow {
    /// The candidate.
    pub candidate: Candidate,
    /// Bytes of content that are encoded, of equal files once.
    pub content_bytes: f64,
    /// Size of the result in bytes.
    pub bytes: Range,
    /// Seconds that a copy takes.
    pub seconds: Range,
    /// Seconds that one thread takes to encode all content.
    pub encode_seconds: f64,
    /// Seconds that one thread takes to decode all content; 0 if nothing is encoded.
    pub decode_seconds: f64,
    /// Seconds that one thread takes to read all content from the medium and to decode it.
    pub read_seconds: f64,
    /// Bytes of memory that a reader needs.
    pub memory_bytes: u64,
    /// What it was tried on.
    pub sampled: Sampled,
}

impl CandidateRow {
    /// Bytes of content a second that one thread decodes; `None` if nothing is encoded.
    pub fn decode_rate(&self) -> Option<f64> {
        (self.decode_seconds > 0.0).then(|| self.content_bytes / self.decode_seconds)
    }
}

/// What the candidates would cost.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Files, directories and all others.
    pub files: u64,
    /// Bytes of content, in regular files.
    pub content_bytes: u64,
    /// Bytes of content in files that are equal to others, and are stored once with them.
    pub duplicate_bytes: u64,
    /// In the order of the candidates.
    pub rows: Vec<CandidateRow>,
}

/// Predicts what each candidate costs. `clock` gives the time since the tree began to be opened,
/// which counts; `stage` is called with what is done now.
///
/// # Errors
/// The tree cannot be read, or does not fit the container; a codec did not decode what it encoded.
pub fn predict(
    inventory: &Inventory<'_>,
    options: &PlanOptions,
    clock: &(dyn Fn() -> Duration + Sync),
    stage: &dyn Fn(PredictionStage<'_>),
) -> Result<Prediction> {
    let question = &Question {
        inventory,
        options,
        clock,
        stage,
    };
    let (container, parallel) = (options.container, options.parallel);
    let mut fixed = clock().as_secs_f64();
    let mut prediction = Prediction {
        files: inventory.file_count().into(),
        content_bytes: inventory.content_bytes(),
        duplicate_bytes: 0,
        rows: Vec::new(),
    };
    let mut rows: Vec<Option<CandidateRow>> = vec![None; options.candidates.len()];
    let mut duplicates = Duplicates::default();
    if !matches!(container, Container::Tar | Container::Stream) {
        stage(PredictionStage::Compare);
        let (found, seconds) = timed(clock, || Duplicates::find(inventory, parallel));
        duplicates = found?;
        fixed += seconds;
        let equal = inventory
            .files()
            .filter(|&file| duplicates.original(file).is_some());
        prediction.duplicate_bytes = equal.map(|file| inventory.size(file)).sum();
    }
    match container {
        Container::Squashfs => {
            for block_bytes in block_sizes(question) {
                let (cut, seconds) =
                    timed(clock, || Squashfs::new(inventory, &duplicates, block_bytes));
                let of_cut = |it: &Candidate| it.block_bytes == Some(block_bytes);
                predict_cut(question, &mut cut?, fixed + seconds, &of_cut, &mut rows)?;
            }
        }
        Container::Erofs => predict_erofs(question, &duplicates, fixed, &mut rows)?,
        Container::Btrfs => {
            let (cut, seconds) = timed(clock, || Btrfs::new(inventory, &duplicates, parallel));
            predict_cut(question, &mut cut?, fixed + seconds, &|_| true, &mut rows)?;
        }
        Container::Stream => {
            stage(PredictionStage::First);
            let mut cut = CutStream::new(inventory, clock)?;
            fixed += cut.hashed_seconds;
            let content = cut.units().iter().map(|unit| u64::from(unit.len)).sum();
            let plain = (content, cut.plain_bytes, fixed + cut.sent_seconds);
            add_plain(question, plain, &mut rows);
            predict_cut(question, &mut cut, fixed, &|_| true, &mut rows)?;
        }
        Container::Tar => predict_archives(question, fixed, &mut rows)?,
    }
    prediction.rows = rows.into_iter().flatten().collect();
    Ok(prediction)
}

fn predict_erofs(
    question: &Question<'_>,
    duplicates: &Duplicates,
    fixed: f64,
    rows: &mut [Option<CandidateRow>],
) -> Result<()> {
    let Question {
        inventory,
        options,
        clock,
        ..
    } = *question;
    // As for a copy: files of this time have smaller inodes.
    let times = inventory.files().map(|file| inventory.metadata(file).mtime);
    let newest = times.map(|time| time.seconds).max().unwrap_or(0);
    for block_bytes in block_sizes(question) {
        let erofs = erofs::Options::default()
            .made(newest)
            .unit_bytes(block_bytes)
            .min_kernel(options.min_kernel);
        // Without compression, files are cut in another way.
        for is_plain in [true, false] {
            let with = |it: &Candidate| erofs.clone().compression(it.compression());
            let of_cut = |it: &Candidate| {
                it.block_bytes == Some(block_bytes)
                    && (it.coding == Coding::Plain) == is_plain
                    && with(it).check().is_ok()
            };
            let Some(one) = options.candidates.iter().find(|it| of_cut(it)) else {
                continue;
            };
            let (cut, seconds) = timed(clock, || {
                Erofs::new(inventory, duplicates, with(one), options.parallel)
            });
            predict_cut(question, &mut cut?, fixed + seconds, &of_cut, rows)?;
        }
    }
    Ok(())
}

/// The block sizes among the candidates, ascending.
fn block_sizes(question: &Question<'_>) -> Vec<u32> {
    let sizes = question
        .options
        .candidates
        .iter()
        .filter_map(|it| it.block_bytes);
    let mut sizes: Vec<u32> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn predict_archives(
    question: &Question<'_>,
    fixed: f64,
    rows: &mut [Option<CandidateRow>],
) -> Result<()> {
    let Question {
        inventory,
        clock,
        stage,
        ..
    } = *question;
    stage(PredictionStage::First);
    let (bytes, seconds) = archive_bytes(inventory, clock)?;
    add_plain(question, (bytes, bytes, fixed + seconds), rows);
    for wrapper in [Wrapper::Gzip, Wrapper::Zstd, Wrapper::Xz] {
        let of_cut =
            |it: &Candidate| matches!(it.coding, Coding::Packed(known, _) if known == wrapper);
        let mut cut = Archive::new(inventory, wrapper, bytes);
        predict_cut(question, &mut cut, fixed, &of_cut, rows)?;
    }
    Ok(())
}

/// Adds the rows of candidates that nothing is encoded for: they have `content` bytes, the result
/// has `bytes`, and is ready to be written after `seconds`.
fn add_plain(
    question: &Question<'_>,
    (content, bytes, seconds): (u64, u64, f64),
    rows: &mut [Option<CandidateRow>],
) {
    let options = question.options;
    let seconds = seconds + bytes as f64 * options.medium.write_seconds;
    let seconds = seconds + synced_seconds(question, bytes, seconds);
    for (row, candidate) in rows.iter_mut().zip(&options.candidates) {
        if candidate.coding == Coding::Plain {
            *row = Some(CandidateRow {
                candidate: candidate.clone(),
                content_bytes: content as f64,
                bytes: Range {
                    value: bytes as f64,
                    error: 0.0,
                },
                seconds: Range {
                    value: seconds,
                    error: time_error(seconds),
                },
                encode_seconds: 0.0,
                decode_seconds: 0.0,
                read_seconds: bytes as f64 / options.medium.rate.max(1.0),
                memory_bytes: candidate.memory_bytes(options.container),
                sampled: Sampled::default(),
            });
        }
    }
}

/// Half of a time's error bar, beside the error of the sample.
fn time_error(seconds: f64) -> f64 {
    TIME_ERROR_SECONDS.hypot(TIME_ERROR * seconds)
}

/// Seconds to wait until the last bytes are on the medium: the first are written while the others
/// are made.
fn synced_seconds(question: &Question<'_>, bytes: u64, seconds: f64) -> f64 {
    let last = bytes as f64 * (WRITTEN_LATER / seconds.max(WRITTEN_LATER));
    let medium = question.options.medium;
    last / medium.rate.max(1.0) + SYNCS * medium.sync_seconds
}

/// The result of the first pass.
struct First {
    /// The parts that were measured.
    design: Design,
    /// By part: its stored length by the encoder of the first pass; 0 if it was not measured.
    encoded: Vec<f64>,
    /// The same without compression: holes have none.
    plain: Vec<f64>,
    /// The encoder.
    coding: Coding,
}

impl First {
    /// Estimates a quantity for all parts from an estimate for those that were measured.
    fn expand(&self, units: &[Unit], measured: Estimate) -> Estimate {
        let known: Vec<f64> = units.iter().map(|unit| unit.plain.into()).collect();
        let parts = self.design.drawn().iter();
        let values: Vec<f64> = parts.map(|&unit| measured.all[unit]).collect();
        let mut all = self.design.estimate(&known, &values);
        if measured.total > 0.0 {
            all.error = all.error.hypot(measured.error * all.total / measured.total);
        }
        all
    }
}

fn first_pass(question: &Question<'_>, cut: &dyn Cut) -> Result<First> {
    let options = question.options;
    let units = cut.units();
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_key(|&unit| (units[unit].class, units[unit].kind));
    let drawn = draw(
        units,
        &order,
        &|_| 1.0,
        options.first_bytes,
        FIRST_PARTS,
        options.seed,
    );
    let design = Design::new(units.len(), &order, drawn, UNLIKE_FIRST);
    let mut measured = design.drawn().to_vec();
    measured.sort_unstable();
    (question.stage)(PredictionStage::First);
    let tried = cut.first_pass(&measured, options.parallel, question.clock)?;
    let (mut encoded, mut plain) = (vec![0.0; units.len()], vec![0.0; units.len()]);
    for (&unit, tried) in measured.iter().zip(&tried) {
        encoded[unit] = tried.len.into();
        if tried.len > 0 {
            plain[unit] = units[unit].plain.into();
        }
    }
    Ok(First {
        design,
        encoded,
        plain,
        coding: cut.first().coding,
    })
}

/// Predicts the candidates of one cut, and puts their rows in their places.
pub(crate) fn predict_cut(
    question: &Question<'_>,
    cut: &mut dyn Cut,
    fixed: f64,
    of_cut: &dyn Fn(&Candidate) -> bool,
    rows: &mut [Option<CandidateRow>],
) -> Result<()> {
    let is_wanted = |(row, candidate): (&Option<_>, &Candidate)| row.is_none() && of_cut(candidate);
    if !rows.iter().zip(&question.options.candidates).any(is_wanted) {
        return Ok(());
    }
    let first = first_pass(question, cut)?;
    let sample = Sample::new(question, cut.units(), &first, question.options.sample_bytes);
    let together = cut.load(sample.design.drawn(), question.clock)?;
    for (row, candidate) in rows.iter_mut().zip(&question.options.candidates) {
        if of_cut(candidate) && row.is_none() {
            (question.stage)(PredictionStage::Try(candidate));
            let fixed = (fixed, together.unwrap_or(0.0));
            let (mut tried, mut error) = sample.row(question, cut, &first, candidate, fixed)?;
            // A few parts can take most of the time, such as what compresses within noise. Sizes
            // stay those of the first sample, so that they do not depend on how long something
            // took.
            while together.is_none() && error > SAMPLE_ERROR && is_soon(question, &tried) {
                let bytes = tried.sampled.tried_bytes * SAMPLE_GROWTH;
                let larger = Sample::new(question, cut.units(), &first, bytes);
                let (timed, uncertain) = larger.row(question, cut, &first, candidate, fixed)?;
                error = uncertain;
                tried = CandidateRow {
                    bytes: tried.bytes,
                    ..timed
                };
            }
            *row = Some(tried);
        }
    }
    Ok(())
}

/// Whether there is a larger sample, and it takes little time.
fn is_soon(question: &Question<'_>, row: &CandidateRow) -> bool {
    let sampled = row.sampled;
    let share = (SAMPLE_GROWTH * sampled.tried_bytes) as f64 / row.content_bytes.max(1.0);
    let seconds = share.min(1.0) * row.encode_seconds / question.options.parallel.threads() as f64;
    sampled.tried_parts < sampled.first_parts && seconds <= SAMPLE_SECONDS
}

/// The parts that every candidate tries.
struct Sample {
    design: Design,
    sampled: Sampled,
}

impl Sample {
    /// Draws a sample of about this many bytes from the parts of the first pass: sorted by how well
    /// they compress, roughly, and by kind.
    fn new(question: &Question<'_>, units: &[Unit], first: &First, bytes: u64) -> Sample {
        let ratio = |unit: usize| first.encoded[unit] / f64::from(units[unit].len);
        let mut order = first.design.drawn().to_vec();
        order.sort_by_cached_key(|&unit| {
            let Unit { class, kind, .. } = units[unit];
            let tenth = (10.0 * ratio(unit)) as u32;
            (class, tenth, kind, (1000.0 * ratio(unit)) as u32, unit)
        });
        let seed = question.options.seed ^ 1;
        let weight = |unit: usize| first.design.weight(unit);
        let drawn = draw(units, &order, &weight, bytes, TRIED_PARTS, seed);
        let bytes = |some: &[usize]| some.iter().map(|&it| u64::from(units[it].len)).sum();
        Sample {
            sampled: Sampled {
                parts: units.len() as u64,
                first_parts: order.len() as u64,
                first_bytes: bytes(&order),
                tried_parts: drawn.units.len() as u64,
                tried_bytes: bytes(&drawn.units),
            },
            design: Design::new(units.len(), &order, drawn, UNLIKE_TRIED),
        }
    }

    /// Tries a candidate. `fixed` are the seconds before all else, and to put all parts together.
    /// Also gives which part of the time is uncertain by the sample.
    fn row(
        &self,
        question: &Question<'_>,
        cut: &dyn Cut,
        first: &First,
        candidate: &Candidate,
        (fixed, together): (f64, f64),
    ) -> Result<(CandidateRow, f64)> {
        let (units, clock) = (cut.units(), question.clock);
        let trial = cut.with(candidate)?;
        let tried = measure(
            &*trial,
            self.design.drawn(),
            question.options.parallel,
            clock,
        )?;
        // Of the whole tree: each part for those that the first pass left out beside it, too.
        let weight = |unit: usize| first.design.weight(unit);
        let estimate = |known: &[f64], value: &dyn Fn(&Tried) -> f64| {
            let known = known.iter().enumerate();
            let known: Vec<f64> = known.map(|(unit, known)| weight(unit) * known).collect();
            let parts = self.design.drawn().iter().zip(&tried);
            let values: Vec<f64> = parts
                .map(|(&it, tried)| weight(it) * value(tried))
                .collect();
            let mut measured = self.design.estimate(&known, &values);
            for (unit, value) in measured.all.iter_mut().enumerate() {
                *value /= weight(unit);
            }
            measured
        };
        let known = match candidate.coding {
            Coding::Plain => &first.plain,
            Coding::Blocks(_) | Coding::Packed(..) => &first.encoded,
        };
        let is_known = candidate.coding == Coding::Plain || candidate.coding == first.coding;
        let mut parts = self.design.drawn().iter().zip(&tried);
        let is_known = is_known && parts.all(|(&unit, tried)| known[unit] == f64::from(tried.len));
        let mut lens = estimate(known, &|tried| f64::from(tried.len));
        if is_known {
            // The first pass tried it.
            lens = Estimate::exact(known.clone());
        }
        let lens = first.expand(units, lens);
        let content = |unit: &Unit| f64::from(unit.len);
        let measured: Vec<f64> = (units.iter().enumerate())
            .map(|(number, unit)| match first.design.chance(number) {
                0.0 => 0.0,
                _ => content(unit),
            })
            .collect();
        let total = |value: &dyn Fn(&Tried) -> f64| first.expand(units, estimate(&measured, value));
        let encode = total(&|tried| tried.encode);
        let decode = total(&|tried| tried.decode);
        let plain = total(&|tried| {
            if tried.decode > 0.0 {
                0.0
            } else {
                f64::from(tried.len)
            }
        });
        let mut rounding = Rounding::default();
        let all: Vec<u32> = (units.iter().zip(&lens.all).enumerate())
            .map(|(number, (&unit, &len))| {
                let is_tried = self.design.chance(number) > 0.0;
                if is_tried || is_known && first.design.chance(number) > 0.0 {
                    len as u32
                } else {
                    rounding.round(unit, len)
                }
            })
            .collect();
        let (bytes, tables) = timed(clock, || trial.whole(&all, question.options.parallel));
        let bytes = bytes?;
        let step = if lens.error > 0.0 {
            f64::from(cut.step_bytes())
        } else {
            0.0
        };
        let workers = Workers {
            threads: question.options.parallel.threads(),
            in_flight: cut.in_flight(question.options.parallel),
            processors: question.options.processors,
        };
        let threads = workers.threads as f64;
        let beside = Beside {
            piped: together,
            written: bytes as f64 * question.options.medium.write_seconds,
        };
        let read_back = match question.options.container {
            // What is stored as it is is read back, too; all else was decoded before.
            Container::Squashfs | Container::Erofs => {
                READ_BACK * tables + plain.total * question.options.medium.read_seconds / threads
            }
            Container::Btrfs | Container::Tar | Container::Stream => 0.0,
        };
        let worked = worked_seconds(workers, &encode.all, beside);
        let seconds = fixed + worked + tables + read_back;
        let seconds = seconds + synced_seconds(question, bytes, seconds);
        let uncertain = encode.error / threads;
        let row = CandidateRow {
            candidate: candidate.clone(),
            content_bytes: units.iter().map(content).sum(),
            bytes: Range {
                value: bytes as f64,
                error: lens.error + step,
            },
            seconds: Range {
                value: seconds,
                error: uncertain.hypot(time_error(seconds)),
            },
            encode_seconds: encode.total,
            decode_seconds: decode.total,
            read_seconds: decode.total + bytes as f64 / question.options.medium.rate.max(1.0),
            memory_bytes: candidate.memory_bytes(question.options.container),
            sampled: self.sampled,
        };
        Ok((row, uncertain / seconds.max(f64::MIN_POSITIVE)))
    }
}
