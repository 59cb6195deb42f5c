//! Streams that mean harm: each is refused, and says why.

use codec::{Algorithm, Encoder, Settings};
use sendstream::{Command, EncodedWrite, StreamReader, Version};

use crate::sample::{full, incremental, kernel_made, stream, verify, words};

const MKFILE: Command<'_> = Command::Mkfile { path: b"f", ino: 1 };

/// A command with any number and payload, under a right checksum: its length is computed, and so is
/// the sum, bit by bit.
fn raw(number: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    let mut sum = 0_u32;
    for byte in &bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    bytes[6..10].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let head = [kind.to_le_bytes(), (value.len() as u16).to_le_bytes()];
    [head.as_flattened(), value].concat()
}

/// A stream with a raw command after its subvolume.
fn with_raw(command: &[u8]) -> Vec<u8> {
    let whole = full(Version::V2, &[]);
    let end = whole.len() - 10;
    [&whole[..end], command, &whole[end..]].concat()
}

#[track_caller]
fn refused(stream: &[u8], expected: &str) {
    let found = words(verify(stream));
    assert!(found.contains(expected), "{found}");
}

#[test]
fn paths_that_leave_the_subvolume() {
    for (path, expected) in [
        (&b"../f"[..], "`.` or `..`"),
        (b"a/../../f", "`.` or `..`"),
        (b"./f", "`.` or `..`"),
        (b"/etc/passwd", "absolute"),
        (b"a//b", "empty component"),
        (b"a/", "empty component"),
        (b"a\0b", "NUL"),
        (&[b'n'; 256], "255"),
        (b"", "below its subvolume"),
    ] {
        let bad = Command::Mkfile { path, ino: 1 };
        refused(&full(Version::V1, &[bad]), expected);
        // Wherever a path can stand.
        for command in [
            Command::Rename {
                path: b"f",
                path_to: path,
            },
            Command::Link {
                path: b"g",
                path_link: path,
            },
            Command::Clone {
                file_offset: 0,
                clone_len: 4096,
                path: b"f",
                clone_uuid: [1; 16],
                clone_ctransid: 1,
                clone_path: path,
                clone_offset: 0,
            },
        ] {
            refused(&full(Version::V1, &[MKFILE, command]), expected);
        }
        let subvol = Command::Subvol {
            path,
            uuid: [1; 16],
            ctransid: 1,
        };
        verify(&stream(Version::V1, &[subvol, Command::End])).unwrap_err();
    }
    for path in [&b"a/b"[..], b".."] {
        let subvol = Command::Subvol {
            path,
            uuid: [1; 16],
            ctransid: 1,
        };
        refused(
            &stream(Version::V1, &[subvol, Command::End]),
            "send stream's",
        );
    }
    // Whoever prints may want to see them.
    let bad = full(Version::V1, &[Command::Unlink { path: b"../f" }]);
    let mut reader = StreamReader::new(&bad[..]).any_paths();
    reader.next_stream().unwrap();
    while reader.next_command().unwrap().is_some() {}
}

#[test]
fn symlinks_on_the_way() {
    let link = Command::Symlink {
        path: b"o2",
        ino: 2,
        path_link: b"/",
    };
    let rename = Command::Rename {
        path: b"o2",
        path_to: b"l",
    };
    let through = Command::Mkfile {
        path: b"l/etc",
        ino: 3,
    };
    refused(
        &full(Version::V1, &[link, rename, through]),
        "through a symlink",
    );
    refused(
        &incremental(Version::V1, &[link, rename, through]),
        "through a symlink",
    );
    let write = Command::Write {
        path: b"l",
        file_offset: 0,
        data: b"x",
    };
    refused(
        &full(Version::V1, &[link, rename, write]),
        "through a symlink",
    );
    let chmod = Command::Chmod {
        path: b"l",
        mode: 0o777,
    };
    refused(
        &full(Version::V1, &[link, rename, chmod]),
        "follow a symlink",
    );
}

#[test]
fn commands_that_are_cut_out_are_missed() {
    for stream in ["full.v1", "zstd.inc.v2c", "full.v2"] {
        let whole = kernel_made(stream);
        let mut places = Vec::new();
        let mut reader = StreamReader::new(&whole[..]);
        reader.next_stream().unwrap();
        while let Some(record) = reader.next_command().unwrap() {
            places.push((
                record.at as usize,
                record.end() as usize,
                record.command.name(),
            ));
        }
        for (start, end, name) in places {
            let without = [&whole[..start], &whole[end..]].concat();
            let is_missed = verify(&without).is_err();
            // Without the parent, a new file in an incremental stream could be one of its files.
            let must_be_missed = match stream {
                "zstd.inc.v2c" => &["snapshot", "end"][..],
                _ => &["subvol", "mkfile", "mkdir", "symlink", "rename", "end"],
            };
            if must_be_missed.contains(&name) {
                assert!(is_missed, "{name} at {start}");
            }
        }
    }
}

