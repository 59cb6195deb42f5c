//! A copy whose source is known.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path};
use std::sync::{Arc, OnceLock};

use tree::edit::{Edited, Edits, PackingChoice, Selection};
use tree::rescue::{Loss, Rescue};
use tree::{FileId, FileKind, FileSystem, Inventory, Output, Parallel};

use super::format::{Format, is_stream};
use super::options::CopyOptions;
use super::summary::{CopyLoss, LossReason};
use crate::error::{During, refuse};
use crate::memory::upload_bytes_max;
use crate::verity::add_tree;
use crate::{
    Address, Error, HashTree, ImageDestination, Profile, Result, SourceTree, create_object, text,
};

/// A copy whose source is listed, before anything is written.
pub struct CopyJob<'a> {
    pub(super) source: &'a SourceTree,
    selections: [Selection; 2],
    edited: Option<&'a Edited>,
    /// The view without the files that cannot be read.
    rescue: Option<&'a Rescue<'a>>,
    pub(super) inventory: Inventory<'a>,
    pub(super) dst: &'a Path,
    pub(super) format: Format,
    pub(super) options: &'a CopyOptions,
    /// The threads that work, within the bound on memory.
    pub(super) parallel: Parallel,
    /// The bytes of an object that wait at most.
    pub(super) upload_bytes_max: u64,
    /// Creates the output.
    create: &'a (dyn Fn() -> tree::Result<Output> + Sync),
    /// How many other names has the file that the output replaces.
    pub(super) other_names: u64,
    /// The note of an object: its source, in short.
    pub(super) note: OnceLock<String>,
}

impl<'a> CopyJob<'a> {
    /// Lists the files of a source, with the edits, and hands the job to `run`.
    ///
    /// # Errors
    /// The tree cannot be read or exceeds a limit, or a selected path does not exist; those of
    /// `run`.
    pub fn with<T, E: From<Error>>(
        source: &SourceTree,
        (dst, format): (&Path, Format),
        edits: Option<Edits>,
        options: &CopyOptions,
        run: impl FnOnce(&CopyJob<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let place = format
            .is_container_image()
            .then(|| ImageDestination::of(dst));
        let place = place.transpose()?;
        let file = place.as_ref().map_or(dst, |place| &place.path);
        let create = || {
            if dst == Path::new("-") {
                return Ok(Output::standard()?);
            }
            if options.in_place {
                return Output::in_place(file);
            }
            Output::create(file, options.overwrite)
        };
        let there = fs::metadata(file).ok().filter(fs::Metadata::is_file);
        if Address::is_written_object(dst) {
            refuse_for_object(format, options)?;
        }
        let names = there.map_or(1, |there| there.nlink());
        let is_replaced = format != Format::Dir && !is_stream(dst) && !options.in_place;
        let other_names = if is_replaced {
            names.saturating_sub(1)
        } else {
            0
        };
        let output = (&create as &_, other_names);
        Self::with_output(source, (dst, format), edits, options, output, run)
    }

    /// The same with an output that `create` opens; `dst` is its name in errors. `other_names` is
    /// how many more has the file that it replaces.
    pub(super) fn with_output<T, E: From<Error>>(
        source: &SourceTree,
        (dst, format): (&Path, Format),
        edits: Option<Edits>,
        options: &CopyOptions,
        (create, other_names): (&(dyn Fn() -> tree::Result<Output> + Sync), u64),
        run: impl FnOnce(&CopyJob<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let selection = edits.as_ref().map(|edits| edits.selection.clone());
        let selections = [source.selection.clone(), selection.unwrap_or_default()];
        let edited = edits.map(|edits| Edited::new(Arc::clone(source.tree()), edits));
        let edited = edited.transpose().map_err(Error::from)?;
        let tree: &dyn FileSystem = edited.as_ref().map_or(&**source.tree(), |edited| edited);
        let rescue = Rescue::new(tree, options.keep_damaged);
        let rescue = options.skips().then_some(&rescue);
        let tree = rescue.map_or(tree, |rescue| rescue);
        let inventory = Inventory::of(tree, &options.limits);
        let mut inventory = inventory.map_err(|error| source.name_error(error))?;
        if format == Format::Btrfs {
            options.add_attributes(&mut inventory)?;
        }
        if options.whole_seconds {
            inventory.drop_nanoseconds();
        }
        if let Some(epoch) = options.epoch.filter(|_| format.has_limited_times()) {
            inventory.limit_mtimes(epoch);
        }
        let mut required = selections.iter().filter(|it| !it.optional);
        let unmatched = required.find_map(|it| it.only.unmatched().next());
        if let Some(path) = unmatched {
            let path = source.path_name(path);
            return Err(Error::refused(format!("{path} does not exist")).into());
        }
        let mut job = CopyJob {
            source,
            selections,
            edited: edited.as_ref(),
            rescue,
            inventory,
            dst,
            format,
            options,
            parallel: options.parallel,
            upload_bytes_max: upload_bytes_max(format == Format::Btrfs),
            create,
            other_names,
            note: OnceLock::new(),
        };
        job.bound_memory()?;
        run(&job)
    }

    /// The same job for other files of the tree, in another format.
    pub(super) fn with_part<'b>(&self, format: Format, inventory: Inventory<'b>) -> CopyJob<'b>
    where
        'a: 'b,
    {
        CopyJob {
            selections: self.selections.clone(),
            inventory,
            format,
            note: OnceLock::new(),
            ..*self
        }
    }

    /// The files that are copied.
    pub fn inventory(&self) -> &Inventory<'a> {
        &self.inventory
    }

