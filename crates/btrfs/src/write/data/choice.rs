//! Decides how a file is encoded, by the order that Linux uses (`inode_need_compress` and
//! `compress_file_range`).

use codec::Settings;
use tree::{FileId, Inventory};

use super::share::is_nocow;
use crate::disk::compression::Compression;
use crate::disk::flags::attribute;
use crate::options::Options;
use crate::write::describe::FileDescriptions;

/// The extended attribute that names an algorithm (`btrfs property set PATH compression`).
const PROPERTY: &[u8] = b"btrfs.compression";
/// Level of zlib and zstd if none is given.
const LEVEL: i32 = 3;

/// How to encode a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) settings: Settings,
    /// Index of the encoder with these settings.
    pub(super) encoder: usize,
    /// Whether every extent is tried, even if a sample looks incompressible.
    pub(super) is_forced: bool,
}

/// The value of a file's compression property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Uncompressed,
    Compressed(Compression),
}

/// Everything that decides how a file is encoded.
pub(super) struct Chooser<'a> {
    pub(super) inventory: &'a Inventory<'a>,
    /// `None` asks the tree.
    pub(super) described: Option<&'a FileDescriptions>,
    pub(super) options: &'a Options,
}

impl Chooser<'_> {
    /// Number of encoders: for the default settings, for each rule, and for each algorithm that a
    /// property can name.
    pub(super) fn encoders(&self) -> usize {
        1 + self.options.rules.len() + 3
    }

    /// How to encode a file; `None` stores it uncompressed.
    ///
    /// No-copy-on-write comes first. `chattr +c` decides nothing by itself: Linux also sets the
    /// property. Then a rule takes the place of the property and of the default settings. `force`
    /// overrides the mark of a file as not to be compressed, but not the algorithm that the
    /// property names.
    pub(super) fn choose(&self, file: FileId) -> Option<Choice> {
        if is_nocow(self.inventory, file) {
            return None;
        }
        let attributes = self.inventory.metadata(file).attributes.0;
        let is_marked = attributes & attribute::NOCOMP != 0;
        let property = self.property(file);
        let usual = self.options.compression;
        if let Some((index, compression)) = self.rule(file) {
            // With the property `none`, Linux sets the mark as well: then it is the property that
            // the rule replaces.
            if is_marked && property != Some(Property::Uncompressed) && !self.options.force {
                return None;
            }
            return compression.map(|settings| Choice {
                settings,
                encoder: index,
                is_forced: self.options.force,
            });
        }
        let is_forced = self.options.force && usual.is_some();
        if !is_forced && (is_marked || property == Some(Property::Uncompressed)) {
            return None;
        }
        let named = match property {
            Some(Property::Compressed(compression)) => Some(compression),
            _ => None,
        };
        match (named, usual) {
            (Some(compression), _) => Some(Choice {
                settings: at_level_of(compression, usual),
                encoder: self.options.rules.len() + usize::from(compression.number()),
                is_forced,
            }),
            (None, Some(settings)) => Some(Choice {
                settings,
                encoder: 0,
                is_forced,
            }),
            (None, None) => None,
        }
    }

    /// The first rule for a file: its encoder and its settings.
    fn rule(&self, file: FileId) -> Option<(usize, Option<Settings>)> {
        if self.options.rules.is_empty() {
            return None;
        }
        let path = self.inventory.path(self.inventory.first_name(file));
        let mut rules = (1..).zip(&self.options.rules);
        let (index, rule) = rules.find(|(_, rule)| rule.patterns.matches(&path))?;
        Some((index, rule.compression))
    }

    fn property(&self, file: FileId) -> Option<Property> {
        let asked;
        let xattrs = match self.described {
            Some(described) => described.xattrs.get(&file)?,
            None => {
                // The error comes up again where the image gets the attributes.
                asked = self
                    .inventory
                    .tree()
                    .xattrs(self.inventory.ino(file))
                    .ok()?;
                &asked
            }
        };
        let property = xattrs.iter().find(|xattr| *xattr.name == *PROPERTY)?;
        // Linux compares only the begin of an algorithm's name: a level may follow.
        Some(match &*property.value {
            b"none" | b"no" => Property::Uncompressed,
            value if value.starts_with(b"zlib") => Property::Compressed(Compression::Zlib),
            value if value.starts_with(b"lzo") => Property::Compressed(Compression::Lzo),
            value if value.starts_with(b"zstd") => Property::Compressed(Compression::Zstd),
            _ => return None,
        })
    }
}

/// An algorithm with the level of other settings, as far as it has that level.
fn at_level_of(compression: Compression, other: Option<Settings>) -> Settings {
    let level = match other {
        Some(Settings::Zlib { level }) => level.into(),
        Some(Settings::Zstd { level }) => level,
        _ => LEVEL,
    };
    match compression {
        Compression::Zlib => Settings::Zlib {
            level: level.clamp(1, 9) as u8,
        },
        Compression::Lzo => match other {
            Some(lzo @ Settings::LzoOptimal { .. }) => lzo,
            _ => Settings::Lzo,
        },
        Compression::Zstd => Settings::Zstd { level },
    }
}
