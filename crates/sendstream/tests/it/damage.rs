//! Streams that were cut or changed on the way.

use codec::{Algorithm, Encoder, Settings};
use sendstream::{Command, EncodedWrite, StreamReader, VerifyOptions, Version};
use tree::{NoProgress, Parallel, Time};

use crate::sample::{full, kernel_made, read, verify, words};

/// A small stream with data of each kind that the version has.
fn small(version: Version) -> Vec<u8> {
    let content = [b'a'; 4096];
    let mut packed = vec![0; 4096];
    let mut encoder = Encoder::new(&Settings::Zstd { level: 3 }).unwrap();
    let len = encoder
        .compress_extent(4096, &mut packed, &content)
        .unwrap();
    let time = Time::default();
    let mut commands = vec![
        Command::Mkfile {
            path: b"o257-9-0",
            ino: 257,
        },
        Command::Rename {
            path: b"o257-9-0",
            path_to: b"f",
        },
        Command::Write {
            path: b"f",
            file_offset: 0,
            data: b"content",
        },
    ];
    if version >= Version::V2 {
        commands.push(Command::EncodedWrite(EncodedWrite {
            path: b"f",
            file_offset: 4096,
            unencoded_file_len: 4096,
            unencoded_len: 4096,
            unencoded_offset: 0,
            compression: Algorithm::Zstd,
            encryption: Some(0),
            data: &packed[..len],
        }));
    }
    commands.push(Command::Utimes {
        path: b"f",
        atime: time,
        mtime: time,
        ctime: time,
        otime: (version >= Version::V2).then_some(time),
    });
    full(version, &commands)
}

#[test]
fn every_cut_is_refused() {
    for version in Version::ALL {
        let stream = small(version);
        verify(&stream).unwrap();
        for len in 0..stream.len() {
            assert!(verify(&stream[..len]).is_err(), "{version}: {len} bytes");
        }
    }
}

/// The header has no checksum: a flip in its version can make a stream of another version. It is
/// right in itself if no command is of a later version, and if the data does not tell.
#[test]
fn every_flipped_bit_is_refused_but_in_the_version() {
    let mut passed = Vec::new();
    for version in Version::ALL {
        let mut stream = small(version);
        for bit in 0..stream.len() * 8 {
            stream[bit / 8] ^= 1 << (bit % 8);
            if verify(&stream).is_ok() {
                let labelled = StreamReader::new(&stream[..])
                    .next_stream()
                    .unwrap()
                    .unwrap();
                passed.push((version, labelled));
            }
            stream[bit / 8] ^= 1 << (bit % 8);
        }
    }
    let (two, three) = (Version::V2, Version::V3);
    assert_eq!(passed, [(two, three), (three, two)]);
}

#[test]
fn data_that_begins_with_its_own_length_is_of_version_1() {
    for later in [2, 3] {
        let mut stream = kernel_made("full.v1");
        stream[13] = later;
        let found = words(verify(&stream));
        assert!(found.contains("data begins with its own length"), "{found}");
    }
    // A file with such a content is nothing special where something else shows the version.
    let stream = kernel_made("full.v2");
    verify(&stream).unwrap();
    let time = Time::default();
    let write = Command::Write {
        path: b"f",
        file_offset: 0,
        data: b"\0\0",
    };
    let utimes = Command::Utimes {
        path: b"f",
        atime: time,
        mtime: time,
        ctime: time,
        otime: Some(time),
    };
    let mkfile = Command::Mkfile { path: b"f", ino: 1 };
    verify(&full(Version::V2, &[mkfile, write, utimes])).unwrap();
    verify(&full(Version::V1, &[mkfile, write])).unwrap();
    assert!(verify(&full(Version::V2, &[mkfile, write])).is_err());
}

/// The first part of a stream, cut anywhere, and the whole stream behind it: what an interrupted
/// `btrfs send` leaves.
#[test]
fn a_stream_that_starts_again_is_recognized_and_can_be_continued() {
    let stream = kernel_made("zstd.inc.v2c");
    let mut expected = Vec::new();
    read(&stream, |_, record| expected.push(record.bytes.to_vec())).unwrap();
    for cut in 17..stream.len() - 10 {
        let twice = [&stream[..cut], &stream[..]].concat();
        let mut reader = StreamReader::new(&twice[..]);
        reader.next_stream().unwrap();
        let found = loop {
            match reader.next_command() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("cut at {cut}"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(found.contains("starts again"), "cut at {cut}: {found}");
        assert!(
            found.contains(&format!("at byte {cut:#x}")),
            "cut at {cut}: {found}"
        );
        assert_eq!(reader.restart(), Some(cut as u64));
        assert!(reader.next_command().is_err());
        assert!(reader.continue_at_restart());
        assert_eq!(reader.next_stream().unwrap(), Some(Version::V2));
        let mut again = Vec::new();
        while let Some(record) = reader.next_command().unwrap() {
            again.push(record.bytes.to_vec());
        }
        assert!(again == expected, "cut at {cut}");
        assert_eq!(reader.next_stream().unwrap(), None);
    }
}

#[test]
fn errors_name_the_command_and_the_byte() {
    let mut stream = small(Version::V2);
    let mut places = Vec::new();
    read(&stream, |_, record| places.push(record.at)).unwrap();
    let at = places[2] as usize;
    stream[at + 12] ^= 1;
    let found = words(verify(&stream));
    assert!(
        found.starts_with("command 3: command has the wrong checksum"),
        "{found}"
    );
    assert!(found.ends_with(&format!("at byte {at:#x})")), "{found}");
}

/// Extents are decoded together, behind the reader.
#[test]
fn the_first_of_several_faults_is_named() {
    let mut commands = vec![
        Command::Mkfile {
            path: b"o257-9-0",
            ino: 257,
        },
        Command::Rename {
            path: b"o257-9-0",
            path_to: b"f",
        },
    ];
    let mut packed = vec![0; 4096];
    let mut encoder = Encoder::new(&Settings::Zstd { level: 3 }).unwrap();
    let len = encoder.compress_extent(4096, &mut packed, &[b'a'; 4096]);
    let whole = &packed[..len.unwrap()];
    for index in 0..3000 {
        commands.push(Command::EncodedWrite(EncodedWrite {
            path: b"f",
            file_offset: 4096 * index,
            unencoded_file_len: 4096,
            unencoded_len: 4096,
            unencoded_offset: 0,
            compression: Algorithm::Zstd,
            encryption: Some(0),
            data: match index {
                1500 | 1501 | 2999 => b"no frame",
                _ => whole,
            },
        }));
    }
    let stream = full(Version::V2, &commands);
    for threads in [1, 2] {
        for cut in [0, 1] {
            let found = sendstream::verify(
                &stream[..stream.len() - cut],
                VerifyOptions::default(),
                Parallel::new(threads),
                &NoProgress,
            );
            let found = words(found);
            assert!(
                found.starts_with("command 1504: encoded data is not"),
                "{found}"
            );
        }
    }
    commands.retain(|it| !matches!(it, Command::EncodedWrite(write) if write.data == b"no frame"));
    let verified = verify(&full(Version::V2, &commands)).unwrap();
    assert_eq!(verified.extents_decoded, 2997);
}
