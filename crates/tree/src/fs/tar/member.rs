//! The members of an archive, as an index has them.

/// What is known about a file in addition to its metadata.
#[derive(Default)]
pub(super) struct InArchive {
    pub(super) content: MemberContent,
    /// Offset and length of the PAX records with extended attributes, which are parsed again on
    /// demand; the length is 0 if there are none.
    pub(super) xattrs_at: u64,
    pub(super) xattrs_len: u32,
    /// The number of the archive that holds it, from 0: the layer of a container image.
    pub(super) layer: u16,
    /// Not in the archive itself, but in the path of an entry.
    pub(super) implied: bool,
}

const _: () = assert!(size_of::<InArchive>() == 32);

#[derive(Default)]
pub(super) enum MemberContent {
    #[default]
    Nothing,
    /// All bytes, starting at this offset of the archive.
    Data {
        at: u64,
    },
    Sparse(Box<Sparse>),
}

/// Fragments, whose stored bytes follow each other in the archive, starting at an offset.
pub(super) struct Sparse {
    pub(super) at: u64,
    pub(super) fragments: Box<[Fragment]>,
}

/// A stored part of a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// The offset in the file.
    pub(super) offset: u64,
    /// The length in bytes; not 0.
    pub(super) len: u64,
    /// The offset in the stored bytes of the file.
    pub(super) stored: u64,
}

/// A pass over the entries of a layer. Its whiteouts hide files of lower layers only,
/// wherever in the archive they stand, so they come first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LayerPass {
    Whiteouts,
    Entries,
}
