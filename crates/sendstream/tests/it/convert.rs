//! Converted streams build the same files.

use codec::Settings;
use sendstream::{Command, ConvertOptions, Converted, Recode, Version, convert};
use testkit::{Rng, cases};
use tree::{NoProgress, Parallel, Result, Time};

use crate::model::{Model, replay};
use crate::sample::{KERNEL_MADE, full, incremental, kernel_made, read, verify, words};

const RECODES: [Recode; 6] = [
    Recode::Keep,
    Recode::Decode,
    Recode::Encode(Settings::Zstd { level: 3 }),
    Recode::Encode(Settings::Zstd { level: 19 }),
    Recode::Encode(Settings::Zlib { level: 6 }),
    Recode::Encode(Settings::Lzo),
];

fn converted(input: &[u8], options: &ConvertOptions) -> Result<(Vec<u8>, Converted)> {
    let mut results = [1, 3].map(|threads| {
        let mut output = Vec::new();
        let parallel = Parallel::new(threads);
        let result = convert(input, &mut output, options, parallel, &NoProgress);
        result.map(|it| (output, it))
    });
    if let [Ok(one), Ok(three)] = &results {
        assert!(one == three, "the threads decide");
    }
    std::mem::replace(&mut results[0], Err(tree::Error::NotFound))
}

fn to(version: Version, recode: Recode) -> ConvertOptions {
    ConvertOptions::default()
        .version(Some(version))
        .recode(recode)
        .drops_fileattr(true)
        .trusts_holes(true)
}

/// What the streams make, and the full stream that an incremental one needs.
fn files(stream: &[u8], name: &str) -> Vec<(Vec<u8>, Vec<String>)> {
    let parent: Option<Model> = (!name.contains("full")).then(|| {
        let full = kernel_made("full.v1");
        replay(&full, None).remove(0).1
    });
    let all = replay(stream, parent.as_ref()).into_iter();
    all.map(|(name, model)| (name, model.lines())).collect()
}

#[test]
fn the_kernels_streams_build_the_same_files_in_any_form() {
    for name in KERNEL_MADE {
        let stream = kernel_made(name);
        let expected = files(&stream, name);
        for version in Version::ALL {
            for recode in RECODES {
                let options = to(version, recode);
                if version == Version::V1 && matches!(recode, Recode::Encode(_)) {
                    assert!(converted(&stream, &options).is_err());
                    continue;
                }
                let (result, _) = converted(&stream, &options).unwrap();
                let verified = verify(&result).unwrap();
                assert!(
                    files(&result, name) == expected,
                    "{name} {version} {recode:?}"
                );
                if recode == Recode::Decode || version == Version::V1 {
                    assert_eq!(verified.extents_decoded, 0);
                }
                // Only what carries data changed.
                if version >= Version::V2 && !name.ends_with("v1") {
                    assert!(
                        others(&stream) == others(&result),
                        "{name} {version} {recode:?}"
                    );
                }
            }
        }
    }
}

/// The commands that carry no data.
fn others(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut others = Vec::new();
    read(stream, |_, record| {
        if record.command.data().is_none() {
            others.push(record.bytes.to_vec());
        }
    })
    .unwrap();
    others
}

#[test]
fn nothing_to_do_changes_nothing() {
    for name in KERNEL_MADE {
        let stream = kernel_made(name);
        let (result, done) = converted(&stream, &ConvertOptions::default()).unwrap();
        assert!(result == stream, "{name}");
        assert_eq!(done.bytes_read, stream.len() as u64);
        assert_eq!(done.bytes_written, done.bytes_read);
    }
}

/// Writes with those that follow them at once put together.
fn joined(stream: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut commands: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut end = None;
    read(stream, |_, record| match record.command {
        Command::Write {
            path,
            file_offset,
            data,
        } => {
            let here = Some((path.to_vec(), file_offset));
            match commands.last_mut().filter(|_| end == here) {
                Some((_, joined)) => joined.extend(data),
                None => commands.push((format!("{here:?}").into_bytes(), data.to_vec())),
            }
            end = Some((path.to_vec(), file_offset + data.len() as u64));
        }
        _ => {
            end = None;
            commands.push((record.bytes.to_vec(), Vec::new()));
        }
    })
    .unwrap();
    commands
}

#[test]
fn there_and_back_is_the_same() {
    for name in ["full.v1", "inc.v1", "both.v1"] {
        let stream = kernel_made(name);
        for recode in RECODES {
            let (there, _) = converted(&stream, &to(Version::V2, recode)).unwrap();
            let (back, _) = converted(&there, &to(Version::V1, Recode::Keep)).unwrap();
            assert!(joined(&back) == joined(&stream), "{name} {recode:?}");
        }
    }
}

#[test]
fn what_version_1_does_not_have_is_refused_unless_it_may_be_left_out() {
    let stream = kernel_made("inc.v2");
    let strict = ConvertOptions::default().version(Some(Version::V1));
    let found = words(converted(&stream, &strict));
    assert!(
        found.starts_with("command ") && found.contains("no file attributes"),
        "{found}"
    );
    let (_, done) = converted(&stream, &to(Version::V1, Recode::Keep)).unwrap();
    assert!(done.fileattrs_dropped > 0 && done.otimes_dropped > 0 && done.zeros_bytes > 0);

    let verity = Command::EnableVerity {
        path: b"f",
        verity_algorithm: 1,
        verity_block_size: 4096,
        verity_salt_data: b"",
        verity_sig_data: b"",
    };
    let stream = full(
        Version::V3,
        &[Command::Mkfile { path: b"f", ino: 1 }, verity],
    );
    let options = ConvertOptions::default().version(Some(Version::V2));
    assert!(words(converted(&stream, &options)).contains("fs-verity"));
    let options = options.drops_verity(true);
    assert_eq!(converted(&stream, &options).unwrap().1.verity_dropped, 1);
}

