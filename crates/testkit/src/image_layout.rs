//! Container images, made without any code of the library: layers from a short notation, and
//! layouts of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use tree::sha256;

/// The media type of layers that are not compressed.
pub const TAR_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A rule of the image specification: layers in the notation of [`layer`], and the tree that they
/// make, in the same notation, sorted, with the number of names of a file behind `*` if it has
/// several.
pub struct LayerRule {
    /// The rule.
    pub name: &'static str,
    /// The layers, the lowest first.
    pub layers: &'static [&'static [&'static str]],
    /// The merged tree.
    pub tree: &'static [&'static str],
}

/// A layer, or any tar archive, of members as `d/` (a directory), `f=content`, `l>target` (a
/// symbolic link), `h^target` (a hard link) and `p|` (a named pipe), each perhaps with a mode
/// behind `@`.
pub fn layer<M: AsRef<str>>(members: impl IntoIterator<Item = M>) -> Vec<u8> {
    let mut archive = Vec::new();
    for member in members {
        let (member, mode) = match member.as_ref().rsplit_once('@') {
            Some((member, mode)) => (member, Some(u32::from_str_radix(mode, 8).unwrap())),
            None => (member.as_ref(), None),
        };
        let at = member.find(['=', '>', '^', '|']);
        let (path, rest) = member.split_at(at.unwrap_or(member.len()));
        let (sign, rest) = rest.split_at(rest.len().min(1));
        let (kind, target, data, usual) = match sign {
            "=" => (b'0', "", rest, 0o644),
            ">" => (b'2', rest, "", 0o777),
            "^" => (b'1', rest, "", 0o644),
            "|" => (b'6', "", "", 0o644),
            _ => (b'5', "", "", 0o755),
        };
        push_member(
            &mut archive,
            (kind, path, target),
            mode.unwrap_or(usual),
            data.as_bytes(),
        );
    }
    archive.extend([0; 1024]);
    archive
}

fn push_member(to: &mut Vec<u8>, (kind, path, target): (u8, &str, &str), mode: u32, data: &[u8]) {
    let mut header = [0; 512];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", data.len()));
    put(136, &format!("{:011o}", 1_600_000_000));
    put(148, "        ");
    put(157, target);
    put(257, "ustar\0");
    put(263, "00");
    header[156] = kind;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    to.extend(header);
    to.extend(data);
    to.resize(to.len().next_multiple_of(512), 0);
}

/// A layout of container images: its files.
#[derive(Clone, Default)]
pub struct ImageLayout {
    /// The files by their paths.
    pub files: BTreeMap<String, Vec<u8>>,
    manifests: Vec<String>,
}

impl ImageLayout {
    /// One image, `latest` for linux/amd64, of layers that are not compressed.
    pub fn of(layers: impl IntoIterator<Item = Vec<u8>>) -> ImageLayout {
        let layers = layers.into_iter().map(|it| (TAR_LAYER, it.clone(), it));
        ImageLayout::default().with("latest", "amd64", layers)
    }

