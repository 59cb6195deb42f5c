//! Formats that restow does not read, and the programs that do.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::object::is_remote;
use crate::text;

/// Bytes of the beginning of a file that tell formats apart.
struct ForeignFormat {
    at: usize,
    magic: &'static [u8],
    noun: &'static str,
    reader: ForeignReader,
}

/// The programs that convert a file of a format for restow.
enum ForeignReader {
    /// A program that writes a tar archive of it: the command up to the name of the file.
    Pipe(&'static str),
    /// Something else to do first.
    First(&'static str),
    /// Another command of restow.
    Command(&'static str),
}

/// bsdtar writes the contents of another archive as a tar archive, without unpacking it.
const BSDTAR: ForeignReader = ForeignReader::Pipe("bsdtar -cf - @");

const QEMU: ForeignReader =
    ForeignReader::First("`qemu-img convert -O raw` makes a raw image of it");

const MOUNT: ForeignReader = ForeignReader::First("mount it, and copy the directory");

const FORMATS: &[ForeignFormat] = &[
    known(
        0,
        b"!<arch>\ndebian-binary",
        "a Debian package",
        ForeignReader::Pipe("dpkg-deb --fsys-tarfile "),
    ),
    known(0, b"PK\x03\x04", "a zip archive", BSDTAR),
    known(0, b"PK\x05\x06", "an empty zip archive", BSDTAR),
    known(0, b"\xc7\x71", "a binary cpio archive", BSDTAR),
    known(0, b"\x71\xc7", "a binary cpio archive", BSDTAR),
    known(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", BSDTAR),
    known(0, b"Rar!\x1a\x07", "a rar archive", BSDTAR),
    known(0, b"\xed\xab\xee\xdb", "an RPM package", BSDTAR),
    known(0x8001, b"CD001", "an ISO image", BSDTAR),
    known(0x8001, b"BEA01", "a UDF image", MOUNT),
    known(
        0,
        b"\x1f\x9d",
        "compressed with compress",
        ForeignReader::Pipe("zcat "),
    ),
    known(
        0,
        b"\x02\x21\x4c\x18",
        "compressed with LZ4 in its legacy format",
        ForeignReader::Pipe("lz4 -dc "),
    ),
    known(
        0,
        b"LZIP",
        "compressed with lzip",
        ForeignReader::Pipe("lzip -dc "),
    ),
    known(0, b"# Disk DescriptorFile", "a VMDK descriptor", QEMU),
    known(0x40, b"\x7f\x10\xda\xbe", "a VDI image", QEMU),
    known(
        0,
        b"\x3a\xff\x26\xed",
        "an Android sparse image",
        ForeignReader::First("`simg2img` makes a raw image of it"),
    ),
    known(
        0,
        b"LUKS\xba\xbe",
        "an encrypted LUKS volume",
        ForeignReader::First("`cryptsetup open` makes a device of it"),
    ),
    known(0x438, b"\x53\xef", "an ext2, ext3 or ext4 image", MOUNT),
    known(0, b"XFSB", "an XFS image", MOUNT),
    known(0x400, b"\x10\x20\xf5\xf2", "an F2FS image", MOUNT),
    known(0, b"\x45\x3d\xcd\x28", "a cramfs image", MOUNT),
    known(0, b"-rom1fs-", "a romfs image", MOUNT),
    known(0x1011, BCACHE, "a bcache device", BCACHE_REGISTER),
    known(0x1018, BCACHE_MAGIC, "a bcachefs image", MOUNT),
    known(0x1018, BCHFS_MAGIC, "a bcachefs image", MOUNT),
    // Before FAT, as which it passes itself off.
    known(
        3,
        b"-FVE-FS-",
        "a BitLocker volume",
        ForeignReader::First("`cryptsetup open --type bitlk` makes a device of it"),
    ),
    known(3, b"NTFS    ", "an NTFS image", MOUNT),
    known(3, b"EXFAT   ", "an exFAT image", MOUNT),
    known(0x52, b"FAT32   ", "a FAT image", MOUNT),
    known(0x36, b"FAT1", "a FAT image", MOUNT),
    known(0, b"UBI#", "a UBI image", UBI),
    known(0, b"\x31\x18\x10\x06", "a UBIFS image", UBI),
    known(
        0,
        b"sqsh",
        "a SquashFS image of big-endian machines",
        UNSQUASH,
    ),
    known(
        0x200,
        b"LABELONE",
        "a physical volume of LVM",
        ForeignReader::First("`vgchange -ay` makes devices of its volumes"),
    ),
    known(0x8000, b"JFS1", "a JFS image", MOUNT),
    known(0x1_0034, b"ReIsEr", "a ReiserFS image", MOUNT),
    known(0x406, b"\x34\x34", "a NILFS2 image", MOUNT),
    known(0x400, b"H+", "an HFS+ image", MOUNT),
    known(0x400, b"HX", "an HFS+ image", MOUNT),
    known(0x2000, b"OCFSV2", "an OCFS2 image", MOUNT),
    known(0x1_0000, b"\x01\x16\x19\x70", "a GFS2 image", MOUNT),
    known(32, b"NXSB", "an APFS image", UNREADABLE),
    known(0xff6, b"SWAPSPACE2", "a swap area", UNREADABLE),
    known(0xff6, b"SWAP-SPACE", "a swap area", UNREADABLE),
    known(0, b"\xfc\x4e\x2b\xa9", "a member of a RAID", RAID),
    known(0x1000, b"\xfc\x4e\x2b\xa9", "a member of a RAID", RAID),
    known(0, b"!<arch>\n", "an ar archive", BSDTAR),
    known(0, b"MSCF", "a cabinet archive", BSDTAR),
    known(
        0,
        b"\x89RPART\r\n",
        "a part of an image",
        ForeignReader::Command("`restow copy --parts` joins all parts"),
    ),
    known(
        0,
        b"\x89RPATCH\n",
        "a patch",
        ForeignReader::Command("`restow patch OLD PATCH NEW` applies it"),
    ),
];

/// `BCACHE_MAGIC` and `BCHFS_MAGIC` of bcachefs_format.h, as stored: volumes have the former from
/// before bcachefs was in Linux.
const BCACHE_MAGIC: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCHFS_MAGIC: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

/// The same magic behind the upper bytes of `version` in `struct cache_sb_disk`, of bcache. In
/// bcachefs `version_min` is there, which is not 0.
const BCACHE: &[u8] =
    b"\0\0\0\0\0\0\0\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";

const BCACHE_REGISTER: ForeignReader =
    ForeignReader::First("`echo DEVICE > /sys/fs/bcache/register`, for each part, makes a device");

const UBI: ForeignReader =
    ForeignReader::First("write it to a flash device or `nandsim`, and mount that");

const UNREADABLE: ForeignReader = ForeignReader::First("it has no files that restow can reach");

const RAID: ForeignReader =
    ForeignReader::First("`mdadm --assemble` makes a device of all members");

const UNSQUASH: ForeignReader = ForeignReader::First("`unsquashfs` unpacks it");

const fn known(
    at: usize,
    magic: &'static [u8],
    noun: &'static str,
    reader: ForeignReader,
) -> ForeignFormat {
    ForeignFormat {
        at,
        magic,
        noun,
        reader,
    }
}

/// The format of a file that restow knows but does not read, with an article.
pub(crate) fn noun(start: &[u8]) -> Option<&'static str> {
    find(start).map(|known| known.noun)
}

fn find(start: &[u8]) -> Option<&'static ForeignFormat> {
    FORMATS.iter().find(|known| {
        let rest = start.get(known.at..);
        rest.is_some_and(|rest| rest.starts_with(known.magic))
    })
}

/// The format of a file that restow knows but does not read, and the way out.
pub(crate) fn hint(start: &[u8], path: &Path) -> Option<String> {
    let ForeignFormat { noun, reader, .. } = find(start)?;
    Some(match reader {
        ForeignReader::Pipe(command) => {
            let is_named = path != Path::new("-");
            let is_named = is_named && !is_remote(path.as_os_str().as_bytes());
            let file = is_named.then(|| text::quoted(path.as_os_str()));
            let file = file.as_deref().unwrap_or("FILE");
            format!("{noun}; pipe its content into restow: `{command}{file} | restow copy - DST`")
        }
        ForeignReader::Command(words) => format!("{noun}; {words}"),
        ForeignReader::First(words) => format!("{noun}, which restow does not read: {words}"),
    })
}