#[test]
fn zeros_for_holes_need_a_size() {
    let path = b"f";
    let punch = |size| Command::Fallocate {
        path,
        fallocate_mode: 3,
        file_offset: 4096,
        size,
    };
    let truncate = Command::Truncate { path, size: 9000 };
    let time = Time::default();
    let utimes = Command::Utimes {
        path,
        atime: time,
        mtime: time,
        ctime: time,
        otime: None,
    };
    let strict = ConvertOptions::default().version(Some(Version::V1));
    let convert = |commands: &[Command<'_>]| {
        converted(&incremental(Version::V2, commands), &strict).map(|(_, done)| done.zeros_bytes)
    };
    // The size follows, or the end is inside a sector and so that of the file.
    assert_eq!(convert(&[punch(8192), truncate, utimes]).unwrap(), 8192);
    assert_eq!(convert(&[punch(5000), utimes]).unwrap(), 5000);
    for commands in [&[punch(8192), utimes][..], &[punch(8192)]] {
        assert!(words(convert(commands)).contains("unknown size"));
    }
    let other = Command::Unlink { path: b"g" };
    assert!(words(convert(&[punch(8192), other, truncate])).contains("unknown size"));
    // A few bytes can ask for any number of zeros.
    assert!(words(convert(&[punch(1 << 40), truncate])).contains("zeros"));
    let allocate = Command::Fallocate {
        path,
        fallocate_mode: 0,
        file_offset: 0,
        size: 4096,
    };
    assert!(words(convert(&[allocate])).contains("fallocate"));
}

/// Streams of writes of any size and place, also those that no kernel would send.
#[test]
fn writes_of_any_shape_build_the_same_files() {
    for seed in 0..cases(40) {
        let mut rng = Rng::new(seed);
        let text = b"all work and no play makes a dull file; ".repeat(12_000);
        let noise = rng.bytes(100_000);
        let mut commands = vec![
            Command::Mkfile { path: b"a", ino: 1 },
            Command::Mkfile { path: b"b", ino: 2 },
        ];
        let mut offset = 0;
        for _ in 0..rng.below(20) {
            offset = match rng.below(4) {
                0 => rng.below(600_000),
                1 => rng.below(100) * 4096,
                _ => offset,
            };
            let from: &[u8] = if rng.chance(3) { &noise } else { &text };
            let len = [0, 1, 2, 100, 4095, 4096, 4097, 20_000, 49_152, 65_535];
            let len = len[rng.index(len.len())];
            let start = rng.index(from.len() - len);
            let path: &[u8] = if rng.chance(8) { b"b" } else { b"a" };
            commands.push(Command::Write {
                path,
                file_offset: offset,
                data: &from[start..start + len],
            });
            offset += len as u64;
            if rng.chance(6) {
                commands.push(Command::Truncate {
                    path,
                    size: rng.below(300_000),
                });
            }
        }
        // Two zero bytes look like data of version 1.
        commands.push(Command::Write {
            path: b"b",
            file_offset: rng.below(10),
            data: b"\0\0",
        });
        let from = if rng.chance(2) {
            Version::V1
        } else {
            Version::V2
        };
        let mut stream = full(from, &commands);
        if from == Version::V2 && verify(&stream).is_err() {
            // Only data that looks like that of version 1.
            stream = full(Version::V1, &commands);
        }
        let expected = files(&stream, "full");
        for recode in RECODES {
            let sectors = [4096, 65_536];
            let options = to(Version::V2, recode).sector_bytes(sectors[rng.index(2)]);
            let (there, _) = converted(&stream, &options).unwrap();
            verify(&there).unwrap();
            assert!(files(&there, "full") == expected, "seed {seed} {recode:?}");
            let (back, _) = converted(&there, &to(Version::V1, Recode::Keep)).unwrap();
            assert!(files(&back, "full") == expected, "seed {seed} {recode:?}");
        }
    }
}

#[test]
fn data_is_encoded_in_units_of_whole_sectors() {
    let text = b"all work and no play makes a dull file; ".repeat(12_000);
    let mut commands = vec![Command::Mkfile { path: b"a", ino: 1 }];
    for (at, data) in text.chunks(49_152).enumerate() {
        commands.push(Command::Write {
            path: b"a",
            file_offset: at as u64 * 49_152,
            data,
        });
    }
    let stream = full(Version::V1, &commands);
    let options = ConvertOptions::default().recode(Recode::Encode(Settings::Zstd { level: 3 }));
    let (result, _) = converted(&stream, &options).unwrap();
    let mut sizes = Vec::new();
    let versions = read(&result, |_, record| match record.command {
        Command::EncodedWrite(it) => {
            assert_eq!(it.encryption, Some(0));
            assert!(it.data.len() < 4096);
            sizes.push((it.file_offset, it.unencoded_file_len, it.unencoded_len));
        }
        Command::Write { .. } => panic!("it is all text"),
        _ => {}
    });
    assert_eq!(versions.unwrap(), [Version::V2]);
    let unit = 128 << 10;
    let tail = text.len() as u64 - 3 * unit;
    assert_eq!(
        sizes,
        [
            (0, unit, unit),
            (unit, unit, unit),
            (2 * unit, unit, unit),
            (3 * unit, tail, tail.next_multiple_of(4096)),
        ]
    );
}