    /// Adds an image of layers: the media type, the stored bytes and the archive in them.
    #[must_use]
    pub fn with<'m>(
        mut self,
        name: &str,
        architecture: &str,
        layers: impl IntoIterator<Item = (&'m str, Vec<u8>, Vec<u8>)>,
    ) -> ImageLayout {
        let (mut descriptors, mut diff_ids) = (Vec::new(), Vec::new());
        for (media_type, stored, archive) in layers {
            descriptors.push(self.blob(media_type, stored, ""));
            diff_ids.push(format!("\"{}\"", digest(&archive)));
        }
        let config = format!(
            r#"{{"architecture":"{architecture}","os":"linux","created":"2020-09-13T12:26:40Z",
               "config":{{"Env":["PATH=/bin"],"Cmd":["/bin/app"],"Labels":{{"a":"b"}}}},
               "rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            diff_ids.join(",")
        );
        let config = self.blob(
            "application/vnd.oci.image.config.v1+json",
            config.into_bytes(),
            "",
        );
        let layers = descriptors.join(",");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layers}]}}"#);
        let more = format!(
            r#","platform":{{"os":"linux","architecture":"{architecture}"}},
               "annotations":{{"org.opencontainers.image.ref.name":"{name}"}}"#
        );
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = self.blob(media_type, manifest.into_bytes(), &more);
        self.manifests.push(manifest);
        let manifests = self.manifests.join(",");
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{manifests}]}}"#);
        self.files
            .insert("index.json".to_owned(), index.into_bytes());
        let version = br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec();
        self.files.insert("oci-layout".to_owned(), version);
        self
    }

    /// Adds a blob, and returns its descriptor with more fields.
    fn blob(&mut self, media_type: &str, bytes: Vec<u8>, more: &str) -> String {
        let (digest, size) = (digest(&bytes), bytes.len());
        self.files
            .insert(format!("blobs/{}", digest.replace(':', "/")), bytes);
        format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{size}{more}}}"#)
    }

    /// The archive of one image as `docker save` writes it, of layers (the stored bytes and the
    /// archive in them).
    pub fn docker(name: &str, layers: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> ImageLayout {
        let mut files = BTreeMap::new();
        let (mut paths, mut diff_ids) = (Vec::new(), Vec::new());
        for (number, (stored, archive)) in layers.into_iter().enumerate() {
            let path = format!("{number}/layer.tar");
            paths.push(format!("\"{path}\""));
            diff_ids.push(format!("\"{}\"", digest(&archive)));
            files.insert(path, stored);
        }
        let diff_ids = diff_ids.join(",");
        let config = format!(
            r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":[{diff_ids}]}}}}"#
        );
        files.insert("config.json".to_owned(), config.into_bytes());
        let paths = paths.join(",");
        let manifest =
            format!(r#"[{{"Config":"config.json","RepoTags":["{name}"],"Layers":[{paths}]}}]"#);
        files.insert("manifest.json".to_owned(), manifest.into_bytes());
        ImageLayout {
            files,
            manifests: Vec::new(),
        }
    }

    /// The layout as a tar archive.
    pub fn archive(&self) -> Vec<u8> {
        let mut archive = Vec::new();
        for (path, bytes) in &self.files {
            push_member(&mut archive, (b'0', path, ""), 0o644, bytes);
        }
        archive.extend([0; 1024]);
        archive
    }

    /// Writes the layout into a directory, which is made.
    pub fn write_to(&self, dir: &Path) {
        for (path, bytes) in &self.files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in sha256(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// The rules that others got wrong, and those of the specification.
pub const LAYER_RULES: &[LayerRule] = &[
    LayerRule {
        name: "whiteout-of-file",
        layers: &[&["a/", "a/x=1", "a/y=2"], &["a/", "a/.wh.x="]],
        tree: &["a/", "a/y=2"],
    },
    LayerRule {
        name: "whiteout-of-directory",
        layers: &[&["a/", "a/b/", "a/b/x=1", "k=1"], &[".wh.a="]],
        tree: &["k=1"],
    },
    LayerRule {
        name: "whiteout-before-and-behind-entries",
        layers: &[
            &["x=1", "y=1", "d/", "d/old=1", "e/", "e/old=1"],
            &[
                "x=2", ".wh.x=", ".wh.y=", "y=2", "d/", "d/new=2", ".wh.d=", ".wh.e=", "e/",
                "e/new=2",
            ],
        ],
        tree: &["d/", "d/new=2", "e/", "e/new=2", "x=2", "y=2"],
    },
    LayerRule {
        name: "opaque",
        layers: &[
            &["d/", "d/old=1", "d/s/", "d/s/t=1", "e/", "e/old=1"],
            &[
                "d/",
                "d/new=2",
                "d/.wh..wh..opq=",
                "e/",
                "e/.wh..wh..opq=",
                "e/new=2",
            ],
        ],
        tree: &["d/", "d/new=2", "e/", "e/new=2"],
    },
    LayerRule {
        name: "opaque-behind-a-merged-directory",
        layers: &[
            &["a/", "a/b/", "a/b/c/", "a/b/c/bar=1"],
            &["a/", "a/b/", "a/b/c/", "a/b/c/foo=2", "a/.wh..wh..opq="],
        ],
        tree: &["a/", "a/b/", "a/b/c/", "a/b/c/foo=2"],
    },
    LayerRule {
        name: "names-like-opaque",
        layers: &[
            &["d/", "d/old=1", "d/.opq=1", "d/.wh..wh..opqY="],
            &["d/.wh..wh..opqX=", "d/.wh..opq="],
        ],
        tree: &["d/", "d/old=1"],
    },
    LayerRule {
        name: "markers-in-the-lowest-layer",
        layers: &[&["d/", "d/x=1", "d/.wh.x=", "d/.wh..wh..opq=", ".wh.none="]],
        tree: &["d/", "d/x=1"],
    },
    LayerRule {
        name: "equal-entries",
        layers: &[&["x=1", "x=2", "y=1"], &["y=2", "y=3"]],
        tree: &["x=2", "y=3"],
    },
    LayerRule {
        name: "hard-link-to-a-lower-layer",
        layers: &[&["a=1", "d/", "c=1", "d/c^c"], &["b^a", "c=2"]],
        tree: &["a=1*2", "b=1*2", "c=2", "d/", "d/c=1"],
    },
    LayerRule {
        name: "directory-to-file-and-back",
        layers: &[&["d/", "d/x=1"], &["d=file"], &["d/", "d/y=2"]],
        tree: &["d/", "d/y=2"],
    },
    LayerRule {
        name: "directory-to-file",
        layers: &[&["d/", "d/x=1", "d/s/", "d/s/y=1"], &["d=file"]],
        tree: &["d=file"],
    },
    LayerRule {
        name: "parent-is-a-symbolic-link",
        layers: &[
            &[
                "usr/",
                "usr/lib/",
                "lib>usr/lib",
                "abs>/usr/lib",
                "up>../../../usr",
            ],
            &["lib/x=1", "abs/y=2", "up/lib/z=3", "lib/.wh.none="],
        ],
        tree: &[
            "abs>/usr/lib",
            "lib>usr/lib",
            "up>../../../usr",
            "usr/",
            "usr/lib/",
            "usr/lib/x=1",
            "usr/lib/y=2",
            "usr/lib/z=3",
        ],
    },
    LayerRule {
        name: "whiteout-behind-a-symbolic-link",
        layers: &[&["usr/", "usr/x=1", "usr/y=1", "l>usr"], &["l/.wh.x="]],
        tree: &["l>usr", "usr/", "usr/y=1"],
    },
    LayerRule {
        name: "symbolic-link-to-directory",
        layers: &[
            &["real/", "real/k=1", "real/x=0", "l>real"],
            &["l/", "l/x=1", "l/.wh.k="],
        ],
        tree: &["l/", "l/x=1", "real/", "real/k=1", "real/x=0"],
    },
    LayerRule {
        name: "directory-to-symbolic-link",
        layers: &[&["d/", "d/x=1", "e/", "e/y=1"], &["d>e"]],
        tree: &["d>e", "e/", "e/y=1"],
    },
    LayerRule {
        name: "attributes-of-directories",
        layers: &[&["d/", "d/x=1", "e/@700"], &["d/@750", "e/y=2"]],
        tree: &["d/@750", "d/x=1", "e/@700", "e/y=2"],
    },
    LayerRule {
        name: "directories-that-are-not-listed",
        layers: &[&["a/b/c/x=1"], &["a/b/d/y=2", "./z=1", "/w=1"]],
        tree: &[
            "a/",
            "a/b/",
            "a/b/c/",
            "a/b/c/x=1",
            "a/b/d/",
            "a/b/d/y=2",
            "w=1",
            "z=1",
        ],
    },
    LayerRule {
        name: "other-kinds",
        layers: &[
            &["x=1", "t=1", "y>t", "z|"],
            &["x>t", "y=2", "z/"],
            &[".wh.z=", "z|@600"],
        ],
        tree: &["t=1", "x>t", "y=2", "z|@600"],
    },
    LayerRule {
        name: "removed-and-added",
        layers: &[&["x=1"], &[".wh.x="], &["x=3"], &[], &["y=1"]],
        tree: &["x=3", "y=1"],
    },
];