#[test]
fn what_is_unknown_or_out_of_order() {
    let path = attribute(15, b"f");
    refused(&with_raw(&raw(27, &path)), "unknown command");
    refused(&with_raw(&raw(0, &path)), "unknown command");
    refused(&with_raw(&raw(26, &path)), "later version");
    refused(
        &with_raw(&raw(11, &[path.clone(), attribute(36, b"")].concat())),
        "unknown type",
    );
    refused(
        &with_raw(&raw(11, &[path.clone(), attribute(0, b"")].concat())),
        "unknown type",
    );
    refused(
        &with_raw(&raw(11, &[path.clone(), path.clone()].concat())),
        "occurs twice",
    );
    refused(
        &with_raw(&raw(11, &[path.clone(), attribute(4, &[0; 8])].concat())),
        "does not belong",
    );
    refused(&with_raw(&raw(11, b"")), "missing");
    refused(&with_raw(&raw(11, &path[..3])), "length is cut off");
    refused(&with_raw(&raw(11, &path[..1])), "type is cut off");
    refused(&with_raw(&raw(11, &path[..4])), "reaches beyond");
    let short = [path.clone(), attribute(4, &[0; 7])].concat();
    refused(&with_raw(&raw(17, &short)), "wrong length for its type");
    // Data that is not last swallows what follows.
    let write = [attribute(19, b""), path, attribute(18, &[0; 8])].concat();
    refused(&with_raw(&raw(15, &write)), "missing");
    refused(
        &stream(Version::V1, &[MKFILE, Command::End]),
        "before the first subvolume",
    );
    refused(
        &stream(Version::V1, &[Command::End]),
        "before the first subvolume",
    );
    let whole = full(Version::V1, &[MKFILE]);
    refused(&[&whole[..], b"x"].concat(), "followed by other bytes");
    refused(&[&whole[..], &whole[..5]].concat(), "header is cut off");
    refused(
        &[&whole[..], &whole[..17]].concat(),
        "without an end command",
    );
    refused(&[&whole[..], &whole[..]].concat(), "name of an earlier one");
    refused(b"", "empty");
    refused(b"not a stream at all", "not a btrfs send stream");
    for version in [0, 4, u32::MAX] {
        let mut other = whole.clone();
        other[13..17].copy_from_slice(&version.to_le_bytes());
        refused(&other, "unknown version");
    }
}

#[test]
fn lengths_that_no_memory_holds() {
    let whole = full(Version::V2, &[]);
    let start = &whole[..whole.len() - 10];
    for len in [u32::MAX, 1 << 31, (16 << 20) + 1] {
        let header = [&len.to_le_bytes()[..], &[15, 0, 0, 0, 0, 0]].concat();
        refused(
            &[start, &header, &[0; 100]].concat(),
            "longer than is allowed",
        );
    }
    // One that is allowed ends where the input does.
    let header = [&(16_u32 << 20).to_le_bytes()[..], &[15, 0, 0, 0, 0, 0]].concat();
    refused(&[start, &header, &[0; 100]].concat(), "ends in a command");
    let long = Command::Write {
        path: b"f",
        file_offset: 0,
        data: &[0; 5000],
    };
    let long = full(Version::V2, &[MKFILE, long]);
    let mut reader = StreamReader::new(&long[..]).command_bytes_max(5000);
    reader.next_stream().unwrap();
    reader.next_command().unwrap();
    reader.next_command().unwrap();
    assert!(words(reader.next_command()).contains("longer than is allowed"));
}

#[test]
fn numbers_that_overflow() {
    let path = b"f";
    for command in [
        Command::Write {
            path,
            file_offset: i64::MAX as u64,
            data: b"x",
        },
        Command::Truncate {
            path,
            size: u64::MAX,
        },
        Command::Fallocate {
            path,
            fallocate_mode: 3,
            file_offset: u64::MAX,
            size: 2,
        },
        Command::UpdateExtent {
            path,
            file_offset: 1,
            size: u64::MAX,
        },
        Command::Clone {
            file_offset: 0,
            clone_len: 4096,
            path,
            clone_uuid: [7; 16],
            clone_ctransid: 9,
            clone_path: path,
            clone_offset: u64::MAX - 4095,
        },
    ] {
        refused(
            &full(Version::V2, &[MKFILE, command]),
            "largest possible file",
        );
    }
    let mut time = vec![0; 12];
    time[8..].copy_from_slice(&1_000_000_000_u32.to_le_bytes());
    let times: Vec<u8> = [9, 10, 11]
        .iter()
        .flat_map(|kind| attribute(*kind, &time))
        .collect();
    let utimes = raw(20, &[attribute(15, b""), times].concat());
    refused(&with_raw(&utimes), "nanoseconds");
}

