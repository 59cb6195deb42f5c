//! The formats of disk files.

/// The format of a disk file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFormat {
    Qcow2,
    Vmdk,
    Vhdx,
    Vhd,
}

impl DiskFormat {
    /// The magic numbers, the names in qcow2 headers, and the nouns.
    pub(super) const ALL: [(DiskFormat, &'static [u8], &'static [u8], &'static str); 4] = [
        (DiskFormat::Qcow2, b"QFI\xfb", b"qcow2", "a qcow2 image"),
        (DiskFormat::Vmdk, b"KDMV", b"vmdk", "a VMDK image"),
        (DiskFormat::Vhdx, b"vhdxfile", b"vhdx", "a VHDX image"),
        // A fixed VHD begins with its disk, and has this at its end.
        (DiskFormat::Vhd, b"conectix", b"vpc", "a VHD image"),
    ];

    /// The longest magic number.
    pub(crate) const MAGIC_BYTES: usize = 8;

    /// The format that the first bytes of a file tell.
    pub(crate) fn of(start: &[u8]) -> Option<DiskFormat> {
        let mut all = DiskFormat::ALL.iter();
        all.find_map(|(format, magic, ..)| start.starts_with(magic).then_some(*format))
    }

    /// Its name, with an article.
    pub(crate) fn noun(self) -> &'static str {
        let mut all = DiskFormat::ALL.iter();
        all.find(|(format, ..)| *format == self)
            .map_or("a disk file", |(.., noun)| noun)
    }
}
