//! An older image as an option.

use std::fmt;
use std::sync::Arc;

use tree::OldImage;

use crate::image::Erofs;

/// An older EROFS image, whose units a new one keeps where their content is unchanged.
#[derive(Clone)]
pub struct OldErofs {
    pub(crate) image: Arc<Erofs>,
    pub(crate) tree: OldImage,
}

impl OldErofs {
    /// Files are compared with those of this image.
    pub fn new(image: Arc<Erofs>) -> OldErofs {
        let tree = OldImage {
            tree: Arc::<Erofs>::clone(&image),
            trust_mtime: false,
        };
        OldErofs { image, tree }
    }
}

impl fmt::Debug for OldErofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tree.fmt(f)
    }
}
