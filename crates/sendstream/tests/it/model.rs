//! Files in memory, built by a stream: the slow definition of what receiving means.

use std::collections::BTreeMap;

use codec::Decoder;
use sendstream::{Command, Version};

use crate::sample::read;

/// A subvolume.
#[derive(Clone, Default)]
pub(crate) struct Model {
    names: BTreeMap<Vec<u8>, usize>,
    files: Vec<File>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct File {
    kind: String,
    data: Vec<u8>,
    attributes: BTreeMap<String, String>,
}

/// What all subvolumes of a stream hold, by name: lines that are equal for equal content. `parent`
/// is what an incremental stream begins with.
pub(crate) fn replay(stream: &[u8], parent: Option<&Model>) -> Vec<(Vec<u8>, Model)> {
    let mut all: Vec<(Vec<u8>, Model)> = Vec::new();
    let mut uuid = [0; 16];
    read(stream, |version, record| match record.command {
        Command::Subvol { path, uuid: it, .. } => {
            uuid = it;
            let mut model = Model::default();
            model.add(b"", "root".into());
            all.push((path.to_vec(), model));
        }
        Command::Snapshot { path, uuid: it, .. } => {
            uuid = it;
            let model = all.last().map(|(_, model)| model).or(parent);
            let model = model.expect("a snapshot has a parent").clone();
            all.push((path.to_vec(), model));
        }
        command => {
            let earlier = all.len().checked_sub(2).and_then(|at| all.get(at));
            let source = earlier.map(|(_, model)| model).or(parent).cloned();
            let (_, model) = all.last_mut().unwrap();
            model.apply(&command, version, uuid, source.as_ref());
        }
    })
    .unwrap();
    all
}

impl Model {
    /// One line for each name.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(name, file): (&Vec<u8>, &usize)| {
            let (first, _) = self.names.iter().find(|(_, it)| *it == file).unwrap();
            let File {
                kind,
                data,
                attributes,
            } = &self.files[*file];
            let data: String = tree::sha256(data)
                .iter()
                .map(|it| format!("{it:02x}"))
                .collect();
            let (name, first) = (name.escape_ascii(), first.escape_ascii());
            format!("{name} {kind} {first} {data} {attributes:?}")
        };
        self.names.iter().map(line).collect()
    }

    /// The names of all files but the root, with their content.
    pub(crate) fn contents(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let named = self.names.iter().filter(|(name, _)| !name.is_empty());
        named
            .map(|(name, &file)| (name.clone(), self.files[file].data.clone()))
            .collect()
    }

    fn add(&mut self, name: &[u8], kind: String) {
        self.files.push(File {
            kind,
            ..File::default()
        });
        let new = self.names.insert(name.to_vec(), self.files.len() - 1);
        assert_eq!(new, None, "{} exists", name.escape_ascii());
    }

    fn file(&mut self, name: &[u8]) -> &mut File {
        let file = self.names.get(name);
        let file = file.unwrap_or_else(|| panic!("{} is missing", name.escape_ascii()));
        &mut self.files[*file]
    }

    fn set(&mut self, name: &[u8], key: &str, value: String) {
        self.file(name).attributes.insert(key.to_owned(), value);
    }

    fn write(&mut self, name: &[u8], offset: u64, data: &[u8]) {
        let file = &mut self.file(name).data;
        let end = offset as usize + data.len();
        file.resize(file.len().max(end), 0);
        file[offset as usize..end].copy_from_slice(data);
    }

    fn apply(
        &mut self,
        command: &Command<'_>,
        version: Version,
        uuid: [u8; 16],
        source: Option<&Model>,
    ) {
        assert!(command.since() <= version);
        match *command {
            Command::Mkfile { path, .. } => self.add(path, "file".into()),
            Command::Mkdir { path, .. } => self.add(path, "directory".into()),
            Command::Mknod {
                path, rdev, mode, ..
            } => self.add(path, format!("device {rdev} {mode}")),
            Command::Mkfifo { path, .. } => self.add(path, "fifo".into()),
            Command::Mksock { path, .. } => self.add(path, "socket".into()),
            Command::Symlink {
                path, path_link, ..
            } => self.add(path, format!("symlink {}", path_link.escape_ascii())),
            Command::Rename { path, path_to } => {
                let below = [path, b"/"].concat();
                let names = std::mem::take(&mut self.names);
                for (name, file) in names {
                    let renamed = match name.strip_prefix(&below[..]) {
                        Some(rest) => [path_to, b"/", rest].concat(),
                        None if name == path => path_to.to_vec(),
                        None => name,
                    };
                    assert_eq!(self.names.insert(renamed, file), None);
                }
            }
            Command::Link { path, path_link } => {
                let file = self.names[path_link];
                assert_eq!(self.names.insert(path.to_vec(), file), None);
            }
            Command::Unlink { path } | Command::Rmdir { path } => {
                assert!(self.names.remove(path).is_some(), "{}", path.escape_ascii());
            }
            Command::SetXattr {
                path,
                xattr_name,
                xattr_data,
            } => self.set(
                path,
                &format!("xattr {}", xattr_name.escape_ascii()),
                xattr_data.escape_ascii().to_string(),
            ),
            Command::RemoveXattr { path, xattr_name } => {
                let key = format!("xattr {}", xattr_name.escape_ascii());
                assert!(self.file(path).attributes.remove(&key).is_some());
            }
            Command::Write {
                path,
                file_offset,
                data,
            } => self.write(path, file_offset, data),
            Command::EncodedWrite(write) => {
                let mut buffer = Vec::new();
                let data = write.decode(&mut Decoder::new(), &mut buffer).unwrap();
                self.write(write.path, write.file_offset, data);
            }
            Command::Clone {
                file_offset,
                clone_len,
                path,
                clone_uuid,
                clone_path,
                clone_offset,
                ..
            } => {
                let range = clone_offset as usize..(clone_offset + clone_len) as usize;
                let data = if clone_uuid == uuid {
                    self.file(clone_path).data[range].to_vec()
                } else {
                    source.unwrap().clone().file(clone_path).data[range].to_vec()
                };
                self.write(path, file_offset, &data);
            }
            Command::Truncate { path, size } => self.file(path).data.resize(size as usize, 0),
            Command::Chmod { path, mode } => self.set(path, "mode", mode.to_string()),
            Command::Chown { path, uid, gid } => self.set(path, "owner", format!("{uid}:{gid}")),
            Command::Utimes { path, mtime, .. } => self.set(path, "mtime", format!("{mtime:?}")),
            Command::Fallocate {
                path,
                fallocate_mode,
                file_offset,
                size,
            } => {
                assert_eq!(fallocate_mode, 3);
                let data = &mut self.file(path).data;
                let end = data.len().min((file_offset + size) as usize);
                data[file_offset as usize..end].fill(0);
            }
            Command::Subvol { .. }
            | Command::Snapshot { .. }
            | Command::End
            | Command::UpdateExtent { .. }
            | Command::Fileattr { .. }
            | Command::EnableVerity { .. } => {}
        }
    }
}
