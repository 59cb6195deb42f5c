//! How a user names a source: a file, and perhaps a subvolume of the btrfs image in it, a directory
//! of the archive or image, a container image, or an overlay.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use oci::is_image_name;

use crate::error::refuse;
use crate::object::{is_remote, split};
use crate::overlay::OverlayLayers;
use crate::{Result, text};

/// A place that other programs reach, and the program that leads there.
struct RemotePlace {
    start: &'static str,
    noun: &'static str,
    read: &'static str,
    write: &'static str,
}

const REMOTE_PLACES: [RemotePlace; 6] = [
    RemotePlace {
        start: "s3://",
        noun: "an object of S3",
        read: "`aws s3 cp ADDRESS -` writes it to standard output, for `restow copy - DST`",
        write: "write a file or `-`, and `aws s3 cp` copies it there",
    },
    RemotePlace {
        start: "gs://",
        noun: "an object of Google Cloud Storage",
        read: "`gcloud storage cat ADDRESS` writes it to standard output, for `restow copy - DST`",
        write: "write a file or `-`, and `gcloud storage cp` copies it there",
    },
    RemotePlace {
        start: "az://",
        noun: "a blob of Azure",
        read: "`az storage blob download` writes it to a file",
        write: "write a file, and `az storage blob upload` copies it there",
    },
    RemotePlace {
        start: "docker://",
        noun: "a container image in a registry",
        read: "`skopeo copy ADDRESS oci:DIR` fetches it, for `restow copy oci:DIR DST`",
        write: "write oci:DIR, and `skopeo copy oci:DIR ADDRESS` copies it there",
    },
    RemotePlace {
        start: "https://",
        noun: "an address of the web",
        read: "`curl -s ADDRESS` writes it to standard output, for `restow copy - DST`",
        write: "write a file or `-`, and `curl -T` sends it",
    },
    RemotePlace {
        start: "http://",
        noun: "an address of the web",
        read: "`curl -s ADDRESS` writes it to standard output, for `restow copy - DST`",
        write: "write a file or `-`, and `curl -T` sends it",
    },
];

impl RemotePlace {
    fn of(address: &Path) -> Option<&'static RemotePlace> {
        let address = address.as_os_str().as_bytes();
        let mut places = REMOTE_PLACES.iter();
        places.find(|place| address.starts_with(place.start.as_bytes()))
    }
}

/// A directory or archive that holds container images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageStore {
    OciDir,
    OciArchive,
    DockerArchive,
}

impl ImageStore {
    /// The words before the path, as skopeo and podman have them.
    const WORDS: [(&'static str, ImageStore); 3] = [
        ("oci:", ImageStore::OciDir),
        ("oci-archive:", ImageStore::OciArchive),
        ("docker-archive:", ImageStore::DockerArchive),
    ];

    /// The word at the beginning of an address, and the rest.
    pub(crate) fn of(address: &[u8]) -> Option<(ImageStore, &[u8])> {
        let mut words = ImageStore::WORDS.iter();
        words.find_map(|(word, store)| Some((*store, address.strip_prefix(word.as_bytes())?)))
    }
}

/// Whether an address names a container image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageName {
    /// No, also if the file holds one.
    None,
    /// Only if the file is an archive of one, which its content shows.
    Recognised,
    /// The store, and the name in it.
    Named(ImageStore, Option<OsString>),
}

/// The layout that a destination names, as `oci:DIR:NAME`, and the name of the image in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageDestination {
    /// The directory or archive.
    pub path: PathBuf,
    /// The name of the image, if it has one.
    pub name: Option<String>,
}