    /// The patterns of files to leave out that have matched nothing in any source.
    pub fn unmatched_exclude(&self) -> impl Iterator<Item = &[u8]> {
        self.selections.iter().flat_map(|it| it.exclude.unmatched())
    }

    /// The additions that were not made, and why.
    pub fn ignored_additions(&self) -> &[(Box<[u8]>, &'static str)] {
        self.edited.map_or(&[], Edited::ignored)
    }

    /// The files for which actions choose how a SquashFS image stores them.
    pub(super) fn packing(&self) -> HashMap<FileId, PackingChoice> {
        let packing = self.edited.map(Edited::packing);
        let Some(packing) = packing.filter(|packing| !packing.is_empty()) else {
            return HashMap::new();
        };
        let files = self.inventory.files();
        let choice = |file| Some((file, packing.get(&self.inventory.ino(file))?.clone()));
        files.filter_map(choice).collect()
    }

    /// The newest modification time of a file, in seconds since 1970.
    pub(super) fn newest_mtime(&self) -> i64 {
        let files = self.inventory.files();
        let times = files.map(|file| self.inventory.metadata(file).mtime.seconds);
        let newest = times.max().unwrap_or(0);
        self.options.epoch.map_or(newest, |epoch| newest.min(epoch))
    }

    /// A verb and the destination, for errors.
    pub(super) fn on_dst(&self, verb: &str) -> String {
        let dst = text::of_host_path(self.dst, "standard output");
        format!("{verb} {dst}")
    }

    /// Creates the output.
    pub(super) fn output(&self) -> Result<Output> {
        let created = if Address::is_written_object(self.dst) {
            let upload = self.options.upload.clone().note(self.note.get().cloned());
            let upload = upload.waiting_bytes(self.upload_bytes_max);
            create_object(self.dst, &self.options.remote, &upload)
        } else {
            (self.create)()
        };
        created.during(|| self.on_dst("create"))
    }

    /// Finishes the output, if `made` has no error; names the file of an error in it.
    pub(super) fn finish<T>(&self, made: tree::Result<T>, output: Output) -> Result<T> {
        let made = self.name_error(made)?;
        output.commit().during(|| self.on_dst("finish"))?;
        Ok(made)
    }

    /// Creates the file for the hash tree of an image, if it gets one.
    pub(super) fn tree_output(&self) -> Result<Option<Output>> {
        let file = self.options.verity.as_ref();
        let Some(file) = file.and_then(|verity| verity.file.as_deref()) else {
            return Ok(None);
        };
        if path::absolute(file)? == path::absolute(self.dst)? {
            refuse!("the hash tree cannot be written to the file of the image");
        }
        let name = || format!("create {}", text::of_host_path(file, "-"));
        let output = Output::create(file, self.options.overwrite).during(name)?;
        Ok(Some(output))
    }

    /// Finishes an image as [`CopyJob::finish`] does, with its hash tree. A file with the tree gets
    /// its name first, so that no image is without one.
    pub(super) fn finish_image<T>(
        &self,
        made: tree::Result<T>,
        (output, tree): (Output, Option<Output>),
        image_bytes: impl Fn(&T) -> u64,
    ) -> Result<(T, Option<HashTree>)> {
        let made = self.name_error(made)?;
        let appended = &self.options.appended;
        let added = output.write_all_at(appended, image_bytes(&made));
        added
            .map_err(tree::Error::from)
            .during(|| self.on_dst("write"))?;
        let add = |options| {
            let image = (self.format, image_bytes(&made));
            let added = add_tree((&output, tree.as_ref()), image, options, self.parallel);
            added.during(|| self.on_dst("add a hash tree to"))
        };
        let verity = self.options.verity.as_ref().map(add).transpose()?;
        if let Some(tree) = tree {
            tree.commit()
                .during(|| self.on_dst("finish the hash tree of"))?;
        }
        Ok((self.finish(Ok(made), output)?, verity))
    }

    /// Names the file or the destination that an error concerns.
    pub(super) fn name_error<T>(&self, made: tree::Result<T>) -> Result<T> {
        match made {
            // SquashFS and EROFS name other files than those of the source, too.
            Err(error @ tree::Error::File { verb, .. })
                if verb == "read" || !matches!(self.format, Format::Squashfs | Format::Erofs) =>
            {
                Err(self.source.name_error(error))
            }
            made => made.during(|| self.on_dst("write")),
        }
    }

    /// Each file that is not in the destination, or not as it was, because it cannot be read. The
    /// writer found `unreadable`; with the path of a directory, these are its extended attributes.
    pub(super) fn losses(&self, unreadable: Vec<(Vec<u8>, tree::Error)>) -> Vec<CopyLoss> {
        let inventory = &self.inventory;
        let is_dir = |path: &[u8]| {
            let file = inventory.find(path).map(|entry| inventory.file(entry));
            file.is_some_and(|file| inventory.kind(file) == FileKind::Directory)
        };
        let (bare, unreadable): (Vec<_>, Vec<_>) =
            unreadable.into_iter().partition(|(path, _)| is_dir(path));
        let mut losses = Vec::new();
        // Directories without their names: their attributes need no word of their own.
        let mut unlisted = HashSet::new();
        let skipped: HashSet<Vec<u8>> = unreadable.iter().map(|(path, _)| path.clone()).collect();
        let rescued = self.rescue.map(|rescue| rescue.losses(inventory));
        for (path, loss) in rescued.into_iter().flatten() {
            // A file that is left out has no bad ranges, too.
            if skipped.contains(&path) {
                continue;
            }
            let reason = match loss {
                Loss::Names(error) => {
                    unlisted.insert(path.clone());
                    let is_empty = inventory
                        .find(&path)
                        .is_some_and(|dir| inventory.entries(inventory.file(dir)).len() == 0);
                    LossReason::Names { is_empty, error }
                }
                Loss::Xattrs(_) if unlisted.contains(&path) => continue,
                Loss::File(error) => LossReason::File(error),
                Loss::Xattrs(error) => LossReason::Xattrs(error),
                Loss::Content(ranges, error) => LossReason::Content(ranges, error),
            };
            losses.push(CopyLoss { path, reason });
        }
        for (path, error) in unreadable {
            let reason = LossReason::File(error);
            losses.push(CopyLoss { path, reason });
        }
        for (path, error) in bare {
            if !unlisted.contains(&path) {
                let reason = LossReason::Xattrs(error);
                losses.push(CopyLoss { path, reason });
            }
        }
        let changed = self.source.changed().into_iter().map(|path| CopyLoss {
            path,
            reason: LossReason::Changed,
        });
        losses.extend(changed);
        losses
    }
}

/// Refuses options that change or read bytes of an image that were sent to a store.
fn refuse_for_object(format: Format, options: &CopyOptions) -> Result<()> {
    let is_btrfs = format == Format::Btrfs;
    let is_image = matches!(format, Format::Squashfs | Format::Erofs) || is_btrfs;
    if is_btrfs && !options.devices.is_empty() {
        refuse!("--add-device: an object is a file system of one device");
    }
    let name = if options.verity.is_some() {
        "--verity"
    } else if is_btrfs && options.btrfs.data == Profile::Dup {
        "--data dup"
    } else if is_btrfs && options.dual {
        "--dual"
    } else if is_image && options.skip_unreadable {
        "--skip-unreadable"
    } else if is_image && options.keep_damaged {
        "--keep-damaged"
    } else if format == Format::Erofs && options.erofs.content_digest {
        "--content-digest"
    } else {
        return Ok(());
    };
    refuse!(
        "{name}: bytes of an object cannot be read or changed while it is written; write a file"
    )
}
