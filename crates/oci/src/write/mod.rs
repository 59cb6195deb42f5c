//! Images written into layouts (image-spec, image-layout.md, manifest.md, config.md).
//!
//! Blobs come first, the index last: an image is in the layout when all of it is.

mod digest_writer;
mod place;

use std::io::{self, Write};
use std::path::Path;

use tree::json::{Json, Object};
use tree::{Error, Output, Result, date};

use crate::descriptor::Descriptor;
use crate::layers::copy_stored;
use crate::layout::NAME_ANNOTATIONS;
use crate::{Digest, Image, ImageLayout, Layer, Platform};
pub use digest_writer::DigestWriter;
use place::LayoutPlace;

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The last second of the year 9999: RFC 3339 has four digits.
const LATEST: i64 = 253_402_300_799;

/// An image under construction, in a directory or an archive.
pub struct LayoutWriter {
    place: LayoutPlace,
    name: Option<String>,
    overwrite: bool,
    /// The layers so far, the lowest first, each with the digest of its archive.
    layers: Vec<(Descriptor, Digest)>,
}

/// A new layer.
#[derive(Clone, Copy, Debug)]
pub struct NewLayer<'a> {
    /// The media type.
    pub media_type: &'a str,
    /// The digest of the archive before compression.
    pub diff_id: Digest,
}

/// The part of an image that is not in its layers.
#[derive(Clone, Debug)]
pub struct NewImage<'a> {
    /// The configuration that is taken over, but for the layers and their history.
    pub config: Option<&'a Json>,
    /// The platform, if the configuration has none.
    pub platform: &'a Platform,
    /// The image whose layers the new one is on; its history goes on.
    pub base: Option<&'a Image>,
    /// The time of creation, in seconds since 1970.
    pub created: i64,
    /// The program that creates the image, for the history.
    pub created_by: &'a str,
}

/// The digests of an image that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenImage {
    /// Of its manifest, which is that of the image.
    pub manifest: Digest,
    /// Of its highest layer, as it is stored.
    pub layer: Digest,
}

/// Whether an image in a layout may have this name (image-spec, annotations.md).
pub fn is_image_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let separators = ['-', '.', '_', ':', '@', '+'];
        let ends = |it: char| it.is_ascii_alphanumeric();
        word.starts_with(ends)
            && word.ends_with(ends)
            && word.chars().all(|it| ends(it) || separators.contains(&it))
    };
    name.split('/').all(is_word)
}

impl LayoutWriter {
    /// Begins an image in the layout in a directory, or a new layout if the directory does not
    /// exist or is empty. A new directory appears when the image is complete.
    ///
    /// # Errors
    /// `AlreadyExists` for an image with this name, or an image without a name if this one has
    /// none, unless `overwrite` is set; [`Error::InvalidInput`] for a directory with other files;
    /// [`Error::NotADirectory`]; the kernel's error.
    pub fn in_dir(dir: &Path, name: Option<&str>, overwrite: bool) -> Result<LayoutWriter> {
        let place = LayoutPlace::dir(dir)?;
        let writer = LayoutWriter::at(place, name, overwrite);
        writer.check_name(&writer.place.index()?)?;
        Ok(writer)
    }

    /// Begins an image in a new archive of a layout.
    pub fn in_archive(output: Output, name: Option<&str>) -> LayoutWriter {
        LayoutWriter::at(LayoutPlace::archive(output), name, false)
    }

    fn at(place: LayoutPlace, name: Option<&str>, overwrite: bool) -> LayoutWriter {
        LayoutWriter {
            place,
            name: name.map(str::to_owned),
            overwrite,
            layers: Vec::new(),
        }
    }

