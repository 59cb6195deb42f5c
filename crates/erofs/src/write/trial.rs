//! The units that an image would have, to try settings on some of them, and the size of an image
//! whose units have given lengths.

use std::collections::HashSet;

use codec::Settings;
use tree::{
    Duplicates, FileId, ImageSummary, Inventory, Lost, Output, Parallel, Result, Scratch, Verify,
};

use super::encode::{DataResult, EncodedUnit, ThreadCodec, UnitEncoder};
use super::image::ImageWriter;
use super::layout::{ImageContent, InodeLayout};
use super::options::Options;
use super::plan::{DataForm, DataJob, DataPart, jobs};
use super::unit::Codec;
use super::xattrs::XattrTable;
use super::{Described, LinkTargets};

/// The units of an image that is not written.
pub struct TrialImage<'a> {
    inventory: &'a Inventory<'a>,
    duplicates: &'a Duplicates,
    options: Options,
    xattrs: XattrTable<'a>,
    shared_xattrs: Vec<u8>,
    targets: LinkTargets,
    units: Vec<TrialUnit>,
}

/// A part of a file, or small files together.
#[derive(Clone, Debug)]
pub struct TrialUnit {
    /// The file, or the first of them.
    pub file: FileId,
    /// The length of its content in bytes.
    pub len: u32,
    content: UnitContent,
}

#[derive(Clone, Debug)]
enum UnitContent {
    Part(DataPart),
    /// Each file at this offset.
    Packed(Box<[(FileId, u32)]>),
}

impl TrialUnit {
    /// Whether it holds small files.
    pub fn is_packed(&self) -> bool {
        matches!(self.content, UnitContent::Packed(_))
    }
}

/// An encoded unit.
#[derive(Debug)]
pub struct EncodedTrialUnit {
    /// The stored bytes are the beginning of this.
    pub buffer: Vec<u8>,
    /// The length of the stored bytes; 0 for zeros, which are stored once.
    pub len: usize,
    /// Whether they are the content itself.
    pub is_plain: bool,
}

/// Encodes units as the writer of an image does: reads, encodes, decodes and compares. One for each
/// thread.
pub struct TrialUnitEncoder<'a> {
    work: UnitEncoder<'a>,
    worker: ThreadCodec,
}