impl ImageDestination {
    /// Takes a destination apart, with its word or without. The path is the longest that exists,
    /// otherwise that up to the first colon.
    ///
    /// # Errors
    /// No image may have that name.
    pub fn of(dst: &Path) -> Result<ImageDestination> {
        let address = dst.as_os_str().as_bytes();
        let (path, name) = image_of(ImageStore::of(address).map_or(address, |(_, rest)| rest));
        let path = Path::new(OsStr::from_bytes(path)).to_owned();
        let Some(name) = name else {
            return Ok(ImageDestination { path, name: None });
        };
        match str::from_utf8(name).ok().filter(|name| is_image_name(name)) {
            Some(name) => Ok(ImageDestination {
                path,
                name: Some(name.to_owned()),
            }),
            None => refuse!(
                "{}: not a name of an image: letters and digits, with `-._:@+` and `/` between them",
                text::of_name(name)
            ),
        }
    }
}

/// `FILE`, `IMAGE:PATH`, `IMAGE:ID` or `oci:DIR:TAG`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    typed: PathBuf,
    /// The file; `-` is standard input.
    pub path: PathBuf,
    /// The subvolume or directory that the address names.
    pub subvolume: Option<OsString>,
    pub(crate) image: ImageName,
    /// The layers, if it is an overlay.
    pub(crate) overlay: Option<OverlayLayers>,
}

impl Address {
    /// Takes an address apart.
    ///
    /// A file whose name is the whole address is always meant, however many colons it has. Only if
    /// there is no such file is the address split at a colon: at the last one that has the name of
    /// a file other than a directory before it. `oci:`, `oci-archive:` and `docker-archive:` at the
    /// beginning come before that; the last file or directory before a colon then counts. So do
    /// `overlay:` and `overlay,userxattr:`, with the addresses of layers of overlayfs between
    /// colons, the lowest first. Objects of other machines, where they are read, come before all:
    /// `s3://BUCKET/NAME:SUBVOLUME` is split at the last colon behind the bucket, and a colon in a
    /// name is written `%3A`.
    ///
    /// # Errors
    /// The address has a colon, and names nothing in either way.
    pub fn of(typed: &Path) -> Result<Address> {
        let whole = Address {
            typed: typed.to_owned(),
            path: typed.to_owned(),
            subvolume: None,
            image: ImageName::Recognised,
            overlay: None,
        };
        let bytes = typed.as_os_str().as_bytes();
        if is_remote(bytes) {
            let (path, part) = split(bytes);
            return Ok(Address {
                path: OsString::from_vec(path).into(),
                subvolume: part.map(OsString::from_vec),
                ..whole
            });
        }
        if !bytes.contains(&b':') || may_exist(typed) {
            return Ok(whole);
        }
        if let Some(overlay) = OverlayLayers::parse(bytes)? {
            return Ok(Address {
                overlay: Some(overlay),
                ..whole
            });
        }
        if let Some((store, rest)) = ImageStore::of(bytes) {
            let (path, tag) = image_of(rest);
            return Ok(Address {
                path: Path::new(OsStr::from_bytes(path)).to_owned(),
                image: ImageName::Named(store, tag.map(|tag| OsStr::from_bytes(tag).to_owned())),
                ..whole
            });
        }
        let name = text::of_name(bytes);
        let mut directory = None;
        for colon in (0..bytes.len()).rev().filter(|&at| bytes[at] == b':') {
            let (image, subvolume) = (&bytes[..colon], &bytes[colon + 1..]);
            let path = Path::new(OsStr::from_bytes(image));
            // `-` is standard input, and never a file.
            let found = fs::metadata(path).ok().filter(|_| image != b"-");
            match found {
                Some(found) if found.is_dir() => directory = directory.or(Some(image)),
                Some(_) if subvolume.is_empty() => {
                    refuse!("open {name}: no subvolume after the colon; `{name}/` is the top level")
                }
                Some(_) => {
                    return Ok(Address {
                        path: path.to_owned(),
                        subvolume: Some(OsStr::from_bytes(subvolume).to_owned()),
                        ..whole
                    });
                }
                None => {}
            }
        }
        Address::refuse_remote_source(typed)?;
        match directory.map(text::of_name) {
            Some(directory) => refuse!(
                "open {name}: no such file or directory, and {directory} is a directory, which has no subvolumes"
            ),
            None => {
                refuse!("open {name}: no such file or directory, and no image before a colon in it")
            }
        }
    }