    /// Adds a layer on top of those so far, whose stored bytes `fill` writes. It returns what else
    /// it knows, and the layer.
    ///
    /// # Errors
    /// Those of `fill`; the layout cannot be written.
    pub fn add_layer<T>(
        &mut self,
        fill: impl FnOnce(&mut dyn Write) -> Result<(T, NewLayer<'static>)>,
    ) -> Result<T> {
        let ((done, layer), digest, size) = self.place.blob(None, fill)?;
        let descriptor = Descriptor {
            media_type: layer.media_type.to_owned(),
            digest,
            size,
            annotations: None,
        };
        self.layers.push((descriptor, layer.diff_id));
        Ok(done)
    }

    /// Adds a layer that is an image of a file system, which `fill` writes. In an archive, it is
    /// copied from an unnamed file in the directory `spool_dir`.
    ///
    /// # Errors
    /// Those of `fill`; the layout or the unnamed file cannot be written.
    pub fn add_image<T>(
        &mut self,
        media_type: &str,
        spool_dir: &Path,
        fill: impl FnOnce(&mut Output) -> Result<T>,
    ) -> Result<T> {
        let (done, digest, size) = self.place.image(spool_dir, fill)?;
        let descriptor = Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            annotations: None,
        };
        self.layers.push((descriptor, digest));
        Ok(done)
    }

    /// Adds a layer of another image, with its stored bytes.
    ///
    /// # Errors
    /// It is missing or wrong, or has no digest, as in docker archives; the layout cannot be
    /// written.
    pub fn copy_layer(&mut self, layout: &ImageLayout, layer: &Layer) -> Result<()> {
        let (Some(digest), Some(diff_id)) = (layer.digest, layer.diff_id) else {
            return Err(Error::Unsupported(
                "layers without digests, as in docker archives",
            ));
        };
        let known = (digest, layer.stored_bytes);
        if !self.place.has(known) {
            let copied = (self.place).blob(Some(known), |out| copy_stored(layout, layer, out));
            copied.map_err(|error| error.in_file("copy", &layer.path))?;
        }
        let descriptor = Descriptor {
            media_type: of_oci(&layer.media_type),
            digest,
            size: layer.stored_bytes,
            annotations: layer.annotations.clone(),
        };
        self.layers.push((descriptor, diff_id));
        Ok(())
    }

    /// Writes the configuration, the manifest and the index, and makes the image appear. It has one
    /// layer at least.
    ///
    /// # Errors
    /// The layout cannot be written, or has an image with this name by now.
    pub fn finish(mut self, image: &NewImage<'_>) -> Result<WrittenImage> {
        let Some((top, _)) = self.layers.last() else {
            return Err(Error::InvalidInput("an image without layers"));
        };
        let layer = top.digest;
        let config = self.config(image);
        let platform = Platform::of_json(&config).unwrap_or_else(|| image.platform.clone());
        let config = self.json(CONFIG, &config.to_string())?;
        let manifest = Object::new()
            .number("schemaVersion", 2)
            .text("mediaType", MANIFEST)
            .object("config", config.to_json())
            .list("layers", self.layers.iter().map(|(it, _)| it.to_json()));
        let manifest = self.json(MANIFEST, &manifest.line())?;
        let mut on = Object::new()
            .text("architecture", &platform.architecture)
            .text("os", &platform.os);
        if !platform.variant.is_empty() {
            on = on.text("variant", &platform.variant);
        }
        let mut item = manifest.to_json().object("platform", on);
        if let Some(name) = &self.name {
            let [key, ..] = NAME_ANNOTATIONS;
            item = item.object("annotations", Object::new().text(key, name));
        }
        let lock = self.place.lock()?;
        let mut index = self.place.index()?;
        self.check_name(&index)?;
        let item = Json::parse(item.line().as_bytes());
        let others = index.list("manifests").iter();
        let others = others.filter(|it| !self.has_name(it)).cloned();
        let manifests = others.chain(item).collect();
        index.set("manifests", Json::List(manifests));
        self.place.finish(&index.to_string())?;
        drop(lock);
        Ok(WrittenImage {
            manifest: manifest.digest,
            layer,
        })
    }