impl<'a> TrialImage<'a> {
    /// Cuts the content of a tree into units. Of the compression, it only matters whether there is
    /// one; nothing is kept of the way in which the source stores it.
    ///
    /// # Errors
    /// As for [`create`](crate::create), as far as no content is read.
    pub fn new(
        inventory: &'a Inventory<'a>,
        duplicates: &'a Duplicates,
        options: Options,
        parallel: Parallel,
    ) -> Result<TrialImage<'a>> {
        options.check()?;
        let options = options.keep_extents(false).skip_unreadable(false);
        let Described {
            mut xattrs,
            targets,
            ..
        } = Described::of(inventory, &options, parallel, &mut ImageSummary::default())?;
        let shared_xattrs = xattrs.finish(duplicates)?;
        let mut units = Vec::new();
        for job in jobs(
            inventory,
            &options,
            duplicates,
            &Lost::default(),
            &xattrs,
            (None, None),
        ) {
            match job {
                DataJob::Unreadable { file, error } => {
                    let path = inventory.path(inventory.first_name(file));
                    return Err(error.in_file("read", &path));
                }
                DataJob::Part(part) if !part.is_hole => units.push(TrialUnit {
                    file: part.file,
                    len: part.len as u32,
                    content: UnitContent::Part(part),
                }),
                DataJob::Packed { files, len, .. } if len > 0 => units.push(TrialUnit {
                    file: files[0].0,
                    len: len as u32,
                    content: UnitContent::Packed(files.into()),
                }),
                // Holes and tiny files have no units, and nothing is kept.
                _ => {}
            }
        }
        Ok(TrialImage {
            inventory,
            duplicates,
            xattrs,
            shared_xattrs,
            targets,
            units,
            options,
        })
    }

    /// All units, in the order in which they are stored.
    pub fn units(&self) -> &[TrialUnit] {
        &self.units
    }

    /// The options with this compression.
    pub fn options(&self, compression: Option<Settings>) -> Options {
        self.options.clone().compression(compression)
    }

    /// A worker that encodes with these options, which are from [`TrialImage::options`].
    pub fn worker(&self, options: &'a Options) -> TrialUnitEncoder<'a> {
        let work = UnitEncoder::new(self.inventory, options, None, None);
        let worker = work.worker();
        TrialUnitEncoder { work, worker }
    }

    /// The size of an image whose units have these lengths. A unit with the length of its content
    /// is stored as it is, and one without length takes no space. All tables are made, and thrown
    /// away.
    ///
    /// # Errors
    /// As for [`create`](crate::create).
    pub fn image_bytes(
        &self,
        compression: Option<Settings>,
        lens: &[u32],
        parallel: Parallel,
    ) -> Result<u64> {
        // Units have no content that could be equal.
        let options = self
            .options(compression)
            .verify(Verify::Nothing)
            .duplicates(false);
        options.check()?;
        let (mut output, scratch) = (Output::discarding(), Scratch::memory());
        let mut writer = ImageWriter::new(self.inventory, &options, parallel, &mut output);
        let work = UnitEncoder::new(self.inventory, &options, None, None);
        let (inventory, lost) = (self.inventory, Lost::default());
        let codec = compression.map(|settings| Codec::of(settings.algorithm()));
        let mut lens = lens.iter();
        let mut zeros = HashSet::new();
        let mut unit = |len: usize, form: DataForm, is_hole: bool| {
            let stored = if is_hole { Some(&0) } else { lens.next() };
            let mut stored = stored.map_or(len, |&stored| len.min(stored as usize));
            let is_shared = stored == 0 && options.has_fragments() && !zeros.insert(len);
            if stored == 0 && !options.has_records() && !is_shared {
                // Zeros are stored once, if units can be shared; LZ4 takes a byte for 255.
                stored = len.min(len / 255 + 16);
            }
            let is_plain = stored == len || matches!(form, DataForm::Flat | DataForm::Chunks(_));
            let stored = if is_plain { len } else { stored };
            EncodedUnit::new(
                work.content.buffer(),
                stored,
                codec.filter(|_| !is_plain),
                len,
            )
        };
        let jobs = jobs(
            inventory,
            &self.options,
            self.duplicates,
            &lost,
            &self.xattrs,
            (None, None),
        );
        let results = jobs.map(|job| {
            Ok(match job {
                DataJob::Hole { part, bytes } => DataResult::Hole { part, bytes },
                DataJob::Packed { files, len, tiny } => {
                    let stored = (len > 0).then(|| unit(len, DataForm::Packed, false));
                    let tiny = tiny.into_iter().map(|file| {
                        let mut content = vec![0; inventory.size(file) as usize];
                        work.content.read(file, 0, &mut content)?;
                        Ok((file, content))
                    });
                    DataResult::Packed {
                        files,
                        stored,
                        tiny: tiny.collect::<Result<_>>()?,
                        lost: Vec::new(),
                    }
                }
                DataJob::Part(part) => {
                    let stored = unit(part.len, part.form, part.is_hole);
                    let is_hole = stored.len == 0 && options.has_records();
                    DataResult::Part(part, Some(stored).filter(|_| !is_hole))
                }
                DataJob::Unreadable { file, error } => DataResult::Unreadable { file, error },
                DataJob::Keep { .. } | DataJob::Fragment { .. } => {
                    return Err(tree::Error::Inconsistent("a trial keeps data"));
                }
            })
        });
        let data = writer.place_data(results, &work, &self.xattrs, &scratch)?;
        let (epoch, made) = writer.times();
        let content = ImageContent {
            inventory,
            options: &options,
            lost: &lost,
            duplicates: self.duplicates,
            data: &data,
            xattrs: &self.xattrs,
            targets: &self.targets,
            epoch,
        };
        let shared_bytes = self.shared_xattrs.len() as u64;
        let mut layout = InodeLayout::new(&content, writer.at, shared_bytes, &scratch)?;
        writer.write_tables(&content, &mut layout, &self.shared_xattrs)?;
        writer.finish(&content, &layout, made)?;
        Ok(writer.summary.image.image_bytes)
    }
}

impl TrialUnitEncoder<'_> {
    /// Reads, encodes and verifies a unit. The buffer of the result can be given back for the next.
    ///
    /// # Errors
    /// The file cannot be read; [`tree::Error::Unverified`] if the result does not decode to the
    /// content.
    pub fn encode(&mut self, unit: &TrialUnit) -> Result<EncodedTrialUnit> {
        let job = match &unit.content {
            UnitContent::Part(part) => DataJob::Part(*part),
            UnitContent::Packed(files) => DataJob::Packed {
                files: files.to_vec(),
                len: unit.len as usize,
                tiny: Vec::new(),
            },
        };
        let stored = match self.work.work(&mut self.worker, job)? {
            DataResult::Part(_, stored) => stored,
            DataResult::Packed { stored, .. } => stored,
            DataResult::Unreadable { error, .. } => return Err(error),
            DataResult::Hole { .. } | DataResult::Fragment { .. } => None,
        };
        let empty = || EncodedUnit::new(self.work.content.buffer(), 0, None, 0);
        let mut stored = stored.unwrap_or_else(empty);
        let is_plain = stored.codec.is_none();
        if !is_plain && self.worker.is_zero(unit.len as usize) {
            stored.len = 0;
        }
        Ok(EncodedTrialUnit {
            buffer: stored.buffer,
            len: stored.len,
            is_plain: is_plain || stored.len == 0,
        })
    }

    /// Takes back the buffer of a result.
    pub fn recycle(&self, result: EncodedTrialUnit) {
        self.work.content.recycle(result.buffer);
    }
}