    /// Whether it names an object of another machine.
    pub fn is_object(&self) -> bool {
        is_remote(self.path.as_os_str().as_bytes())
    }

    /// Whether it names a container image by a word.
    pub fn is_container_image(&self) -> bool {
        matches!(self.image, ImageName::Named(..))
    }

    /// Whether it names one of the images of a layout.
    pub(crate) fn names_image(&self) -> bool {
        matches!(self.image, ImageName::Named(_, Some(_)))
    }

    /// The files and directories that are read: one, or those of the layers of an overlay.
    pub fn paths(&self) -> Vec<PathBuf> {
        let Some(overlay) = &self.overlay else {
            return vec![self.path.clone()];
        };
        let path = |layer: &PathBuf| match Address::of(layer) {
            Ok(address) => address.path,
            Err(_) => layer.clone(),
        };
        overlay.layers.iter().map(path).collect()
    }

    /// Refuses a container image or an overlay, where no tree is read.
    ///
    /// # Errors
    /// It is one.
    pub fn refuse_container_image(&self) -> Result<()> {
        let noun = match &self.overlay {
            None if !self.is_container_image() => return Ok(()),
            None => "a container image",
            Some(_) => "an overlay",
        };
        let name = self.name();
        refuse!("{name}: {noun}, which is read as a tree of files only")
    }

    /// Refuses an address to read that is no file of this machine.
    ///
    /// # Errors
    /// It is the address of a place that other programs reach, or of a container image, and no
    /// file has that name.
    pub fn refuse_remote_source(address: &Path) -> Result<()> {
        let bytes = address.as_os_str().as_bytes();
        if ImageStore::of(bytes).is_some() || OverlayLayers::is_named(bytes) {
            Address::of(address)?.refuse_container_image()?;
        }
        let is_read = |_: &&RemotePlace| !is_remote(bytes) && !may_exist(address);
        if let Some(place) = RemotePlace::of(address).filter(is_read) {
            let (noun, read) = (place.noun, place.read);
            let name = text::of_host_path(address, "-");
            refuse!("{name} is {noun}, which restow does not read: {read}");
        }
        Ok(())
    }

    /// Whether an address to write is that of an object that this build writes.
    pub fn is_written_object(address: &Path) -> bool {
        let bytes = address.as_os_str().as_bytes();
        is_remote(bytes) && !bytes.starts_with(b"http")
    }

    /// Refuses an address to write that is no file of this machine.
    ///
    /// # Errors
    /// It is the address of a place that other programs reach.
    pub fn refuse_remote_destination(address: &Path) -> Result<()> {
        if let Some(place) = RemotePlace::of(address) {
            refuse_to_write(address, place.noun, place.write)?;
        }
        if ImageStore::of(address.as_os_str().as_bytes()).is_some() {
            let write = "`restow copy SRC oci:DIR` makes one";
            refuse_to_write(address, "a container image", write)?;
        }
        if OverlayLayers::is_named(address.as_os_str().as_bytes()) {
            let write = "mount the overlay and write into the mount";
            refuse_to_write(address, "an overlay", write)?;
        }
        Ok(())
    }

    /// A file of this machine, even if its name has a colon.
    pub fn plain(path: &Path) -> Address {
        Address {
            typed: path.to_owned(),
            path: path.to_owned(),
            subvolume: None,
            image: ImageName::None,
            overlay: None,
        }
    }

    /// The address as it was typed, for messages.
    pub fn name(&self) -> String {
        text::of_host_path(&self.typed, "standard input")
    }

    /// Whether it is standard input.
    pub fn is_standard_input(&self) -> bool {
        self.path == Path::new("-")
    }
}

fn refuse_to_write(address: &Path, noun: &str, write: &str) -> Result<()> {
    let name = text::of_host_path(address, "-");
    refuse!("{name} is {noun}, which restow does not write: {write}; ./{name} is a file")
}

