//! The lines that `mksquashfs` prints about an image, which scripts parse.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use restow::{CopyOptions, Fragments, SquashfsSummary, squashfs_flags};
use tree::{EntryId, FileKind, HostIds, Inventory};

use crate::text;

/// The content of a block of a table, whose position is in a list of eight bytes each.
const TABLE_BLOCK_BYTES: u64 = 8192;
/// The bytes of the superblock, of a fragment's record, of a reference to an inode, and of an ID.
const RECORD_BYTES: [u64; 4] = [96, 16, 8, 4];

/// The files of an image by kind, and their owners.
#[derive(Default)]
pub(super) struct FileCounts {
    inodes: u64,
    empty_files: u64,
    hard_links: u64,
    kinds: Vec<FileKind>,
    uids: BTreeSet<u32>,
    gids: BTreeSet<u32>,
}

impl FileCounts {
    pub(super) fn of(inventory: &Inventory<'_>) -> FileCounts {
        let mut counts = FileCounts {
            inodes: inventory.file_count().into(),
            hard_links: (inventory.entry_count() - inventory.file_count()).into(),
            ..FileCounts::default()
        };
        for file in inventory.files() {
            let metadata = inventory.metadata(file);
            counts.kinds.push(metadata.kind);
            let is_empty = metadata.kind == FileKind::Regular && metadata.size == 0;
            counts.empty_files += u64::from(is_empty);
            counts.uids.insert(metadata.uid);
            counts.gids.insert(metadata.gid);
        }
        counts
    }

    fn has(&self, kinds: &[FileKind]) -> usize {
        self.kinds
            .iter()
            .filter(|kind| kinds.contains(kind))
            .count()
    }

    /// The lines about numbers of files.
    fn lines(
        &self,
        image: &SquashfsSummary,
        options: &CopyOptions,
        id_count: usize,
        lines: &mut String,
    ) {
        if options.duplicates {
            // As in theirs, empty files are duplicates.
            let count = image.image.duplicates + self.empty_files;
            let _ = writeln!(lines, "Number of duplicate files found {count}");
        } else {
            lines.push_str("No duplicate files removed\n");
        }
        let devices = [FileKind::BlockDevice, FileKind::CharDevice];
        let _ = writeln!(
            lines,
            "Number of inodes {}\nNumber of files {}",
            self.inodes,
            self.has(&[FileKind::Regular])
        );
        if options.squashfs.fragments != Fragments::None {
            let _ = writeln!(lines, "Number of fragments {}", image.fragments);
        }
        let _ = writeln!(
            lines,
            "Number of symbolic links {}\n\
             Number of device nodes {}\n\
             Number of fifo nodes {}\n\
             Number of socket nodes {}\n\
             Number of directories {}\n\
             Number of hard-links {}\n\
             Number of ids (unique uids + gids) {}",
            self.has(&[FileKind::Symlink]),
            self.has(&devices),
            self.has(&[FileKind::Fifo]),
            self.has(&[FileKind::Socket]),
            self.has(&[FileKind::Directory]),
            self.hard_links,
            id_count,
        );
        let names = HostIds::default();
        let _ = writeln!(lines, "Number of uids {}", self.uids.len());
        for &uid in &self.uids {
            lines.push_str(&owner(names.user_name(uid).as_deref(), uid));
        }
        let _ = writeln!(lines, "Number of gids {}", self.gids.len());
        for &gid in &self.gids {
            lines.push_str(&owner(names.group_name(gid).as_deref(), gid));
        }
    }
}

/// The line of `-info` for a name.
pub(super) fn name_line(inventory: &Inventory<'_>, entry: EntryId) -> String {
    let file = inventory.file(entry);
    let kind = match inventory.kind(file) {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block device",
        FileKind::CharDevice => "character device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "unix domain socket",
    };
    let path = if entry == inventory.root() {
        String::new()
    } else {
        text::of_path(&inventory.path(entry))
    };
    let mut line = format!("{kind} /{path}");
    if inventory.kind(file) == FileKind::Regular {
        let _ = write!(line, ", uncompressed size {} bytes ", inventory.size(file));
    }
    if !inventory.is_first_name(entry) {
        line.push_str("LINK");
    }
    line
}

