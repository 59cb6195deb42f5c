//! Which aspects of files a comparison or a manifest covers.

use clap::{Args, ValueEnum};
use tree::Aspects;

/// Which aspects of files a comparison or a manifest covers.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AspectArgs {
    /// Ignore these aspects of files, separated by commas
    #[arg(long, value_name = "ASPECT", value_delimiter = ',')]
    ignore: Vec<Aspect>,

    /// Include the positions of holes in sparse files
    #[arg(long)]
    holes: bool,
}

/// An aspect that can be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Aspect {
    /// File contents
    Content,
    /// Permissions
    Mode,
    /// User and group
    Owner,
    /// Modification time
    Mtime,
    /// Extended attributes
    Xattrs,
    /// Which names are hard links to one file
    Links,
}

impl AspectArgs {
    pub(crate) fn aspects(&self) -> Aspects {
        let keep = |aspect| !self.ignore.contains(&aspect);
        Aspects {
            content: keep(Aspect::Content),
            permissions: keep(Aspect::Mode),
            owner: keep(Aspect::Owner),
            mtime: keep(Aspect::Mtime),
            xattrs: keep(Aspect::Xattrs),
            hard_links: keep(Aspect::Links),
            holes: self.holes,
        }
    }
}
