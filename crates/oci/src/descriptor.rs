//! Descriptors: the media type of a blob, its length and digest (image-spec, descriptor.md).

use std::fmt;

use tree::json::{Json, Object};
use tree::{Error, Result, Sha256, to_u64};

/// The digest of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Parses `sha256:` and 64 digits.
    ///
    /// # Errors
    /// [`Error::Corrupt`], or [`Error::Unsupported`] for another algorithm.
    pub fn parse(text: &str) -> Result<Digest> {
        let Some(digits) = text.strip_prefix("sha256:") else {
            return Err(Error::Unsupported("a blob whose digest is not SHA-256"));
        };
        let wrong = || {
            let what = "digest of a blob does not have 64 hexadecimal digits";
            Error::corrupt(what, 0, to_u64(digits.len()))
        };
        let mut bytes = [0; 32];
        // The specification wants small letters; the digits are the name of a file.
        let nibble = |digit: &u8| match digit {
            b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
            b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
            _ => None,
        };
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return Err(wrong());
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let (high, low) = nibble(high).zip(nibble(low)).ok_or_else(wrong)?;
            *byte = high << 4 | low;
        }
        Ok(Digest(bytes))
    }

    /// The digest of the bytes that were summed.
    pub(crate) fn of(sum: Sha256) -> Digest {
        Digest(sum.finish())
    }

    /// The digits, which name the blob in a layout.
    pub(crate) fn digits(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Where a layout has the blob.
    pub(crate) fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digits())
    }

    pub(crate) fn of_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Checks that these stored bytes were summed.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check(&self, sum: Sha256) -> Result<()> {
        self.compare(sum, "content of a blob does not have its digest")
    }

    /// Checks that this archive was summed.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check_archive(&self, sum: Sha256) -> Result<()> {
        let what = "unpacked layer does not have its digest in the configuration";
        self.compare(sum, what)
    }

    fn compare(&self, sum: Sha256, what: &'static str) -> Result<()> {
        let found = sum.finish();
        if found == self.0 {
            return Ok(());
        }
        let [a, b, c, d, e, f, g, h, ..] = found;
        Err(Error::corrupt(
            what,
            0,
            u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        ))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.digits())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A blob that another one names.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// Further facts about the blob, such as the place of its table of contents.
    pub(crate) annotations: Option<Json>,
}

impl Descriptor {
    pub(crate) fn of_json(value: &Json) -> Result<Descriptor> {
        let lacks = |what| Error::corrupt(what, 0, 0);
        let digest = value.text("digest");
        let digest = digest.ok_or(lacks("descriptor of a blob has no digest"))?;
        let Some(Json::Number(size)) = value.field("size") else {
            return Err(lacks("descriptor of a blob has no size"));
        };
        Ok(Descriptor {
            media_type: value.text("mediaType").unwrap_or_default().to_owned(),
            digest: Digest::parse(digest)?,
            size: *size,
            annotations: value.field("annotations").cloned(),
        })
    }

    /// The descriptor as it stands in JSON.
    pub(crate) fn to_json(&self) -> Object {
        let object = Object::new().text("mediaType", &self.media_type);
        let object = object.text("digest", &self.digest.to_string());
        let object = object.number("size", self.size);
        match &self.annotations {
            Some(annotations) => object.json("annotations", annotations),
            None => object,
        }
    }

    /// Whether it leads to images, not to one.
    pub(crate) fn is_index(&self) -> bool {
        [
            "application/vnd.oci.image.index.v1+json",
            "application/vnd.docker.distribution.manifest.list.v2+json",
        ]
        .contains(&&*self.media_type)
    }
}

/// Where a layer has its table of contents, and the digest of that as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TablePlace {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) digest: Digest,
}

impl TablePlace {
    /// The place in the annotations of a layer; `None` for a layer without a table, and for a table
    /// of another form, which is not needed to read the layer.
    pub(crate) fn of_annotations(annotations: &Json) -> Option<TablePlace> {
        // The second one is that of skopeo 1.9 and before.
        ["io.github.containers", "io.containers"]
            .iter()
            .find_map(|owner| {
                let text =
                    |name| annotations.text(&format!("{owner}.zstd-chunked.manifest-{name}"));
                let digest = Digest::parse(text("checksum")?).ok()?;
                let numbers = text("position")?.split(':').map(str::parse);
                let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
                match numbers[..] {
                    [at, len, _, 1] => Some(TablePlace { at, len, digest }),
                    _ => None,
                }
            })
    }
}

/// Whether layers of this type are tar archives, perhaps compressed.
pub(crate) fn is_tar(media_type: &str) -> bool {
    let is_layer = media_type.starts_with("application/vnd.oci.image.layer.")
        || media_type.starts_with("application/vnd.docker.image.rootfs.");
    is_layer && media_type.contains(".tar") && !media_type.ends_with("encrypted")
}

/// Whether layers of this type are images of a file system: those of stacker, of SingularityCE, of
/// containerd and its plugins, and of the names that were proposed for the specification.
pub(crate) fn is_image(media_type: &str) -> bool {
    // Behind the first `+` are codecs, and `verity` for hashes behind the image.
    let (name, packed) = media_type.split_once('+').unwrap_or((media_type, ""));
    let is_erofs = name == "application/vnd.erofs"
        || name.starts_with("application/vnd.erofs.layer.")
        || name.ends_with(".erofs");
    (is_erofs || name.ends_with(".squashfs")) && !packed.ends_with("encrypted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_file_systems_are_known_by_their_types() {
        for image in [
            "application/vnd.stacker.image.layer.squashfs+zstd+verity",
            "application/vnd.oci.image.layer.squashfs",
            "application/vnd.sylabs.image.layer.v1.squashfs",
            "application/vnd.erofs.layer.v1",
            "application/vnd.erofs.layer.v1+zstd",
            "application/vnd.erofs",
            "application/vnd.oci.image.layer.v1.erofs",
            "application/vnd.stacker.image.layer.erofs+lz4hc",
        ] {
            assert!(is_image(image) && !is_tar(image), "{image}");
        }
        for other in [
            "application/vnd.oci.image.layer.v1.tar+gzip",
            "application/vnd.oci.image.layer.v1.erofs.sig",
            "application/vnd.erofs.layer.v1+encrypted",
            "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
        ] {
            assert!(!is_image(other), "{other}");
        }
    }

    #[test]
    fn digests_are_sha_256_in_small_letters() {
        let text = format!("sha256:{}", "0a".repeat(32));
        let digest = Digest::parse(&text).unwrap();
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.path(), format!("blobs/sha256/{}", "0a".repeat(32)));
        for bad in [
            "0A".repeat(32),
            "0a".repeat(31),
            "0".repeat(63),
            "../".repeat(21) + "x",
        ] {
            let parsed = Digest::parse(&format!("sha256:{bad}"));
            assert!(matches!(parsed, Err(Error::Corrupt(_))), "{bad}");
        }
        let other = Digest::parse("sha512:00");
        assert!(matches!(other, Err(Error::Unsupported(_))));
    }
}