/// The lines before an image is written.
pub(super) fn head(name: &str, options: &CopyOptions, appends: bool) -> String {
    let verb = if appends {
        "Appending to existing"
    } else {
        "Creating"
    };
    format!(
        "Parallel mksquashfs: Using {} processors\n\
         {verb} 4.0 filesystem on {name}, block size {}.\n",
        options.parallel.threads(),
        options.squashfs.block_bytes,
    )
}

/// The lines about a finished image.
pub(super) fn summary(
    image: &SquashfsSummary,
    counts: &FileCounts,
    options: &CopyOptions,
    no_xattrs: bool,
) -> String {
    use squashfs_flags::{DATA_PLAIN, FRAGMENTS_PLAIN, IDS_PLAIN, INODES_PLAIN, XATTRS_PLAIN};
    let squashfs = &options.squashfs;
    let un = |flags: u16| {
        let is_plain = squashfs.compression.is_none() || squashfs.plain & flags != 0;
        if is_plain {
            "uncompressed"
        } else {
            "compressed"
        }
    };
    let exportable = if squashfs.exportable {
        "Exportable "
    } else {
        ""
    };
    let codec = (squashfs.compression).map_or("gzip", |it| it.algorithm().name());
    let fragments = match squashfs.fragments {
        Fragments::None => "no",
        _ => un(FRAGMENTS_PLAIN),
    };
    let xattrs = if no_xattrs { "no" } else { un(XATTRS_PLAIN) };
    let mut lines = format!(
        "\n{exportable}Squashfs 4.0 filesystem, {codec} compressed, data block size {}\n\
         \t{} data, {} metadata, {fragments} fragments,\n\
         \t{xattrs} xattrs, {} ids\n\
         \tduplicates are {}removed\n",
        squashfs.block_bytes,
        un(DATA_PLAIN),
        un(INODES_PLAIN),
        un(IDS_PLAIN | INODES_PLAIN),
        if options.duplicates { "" } else { "not " },
    );
    let kbytes = |bytes: u64| bytes as f64 / 1024.0;
    let percent = |stored: u64, content: u64| match content {
        0 => "100%".to_owned(),
        _ => format!("{:.2}%", stored as f64 * 100.0 / content as f64),
    };
    let ids: BTreeSet<u32> = counts.uids.union(&counts.gids).copied().collect();
    let [superblock, fragment, reference, id] = RECORD_BYTES;
    let exports = if squashfs.exportable {
        counts.inodes
    } else {
        0
    };
    let lists = [
        fragment * image.fragments,
        reference * exports,
        id * ids.len() as u64,
    ];
    let lists = lists.map(|bytes| bytes + 8 * bytes.div_ceil(TABLE_BLOCK_BYTES));
    let mut tables = vec![
        ("Inode", "inode", image.inode_table),
        ("Directory", "directory", image.directory_table),
    ];
    tables.extend(image.xattr_table.map(|table| ("Xattr", "xattr", table)));
    let content = superblock
        + image.image.content_bytes
        + tables.iter().map(|(.., table)| table.content).sum::<u64>()
        + lists.iter().sum::<u64>();
    let used = image.used_bytes;
    let _ = writeln!(
        lines,
        "Filesystem size {:.2} Kbytes ({:.2} Mbytes)\n\
         \t{} of uncompressed filesystem size ({:.2} Kbytes)",
        kbytes(used),
        kbytes(used) / 1024.0,
        percent(used, content),
        kbytes(content),
    );
    for (title, name, table) in tables {
        let _ = writeln!(
            lines,
            "{title} table size {} bytes ({:.2} Kbytes)\n\
             \t{} of uncompressed {name} table size ({} bytes)",
            table.stored,
            kbytes(table.stored),
            percent(table.stored, table.content),
            table.content,
        );
    }
    counts.lines(image, options, ids.len(), &mut lines);
    lines
}

/// The line of a user or group.
fn owner(name: Option<&[u8]>, id: u32) -> String {
    let name = name.map_or("unknown".to_owned(), text::of_name);
    format!("\t{name} ({id})\n")
}
