//! Streams for the tests: one with every command, and the committed ones of the kernel.

use std::path::Path;

use codec::Algorithm;
use sendstream::{
    Command, CommandRecord, EncodedWrite, StreamReader, StreamWriter, Verified, VerifyOptions,
    Version,
};
use tree::{NoProgress, Parallel, Result, Time};

/// A committed stream.
pub(crate) fn kernel_made(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(format!("{name}.zst"));
    let packed = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut stream = vec![0; 4 << 20];
    let len = codec::Decoder::new().decompress(Algorithm::Zstd, &mut stream, &packed);
    stream.truncate(len.unwrap());
    stream
}

/// The names of the committed streams.
pub(crate) const KERNEL_MADE: [&str; 12] = [
    "full.v1",
    "full.v2",
    "zstd.full.v2c",
    "zlib.full.v2c",
    "lzo.full.v2c",
    "inc.v1",
    "inc.v2",
    "zstd.inc.v2c",
    "zlib.inc.v2c",
    "lzo.inc.v2c",
    "no-data.v2",
    "both.v1",
];

/// Calls `each` with every command of all streams of `input`, and returns their versions.
pub(crate) fn read(
    input: &[u8],
    mut each: impl FnMut(Version, &CommandRecord<'_>),
) -> Result<Vec<Version>> {
    let mut reader = StreamReader::new(input);
    let mut versions = Vec::new();
    while let Some(version) = reader.next_stream()? {
        versions.push(version);
        while let Some(record) = reader.next_command()? {
            each(version, &record);
        }
    }
    Ok(versions)
}

/// Every command that this version has, each with all its attributes.
pub(crate) fn every_command(version: Version) -> Vec<Command<'static>> {
    let time = |seconds, nanoseconds| Time {
        seconds,
        nanoseconds,
    };
    let (uuid, clone_uuid) = ([1; 16], [2; 16]);
    let (path, ino) = (&b"dir/na\xffme\n"[..], 257);
    let otime = (version >= Version::V2).then_some(time(3, 0));
    let mut all = vec![
        Command::Subvol {
            path: b"full",
            uuid,
            ctransid: 7,
        },
        Command::Snapshot {
            path: b"incremental",
            uuid,
            ctransid: 8,
            clone_uuid,
            clone_ctransid: 7,
        },
        Command::Mkfile { path, ino },
        Command::Mkdir { path, ino },
        Command::Mknod {
            path,
            ino,
            rdev: 306_184_005,
            mode: 0o020_600,
        },
        Command::Mkfifo {
            path,
            ino,
            rdev: Some(0),
            mode: Some(0o010_644),
        },
        Command::Mksock {
            path,
            ino,
            rdev: None,
            mode: None,
        },
        Command::Symlink {
            path,
            ino,
            path_link: b"/any/../thing",
        },
        Command::Rename {
            path,
            path_to: b"to",
        },
        Command::Link {
            path,
            path_link: b"from",
        },
        Command::Unlink { path },
        Command::Rmdir { path },
        Command::SetXattr {
            path,
            xattr_name: b"user.x",
            xattr_data: b"",
        },
        Command::RemoveXattr {
            path: b"",
            xattr_name: b"user.x",
        },
        Command::Write {
            path,
            file_offset: 4096,
            data: b"some bytes",
        },
        Command::Clone {
            file_offset: 0,
            clone_len: 4096,
            path,
            clone_uuid,
            clone_ctransid: 7,
            clone_path: b"from",
            clone_offset: 8192,
        },
        Command::Truncate { path, size: 12 },
        Command::Chmod { path, mode: 0o4755 },
        Command::Chown {
            path,
            uid: 1000,
            gid: u64::from(u32::MAX) - 1,
        },
        Command::Utimes {
            path: b"",
            atime: time(-1, 999_999_999),
            mtime: time(1, 2),
            ctime: time(1 << 40, 0),
            otime,
        },
        Command::UpdateExtent {
            path,
            file_offset: 0,
            size: 4096,
        },
    ];
    if version >= Version::V2 {
        all.extend([
            Command::Fallocate {
                path,
                fallocate_mode: 3,
                file_offset: 4096,
                size: 8192,
            },
            Command::Fileattr {
                path,
                fileattr: 0x200,
            },
            Command::EncodedWrite(EncodedWrite {
                path,
                file_offset: 4096,
                unencoded_file_len: 100,
                unencoded_len: 4096,
                unencoded_offset: 0,
                compression: Algorithm::LzoBtrfs { sector_bytes: 4096 },
                encryption: None,
                data: b"not checked by the reader",
            }),
        ]);
    }
    if version >= Version::V3 {
        all.push(Command::EnableVerity {
            path,
            verity_algorithm: 1,
            verity_block_size: 4096,
            verity_salt_data: b"",
            verity_sig_data: b"signature",
        });
    }
    all.push(Command::End);
    all
}

/// A stream of these commands.
pub(crate) fn stream(version: Version, commands: &[Command<'_>]) -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), version);
    writer.header().unwrap();
    for command in commands {
        writer.command(command).unwrap();
    }
    writer.into_inner()
}

/// A stream of a subvolume `s` with these commands, and its end.
pub(crate) fn full(version: Version, commands: &[Command<'_>]) -> Vec<u8> {
    let subvol = Command::Subvol {
        path: b"s",
        uuid: [7; 16],
        ctransid: 9,
    };
    let commands = [&[subvol], commands, &[Command::End]].concat();
    stream(version, &commands)
}

/// An incremental stream of a subvolume `s` with these commands, and its end.
pub(crate) fn incremental(version: Version, commands: &[Command<'_>]) -> Vec<u8> {
    let snapshot = Command::Snapshot {
        path: b"s",
        uuid: [8; 16],
        ctransid: 10,
        clone_uuid: [7; 16],
        clone_ctransid: 9,
    };
    let commands = [&[snapshot], commands, &[Command::End]].concat();
    stream(version, &commands)
}

/// Verifies everything.
pub(crate) fn verify(stream: &[u8]) -> Result<Verified> {
    let options = VerifyOptions::default();
    sendstream::verify(stream, options, Parallel::new(1), &NoProgress)
}

/// The plain words of an error.
pub(crate) fn words<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}
