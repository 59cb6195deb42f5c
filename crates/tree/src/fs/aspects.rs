//! Which aspects of files matter.

/// The properties to compare or list in addition to names, file types, sizes, link targets and
/// device numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aspects {
    /// The content of regular files.
    pub content: bool,
    /// Permissions with set-id and sticky bits.
    pub permissions: bool,
    /// Owner and group.
    pub owner: bool,
    /// Time of the last change of content.
    pub mtime: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Which names belong to the same file.
    pub hard_links: bool,
    /// Where regular files have holes. Off by default, because the granularity of holes differs
    /// between containers.
    pub holes: bool,
}

impl Aspects {
    /// All of them.
    pub const ALL: Aspects = Aspects {
        content: true,
        permissions: true,
        owner: true,
        mtime: true,
        xattrs: true,
        hard_links: true,
        holes: true,
    };
}

impl Default for Aspects {
    fn default() -> Self {
        let mut aspects = Aspects::ALL;
        aspects.holes = false;
        aspects
    }
}