#[test]
fn encoded_data_that_linux_would_take_unseen() {
    let content: Vec<u8> = (0..8192_u32)
        .flat_map(|it| (it / 7).to_le_bytes())
        .collect();
    let (len, sector) = (content.len(), 4096);
    let packed = |settings: Settings| {
        let mut packed = vec![0; len];
        let mut encoder = Encoder::new(&settings).unwrap();
        let bytes = encoder
            .compress_extent(sector, &mut packed, &content)
            .unwrap();
        packed.truncate(bytes);
        packed
    };
    let (zlib, zstd, lzo) = (
        packed(Settings::Zlib { level: 3 }),
        packed(Settings::Zstd { level: 3 }),
        packed(Settings::Lzo),
    );
    let lzo_4k = Algorithm::LzoBtrfs {
        sector_bytes: sector,
    };
    let of = |compression, data: &[u8], change: &dyn Fn(&mut EncodedWrite<'_>)| {
        let mut write = EncodedWrite {
            path: b"f",
            file_offset: 0,
            unencoded_file_len: len as u64,
            unencoded_len: len as u64,
            unencoded_offset: 0,
            compression,
            encryption: None,
            data: &[],
        };
        change(&mut write);
        let write = EncodedWrite { data, ..write };
        full(Version::V2, &[MKFILE, Command::EncodedWrite(write)])
    };
    let same = |_: &mut EncodedWrite<'_>| {};
    for (algorithm, data) in [
        (Algorithm::Zlib, &zlib),
        (Algorithm::Zstd, &zstd),
        (lzo_4k, &lzo),
    ] {
        verify(&of(algorithm, data, &same)).unwrap();
        let mut padded = data.clone();
        padded.resize(padded.len().next_multiple_of(4096), 0);
        verify(&of(algorithm, &padded, &same)).unwrap();
        let part = |write: &mut EncodedWrite<'_>| {
            write.unencoded_offset = 4096;
            write.unencoded_file_len = 100;
        };
        verify(&of(algorithm, data, &part)).unwrap();
        // Short content ends in zeros.
        let longer = |write: &mut EncodedWrite<'_>| {
            write.unencoded_len = len as u64 + 4096;
            write.unencoded_file_len = len as u64 + 4096;
        };
        verify(&of(algorithm, data, &longer)).unwrap();

        let more = [&data[..], b"more"].concat();
        refused(
            &of(algorithm, &more, &same),
            match algorithm {
                Algorithm::Zlib => "end cannot be found",
                _ => "after its frame",
            },
        );
        padded.resize(padded.len() + 4096, 0);
        refused(&of(algorithm, &padded, &same), "a sector or more after");
        verify(&of(algorithm, &data[..data.len() - 1], &same)).unwrap_err();
        verify(&of(algorithm, b"garbage garbage garbage", &same)).unwrap_err();
        let shorter = |write: &mut EncodedWrite<'_>| {
            write.unencoded_len = len as u64 - 4096;
            write.unencoded_file_len = 1;
        };
        verify(&of(algorithm, data, &shorter)).unwrap_err();
    }
    refused(
        &of(Algorithm::Zstd, &[&zstd[..], &zstd].concat(), &same),
        "after its frame",
    );

    type Change = fn(&mut EncodedWrite<'_>);
    let changes: [(Change, &str); 5] = [
        (
            |it| it.unencoded_len = (128 << 10) + 4096,
            "longer than 128 KiB",
        ),
        (|it| it.unencoded_len = 0, "empty"),
        (|it| it.unencoded_offset = 4096, "more than its extent"),
        (|it| it.unencoded_offset = u64::MAX, "more than its extent"),
        (
            |it| it.unencoded_file_len = u64::MAX,
            "more than its extent",
        ),
    ];
    for (change, expected) in changes {
        refused(&of(Algorithm::Zstd, &zstd, &change), expected);
    }
    refused(&of(Algorithm::Zstd, b"", &same), "empty");
    let long = vec![0; (128 << 10) + 1];
    refused(&of(Algorithm::Zstd, &long, &same), "longer than 128 KiB");

    // A frame of 8 bytes with a window of 2^18 bytes: magic, header, window, a raw block that is
    // the last.
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 8 << 3, 0x09, 0, 0, b'x'];
    refused(&of(Algorithm::Zstd, &wide, &same), "window");
    let narrow = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3, 0x09, 0, 0, b'x'];
    verify(&of(Algorithm::Zstd, &narrow, &same)).unwrap();

    // No compression, one that does not exist, and encryption.
    let numbers = |compression: u32, encryption: u32| {
        let fields = [
            attribute(15, b"f"),
            attribute(18, &[0; 8]),
            attribute(27, &1_u64.to_le_bytes()),
            attribute(28, &1_u64.to_le_bytes()),
            attribute(29, &[0; 8]),
            attribute(30, &compression.to_le_bytes()),
            attribute(31, &encryption.to_le_bytes()),
            vec![19, 0, b'x'],
        ];
        with_raw(&raw(25, &fields.concat()))
    };
    refused(&numbers(0, 0), "compression");
    refused(&numbers(8, 0), "compression");
    refused(&numbers(1, 1), "encryption");
}
