//! Checks a whole image: every part must be readable, and everything that is stored twice must
//! agree.

use tree::{
    CheckOptions, Error, FileId, FileKind, FileSystem, Finding, Findings, Inventory, Limits,
    NO_OWNER, Parallel, Progress, Result, ordered,
};

use tree::rescue::{Loss, Rescue};

use crate::image::Erofs;
use crate::index::IndexedFile;
use crate::piece::{PieceKind, StoredCluster, StoredPlace};

/// Number of clusters, or of ranges of plain data, that are collected before equal ones are joined.
const COLLECTED_MIN: usize = 1 << 20;
/// Number of clusters that one job decodes.
const BATCH_CLUSTERS: usize = 16;

/// Summary of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErofsCheck {
    /// Number of findings, including those not reported.
    pub findings: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Number of compressed clusters; one that several files show counts once.
    pub clusters: u64,
    /// Number of decoded bytes.
    pub data_bytes: u64,
}

/// A cluster, and a file that shows it; `None` is the packed inode or the metabox.
type CheckedCluster = (StoredCluster, Option<FileId>);

/// A device, and the beginning and end of plain data there.
type PlainRange = (u16, u64, u64);

struct ImageCheck<'a> {
    image: &'a Erofs,
    findings: Findings<'a>,
    clusters: Vec<CheckedCluster>,
    clusters_max: usize,
    plain: Vec<PlainRange>,
    plain_max: usize,
    /// Then files have fewer names than links.
    names_are_lost: bool,
}

impl Erofs {
    /// Checks the whole image and calls `report` with each finding, with the path of the file it
    /// concerns, if any: all names, inodes, attributes, link targets and indexes must be readable;
    /// `.` and `..` must lead where they should; link counts must match the names; filters of
    /// attributes must not hide one; data must be inside its device; compressed clusters must
    /// overlap neither each other nor plain data; and each must decode to what its files show.
    ///
    /// Of damaged directories, the readable names are checked. Memory grows by 64 bytes for each
    /// cluster.
    ///
    /// # Errors
    /// Fails if the medium cannot be read. Damage in the image is not an error but a finding.
    pub fn check(
        &self,
        options: CheckOptions,
        parallel: Parallel,
        progress: &dyn Progress,
        report: &mut dyn FnMut(Finding),
    ) -> Result<ErofsCheck> {
        let mut check = ImageCheck {
            image: self,
            findings: Findings::new(report),
            clusters: Vec::new(),
            clusters_max: COLLECTED_MIN,
            plain: Vec::new(),
            plain_max: COLLECTED_MIN,
            names_are_lost: false,
        };
        let mut summary = ErofsCheck::default();
        // Linux reads prefixes when it mounts an image, and the last block as a whole.
        for read in [self.check_length(), self.long_prefixes().map(drop)] {
            if let Err(error) = read {
                check.findings.add(error.into())?;
            }
        }
        let limits = Limits::default();
        let rescue = Rescue::new(self, false);
        let inventory = Inventory::of(self, &limits).or_else(|error| {
            let readable = Inventory::of(&rescue, &limits);
            let losses = readable.as_ref().map(|readable| rescue.losses(readable));
            match losses {
                Ok(losses) if !losses.is_empty() => {
                    check.names_are_lost = true;
                    for (path, loss) in losses {
                        let (Loss::Names(error)
                        | Loss::File(error)
                        | Loss::Xattrs(error)
                        | Loss::Content(_, error)) = loss;
                        check.findings.add(error.in_file("check", &path).into())?;
                    }
                }
                _ => check.findings.add(error.into())?,
            }
            readable
        });
        // Otherwise nothing is readable, and the error is a finding already.
        if let Ok(inventory) = inventory {
            check.files(&inventory)?;
            check.overlaps(&inventory)?;
            summary.inodes = inventory.file_count().into();
            summary.clusters = check.clusters.len() as u64;
            if options.data.decodes() {
                summary.data_bytes = check.decode(&inventory, parallel, progress)?;
            }
        }
        summary.findings = check.findings.count();
        Ok(summary)
    }
}