/// The path and the name of an image: the longest path that exists, otherwise up to the first
/// colon.
fn image_of(rest: &[u8]) -> (&[u8], Option<&[u8]>) {
    if is_remote(rest) {
        return match split(rest) {
            (path, Some(_)) if rest.starts_with(&path) => {
                (&rest[..path.len()], Some(&rest[path.len() + 1..]))
            }
            _ => (rest, None),
        };
    }
    let exists = |path: &[u8]| fs::metadata(Path::new(OsStr::from_bytes(path))).is_ok();
    if exists(rest) {
        return (rest, None);
    }
    let colons = (0..rest.len()).rev().filter(|&at| rest[at] == b':');
    let mut first = None;
    for colon in colons {
        first = Some(colon);
        if exists(&rest[..colon]) {
            break;
        }
    }
    match first {
        Some(colon) => (&rest[..colon], Some(&rest[colon + 1..])),
        None => (rest, None),
    }
}

/// Whether there is a file with that name, or that cannot be found out: then opening it says why.
fn may_exist(path: &Path) -> bool {
    match fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidFilename
                | io::ErrorKind::InvalidInput
        ),
    }
}

/// Whether two paths lead to one file.
pub fn is_same_file(first: &Path, second: &Path) -> bool {
    if is_remote(first.as_os_str().as_bytes()) {
        return first == second;
    }
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((identity(first), identity(second)), (Ok(first), Ok(second)) if first == second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::TempDir;

    #[test]
    fn addresses_are_split_only_where_no_file_has_the_whole_name() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("d:e")).unwrap();
        for file in ["a", "a:b", "d:e/i", "-"] {
            fs::write(dir.join(file), "").unwrap();
        }
        fs::write(dir.join(OsStr::from_bytes(b"\xff")), "").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join("a:link")).unwrap();
        let at = |name: &[u8]| dir.join(OsStr::from_bytes(name));
        let split = |name: &[u8]| {
            let found = Address::of(&at(name)).unwrap();
            let path = found.path.strip_prefix(dir.path()).unwrap();
            let path = path.as_os_str().as_bytes().to_vec();
            (path, found.subvolume.map(|name| name.as_bytes().to_vec()))
        };
        for (typed, path, subvolume) in [
            (&b"a"[..], &b"a"[..], None),
            // No colon: whether it exists is for who opens it.
            (b"none", b"none", None),
            (b"a:b", b"a:b", None),
            (b"a:/b", b"a", Some(&b"/b"[..])),
            (b"a:c", b"a", Some(b"c")),
            // The longest name of a file counts.
            (b"a:b:c", b"a:b", Some(b"c")),
            (b"a:/b:c", b"a", Some(b"/b:c")),
            (b"a:c:d", b"a", Some(b"c:d")),
            (b"a:c/x:y/", b"a", Some(b"c/x:y/")),
            (b"a::", b"a", Some(b":")),
            (b"a:link", b"a:link", None),
            (b"a:5", b"a", Some(b"5")),
            (b"d:e", b"d:e", None),
            (b"d:e/i", b"d:e/i", None),
            (b"d:e/i:s", b"d:e/i", Some(b"s")),
            (b"a:\xfe", b"a", Some(b"\xfe")),
            (b"\xff:\xfe", b"\xff", Some(b"\xfe")),
            (b"-:s", b"-", Some(b"s")),
        ] {
            let expected = (path.to_vec(), subvolume.map(<[u8]>::to_vec));
            assert_eq!(split(typed), expected, "{}", typed.escape_ascii());
        }
        let error = |name: &[u8]| Address::of(&at(name)).unwrap_err().to_string();
        assert!(error(b"a:").contains("a:: no subvolume after the colon; "));
        assert!(error(b"none:s").ends_with("no image before a colon in it"));
        assert!(error(b"d:e:s").ends_with("d:e is a directory, which has no subvolumes"));
        assert!(error(b":s").ends_with("is a directory, which has no subvolumes"));
    }
}