    /// The configuration.
    fn config(&self, image: &NewImage<'_>) -> Json {
        let created = Json::Text(rfc_3339(image.created));
        let text = |text: &str| Json::Text(text.to_owned());
        let mut config = match image.config {
            Some(config @ Json::Object(_)) => config.clone(),
            _ => Json::Object(Vec::new()),
        };
        config.set("created", created.clone());
        if Platform::of_json(&config).is_none() {
            config.set("architecture", text(&image.platform.architecture));
            config.set("os", text(&image.platform.os));
            if !image.platform.variant.is_empty() {
                config.set("variant", text(&image.platform.variant));
            }
        }
        let diff_ids = self.layers.iter().map(|(_, it)| text(&it.to_string()));
        let rootfs = [
            ("type".to_owned(), text("layers")),
            ("diff_ids".to_owned(), Json::List(diff_ids.collect())),
        ];
        config.set("rootfs", Json::Object(rootfs.into()));
        let before = image.base.map(|base| base.config.list("history"));
        let mut history = before.unwrap_or_default().to_vec();
        history.push(Json::Object(vec![
            ("created".to_owned(), created),
            ("created_by".to_owned(), text(image.created_by)),
        ]));
        // A history that lacks the layers of the base would be that of another image.
        if before.is_some_and(<[Json]>::is_empty) {
            history.clear();
        }
        config.set("history", Json::List(history));
        config
    }

    fn json(&mut self, media_type: &str, text: &str) -> Result<Descriptor> {
        let write = |out: &mut dyn Write| Ok(out.write_all(text.as_bytes())?);
        let ((), digest, size) = self.place.blob(None, write)?;
        Ok(Descriptor {
            media_type: media_type.to_owned(),
            digest,
            size,
            annotations: None,
        })
    }

    /// Whether an item of an index has the name of this image, or no name as this one.
    fn has_name(&self, item: &Json) -> bool {
        let names = item.field("annotations").map(|annotations| {
            NAME_ANNOTATIONS
                .iter()
                .filter_map(|it| annotations.text(it))
                .collect::<Vec<&str>>()
        });
        let names = names.unwrap_or_default();
        match &self.name {
            Some(name) => names.contains(&&**name),
            None => names.is_empty(),
        }
    }

    fn check_name(&self, index: &Json) -> Result<()> {
        let is_taken = index.list("manifests").iter().any(|it| self.has_name(it));
        if is_taken && !self.overwrite {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        Ok(())
    }
}

/// The media type of OCI for a layer of Docker.
fn of_oci(media_type: &str) -> String {
    if !media_type.starts_with("application/vnd.docker.") {
        return media_type.to_owned();
    }
    let packed = ["gzip", "zstd"]
        .into_iter()
        .find(|it| media_type.ends_with(it));
    let plus = packed.map_or(String::new(), |it| format!("+{it}"));
    format!("application/vnd.oci.image.layer.v1.tar{plus}")
}

/// A time as in configurations.
fn rfc_3339(seconds: i64) -> String {
    let seconds = seconds.clamp(0, LATEST);
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of = |unit: i64, count: i64| seconds.div_euclid(unit).rem_euclid(count);
    let (hour, minute, second) = (of(3600, 24), of(60, 60), of(1, 60));
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specification() {
        for good in [
            "a",
            "latest",
            "v1.2-rc_3",
            "app:1",
            "host:5000/a/b:x",
            "a--b",
        ] {
            assert!(is_image_name(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a/", "/a", "a b", "ä", "a//b"] {
            assert!(!is_image_name(bad), "{bad}");
        }
    }

    #[test]
    fn times_are_those_of_configurations() {
        assert_eq!(rfc_3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc_3339(1_600_000_000), "2020-09-13T12:26:40Z");
        assert_eq!(rfc_3339(-1), "1970-01-01T00:00:00Z");
        assert_eq!(rfc_3339(i64::MAX), "9999-12-31T23:59:59Z");
    }
}