fn is_io(error: &Error) -> bool {
    match error {
        Error::Io(_) => true,
        Error::File { error, .. } => is_io(error),
        _ => false,
    }
}

impl ImageCheck<'_> {
    fn files(&mut self, inventory: &Inventory) -> Result<()> {
        for file in inventory.files() {
            if let Err(error) = self.file(inventory, file) {
                self.findings.add(in_file(inventory, Some(file), error))?;
            }
        }
        let special = [self.image.superblock.packed, self.image.superblock.metabox];
        for nid in special.into_iter().flatten() {
            let content = self.image.content(nid);
            let result = content.and_then(|content| self.content(&content, None));
            if let Err(error) = result {
                self.findings.add(error.into())?;
            }
        }
        self.join();
        Ok(())
    }

    fn file(&mut self, inventory: &Inventory, file: FileId) -> Result<()> {
        let (image, ino) = (self.image, inventory.ino(file));
        let inode = image.inode(ino.0)?;
        let at = inode.at.at;
        let corrupt = |what, got: u64| Err(Error::corrupt(what, at, got));
        let hidden = image.attributes(&inode)?.hidden;
        if hidden > 0 {
            return corrupt(
                "filter of extended attributes hides some that are there",
                hidden,
            );
        }
        if [inode.uid, inode.gid].contains(&NO_OWNER) {
            return corrupt(
                "inode's owner is the reserved number 2^32 - 1",
                NO_OWNER.into(),
            );
        }
        let names = inventory.name_count(file);
        let has_names = inode.nlink == names || self.names_are_lost && inode.nlink > names;
        if inode.kind != FileKind::Directory && !has_names {
            return corrupt(
                "inode's link count is not its number of names",
                inode.nlink.into(),
            );
        }
        match inode.kind {
            FileKind::Symlink => {
                image.read_link(ino)?;
            }
            FileKind::Directory => {
                let content = image.content(ino.0)?;
                let above = inventory.ino(inventory.parent(inventory.first_name(file)));
                let dots = [(&b"."[..], ino), (b"..", above)];
                for (name, expected) in dots.into_iter().skip(usize::from(inode.omits_dot)) {
                    let found = image.find(&content, name)?;
                    if found.as_ref().map(|entry| entry.ino) != Some(expected) {
                        let got = found.map_or(0, |entry| entry.ino.0);
                        return corrupt("directory's entry `.` or `..` leads elsewhere", got);
                    }
                }
                self.content(&content, Some(file))?;
            }
            FileKind::Regular => self.content(&*image.content(ino.0)?, Some(file))?,
            _ => {}
        }
        Ok(())
    }

    /// Collects the places of a file's content.
    fn content(&mut self, content: &IndexedFile, file: Option<FileId>) -> Result<()> {
        let image = self.image;
        if let Some(header) = &content.header {
            image.check_order(header, &content.inode)?;
        }
        image.each_piece(content, &mut |piece| {
            match piece.kind {
                PieceKind::Plain(StoredPlace::Data { device, at }) => {
                    let (device, at) = image.locate(device, at)?;
                    // Fails if the end is not there.
                    if let Some(last) = piece.len.checked_sub(1) {
                        image.read_stored(&mut [0], device, at.saturating_add(last))?;
                    }
                    self.plain.push((device, at, at.saturating_add(piece.len)));
                }
                PieceKind::Cluster(cluster) => self.clusters.push((cluster, file)),
                // Reading the last byte checks the place: in the packed inode, or in the image.
                PieceKind::Fragment(_) | PieceKind::Plain(StoredPlace::Meta(_)) => {
                    let last = piece.end().saturating_sub(1);
                    image.read_content(content, last, &mut [0])?;
                }
                PieceKind::Hole => {}
            }
            // Any number of files may share data, so memory must not grow with the references.
            if self.clusters.len() > self.clusters_max || self.plain.len() > self.plain_max {
                self.join();
            }
            Ok(())
        })
    }

    /// Sorts what was collected, and joins equal clusters and plain ranges that touch.
    fn join(&mut self) {
        self.clusters.sort_unstable();
        // Of those that are shown whole, the shortest stays, too: it can be too short.
        let mut has_shortest = false;
        self.clusters.dedup_by(|(later, _), (kept, _)| {
            let is_same = StoredCluster { len: 0, ..*later } == StoredCluster { len: 0, ..*kept };
            if !is_same {
                has_shortest = false;
            } else if later.len > kept.len {
                if !kept.is_partial && !has_shortest {
                    has_shortest = true;
                    return false;
                }
                kept.len = later.len;
            }
            is_same
        });
        self.clusters_max = COLLECTED_MIN.max(2 * self.clusters.len());
        self.plain.sort_unstable();
        self.plain.dedup_by(|later, kept| {
            let touches = later.0 == kept.0 && later.1 <= kept.2;
            if touches {
                kept.2 = kept.2.max(later.2);
            }
            touches
        });
        self.plain_max = COLLECTED_MIN.max(2 * self.plain.len());
    }

    fn overlaps(&mut self, inventory: &Inventory) -> Result<()> {
        let mut last: Option<(u16, u64, u64)> = None;
        for &(cluster, file) in &self.clusters {
            let StoredPlace::Data { device, at } = cluster.place else {
                continue;
            };
            let (device, at) = match self.image.locate(device, at) {
                Ok(place) => place,
                Err(error) => {
                    self.findings.add(in_file(inventory, file, error))?;
                    continue;
                }
            };
            let end = at.saturating_add(cluster.stored_len);
            let is_inside = last.is_some_and(|(other, from, to)| {
                device == other && at < to && (at, end) != (from, to)
            });
            // The last plain range that begins before the cluster's end.
            let before = self
                .plain
                .partition_point(|range| (range.0, range.1) < (device, end));
            let plain = before
                .checked_sub(1)
                .and_then(|before| self.plain.get(before));
            let is_plain = plain.is_some_and(|range| range.0 == device && range.2 > at);
            if is_inside || is_plain {
                let what = "compressed cluster overlaps other data";
                let error = Error::corrupt(what, at, cluster.stored_len);
                self.findings.add(in_file(inventory, file, error))?;
            }
            if last.is_none_or(|(other, _, to)| device != other || end > to) {
                last = Some((device, at, end));
            }
        }
        Ok(())
    }

    /// Decodes every cluster, and returns the number of bytes.
    fn decode(
        &mut self,
        inventory: &Inventory,
        parallel: Parallel,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let image = self.image;
        let bytes = self.clusters.iter().map(|(cluster, _)| cluster.len).sum();
        progress.expect(Some(inventory.file_count().into()), Some(bytes));
        let mut decoded = 0;
        ordered(
            parallel,
            self.clusters.chunks(BATCH_CLUSTERS),
            Vec::new,
            |content, batch| {
                let mut bytes = 0;
                let mut findings = Vec::new();
                for (cluster, file) in batch {
                    let decoded = image.decode(cluster, content);
                    match decoded.and_then(|_| image.check_whole(cluster, content)) {
                        Ok(()) => bytes += cluster.len,
                        Err(error) if is_io(&error) => return Err(error),
                        Err(error) => findings.push((*file, error)),
                    }
                }
                Ok((bytes, findings))
            },
            |(bytes, findings)| {
                decoded += bytes;
                progress.advance(0, bytes);
                for (file, error) in findings {
                    self.findings.add(in_file(inventory, file, error))?;
                }
                Ok(())
            },
        )?;
        Ok(decoded)
    }
}

fn in_file(inventory: &Inventory, file: Option<FileId>, error: Error) -> Finding {
    match file {
        Some(file) => {
            let path = inventory.path(inventory.first_name(file));
            error.in_file("check", &path).into()
        }
        None => error.into(),
    }
}
