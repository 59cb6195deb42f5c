//! The inputs that several targets make of bytes: send streams, and limits that keep a run short.
#![forbid(unsafe_code)]

use sendstream::{Command, StreamWriter, Version};
use tree::Limits;

const NAMES: [&[u8]; 8] = [
    b"a",
    b"b",
    b"a/b",
    b"a/b/c",
    b"",
    b"d",
    b"../up",
    b"a/link/x",
];
const TARGETS: [&[u8]; 4] = [b"../../outside", b"a", b"/", b"b/c"];
const XATTRS: [&[u8]; 4] = [
    b"user.x",
    b"security.capability",
    b"btrfs.compression",
    b"user.",
];
const SUBVOLUMES: [&[u8]; 4] = [b"one", b"two", b".restow-received", b"one"];
/// Later writes and larger files are sparse, and those only cost time.
const OFFSET_MAX: u64 = 1 << 20;

/// Limits under which every input takes a fraction of a second.
pub fn limits() -> Limits {
    Limits {
        inodes_max: 2000,
        depth_max: 50,
        ..Limits::default()
    }
}

/// One or more streams of commands that name few files, so that most commands find theirs: a full
/// one, and increments of those before it. Each command takes four bytes of the input, and those
/// with data up to 63 more.
pub fn streams(input: &[u8]) -> Vec<Vec<u8>> {
    let mut streams = Vec::new();
    let mut parent = None;
    for (number, part) in (1..).zip(input.split(|&byte| byte == 0xFF).take(4)) {
        let path = SUBVOLUMES[part.len() % SUBVOLUMES.len()];
        let mut stream = StreamWriter::new(Vec::new(), Version::V2);
        stream.header().expect("memory can be written");
        let (uuid, ctransid) = ([number; 16], u64::from(number));
        let start = match parent.replace(uuid) {
            None => Command::Subvol {
                path,
                uuid,
                ctransid,
            },
            Some(clone_uuid) => Command::Snapshot {
                path,
                uuid,
                ctransid,
                clone_uuid,
                clone_ctransid: ctransid - 1,
            },
        };
        let _ = stream.command(&start);
        commands(part, uuid, &mut stream);
        let _ = stream.command(&Command::End);
        streams.push(stream.into_inner());
    }
    streams
}

fn commands(mut input: &[u8], uuid: [u8; 16], stream: &mut StreamWriter<Vec<u8>>) {
    let mut ino = 257;
    while let Some((&[kind, first, second, number], rest)) = input.split_first_chunk() {
        let path = NAMES[usize::from(first) % NAMES.len()];
        let other = NAMES[usize::from(second) % NAMES.len()];
        let (data, left) = rest.split_at(rest.len().min(usize::from(second) % 64));
        let xattr_name = XATTRS[usize::from(second) % XATTRS.len()];
        let file_offset = u64::from(number) * 1500;
        let size = (1 << (number % 21)) + u64::from(second);
        let size = size.min(OFFSET_MAX);
        ino += 1;
        input = rest;
        let command = match kind % 16 {
            0 | 1 => Command::Mkfile { path, ino },
            2 | 3 => Command::Mkdir { path, ino },
            4 => Command::Symlink {
                path,
                ino,
                path_link: TARGETS[usize::from(second) % TARGETS.len()],
            },
            5 => Command::Rename {
                path,
                path_to: other,
            },
            6 => Command::Link {
                path,
                path_link: other,
            },
            7 => Command::Unlink { path },
            8 => Command::Rmdir { path },
            9 | 10 => {
                input = left;
                Command::Write {
                    path,
                    file_offset,
                    data,
                }
            }
            11 => Command::Clone {
                path,
                file_offset,
                clone_len: size,
                clone_uuid: [uuid[0] - number % 2; 16],
                clone_ctransid: u64::from(uuid[0] - number % 2),
                clone_path: other,
                clone_offset: u64::from(number) << 12,
            },
            12 => Command::Truncate { path, size },
            13 => Command::SetXattr {
                path,
                xattr_name,
                xattr_data: &[number],
            },
            14 => Command::RemoveXattr { path, xattr_name },
            _ => Command::Chmod {
                path,
                mode: u64::from(number) << 4,
            },
        };
        // Some are impossible, such as a path that leads outside.
        let _ = stream.command(&command);
    }
}
