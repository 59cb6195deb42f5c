//! Known bytes, known answers: the files of `testdata`, through every door and through C's.

use crate::catalogue::{self, Dictionary, Vector};
use crate::doors::{self, DOORS, Input};
use std::fmt::Write;
use std::path::PathBuf;
use zstd::Error;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

/// Room that no vector fills.
const CAPACITY: usize = 400_000;

/// Where C's verdict differs on purpose; `docs/formats/zstd.md` says why each is so. Name, C's
/// one-shot call accepts it, C's stream accepts it.
const C_DIFFERS: &[(&str, bool, bool)] = &[
    ("bad-rle-block-over-window-1-kib", true, false),
    ("bad-raw-block-over-window-1-kib", true, false),
    ("bad-block-regenerates-over-window-1-kib", true, false),
    (
        "bad-block-regenerates-over-by-literals-window-1-kib",
        true,
        false,
    ),
    ("bad-rle-block-over-window-1152", true, false),
    ("bad-raw-block-over-window-1152", true, false),
    ("bad-block-regenerates-over-window-1152", true, false),
    (
        "bad-block-regenerates-over-by-literals-window-1152",
        true,
        false,
    ),
    ("bad-rle-block-over-window-256-kib", true, false),
    ("bad-block-regenerates-over-window-256-kib", true, false),
    (
        "bad-block-regenerates-over-by-literals-window-256-kib",
        true,
        false,
    ),
    ("bad-count-43691", true, false),
    ("bad-compressed-block-of-0-bytes", false, true),
    ("bad-huffman-12-bits", true, true),
    ("bad-distance-over-window", true, true),
    ("bad-dictionary-raw-position-over-window", true, true),
];

/// What C says depends on chance: on whether its fast loop for four streams runs on this processor,
/// which does not ask whether all bits were used, or on what its reader makes of bytes that it
/// reads twice.
const C_MAY_ACCEPT: &[&str] = &[
    "bad-literals-four-streams-leftover-bit",
    "bad-fse-table-beyond-block",
];

impl Vector {
    fn file(&self) -> String {
        format!("{}.zst", self.name)
    }

    fn run<T>(&self, run: impl FnOnce(&Input) -> T) -> T {
        let dictionary = self.dictionary.map(Dictionary::bytes);
        run(&Input {
            magicless: self.magicless,
            dictionary: dictionary.as_deref(),
            ..Input::new(&self.bytes, CAPACITY)
        })
    }
}

#[test]
fn files_are_what_the_catalogue_makes() {
    for dictionary in [Dictionary::Raw, Dictionary::Formatted] {
        testkit::golden(
            path(&format!("{}.bin", dictionary.name())),
            dictionary.bytes(),
        );
    }
    let mut files = vec!["README.md".to_owned(), "digests.txt".to_owned()];
    for vector in catalogue::vectors() {
        testkit::golden(path(&vector.file()), &vector.bytes);
        files.push(vector.file());
    }
    testkit::golden(path("README.md"), readme());
    for entry in std::fs::read_dir(path("")).expect("testdata is there") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a plain name");
        let known = files.contains(&name) || name.starts_with("dictionary-");
        assert!(known, "the catalogue does not make {name}");
    }
}

fn readme() -> String {
    let mut text = String::from(
        "# Vectors for zstd decoders

Small frames put together field by field (`tests/it/catalogue` says how): each is about one sentence of RFC 8878. A decoder
must make the content out of every `good-*.zst` and refuse every `bad-*.zst`. `RESTOW_UPDATE=1 cargo test -p restow-zstd files_are`
rewrites this folder.

`digests.txt` is what `tests/it/digests.rs` records of our own frames; `RESTOW_UPDATE=1 cargo test -p restow-zstd digests::` rewrites it.

The dictionaries: `dictionary-raw.bin` is plain content, `dictionary-formatted.bin` has tables, repeat offsets 10, 20, 30 and
the same content. Content is given as its length and the XXH64 with seed 0.

| file | decodes to | what it is |
|---|---|---|
",
    );
    for vector in catalogue::vectors() {
        let result = match &vector.expected {
            Ok(content) => format!(
                "{} bytes, `{:016x}`",
                content.len(),
                xxhash::xxh64(content, 0)
            ),
            Err(error) => error.as_str().to_owned(),
        };
        let dictionary = vector
            .dictionary
            .map(|d| format!(" Dictionary: `{}.bin`.", d.name()))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{}` | {result} | {}{dictionary} |",
            vector.file(),
            vector.about
        );
    }
    text
}

#[test]
fn every_vector_through_every_door() {
    let mut wrong = String::new();
    for vector in catalogue::vectors() {
        for (door, decode) in DOORS {
            let got = vector.run(decode);
            let right = match (&got, &vector.expected) {
                (Ok(content), Ok(expected)) => content == expected,
                // A stream may meet another of the faults first.
                (Err(_), Err(_)) if *door != "one shot" => true,
                (Err(error), Err(expected)) => error == expected,
                _ => false,
            };
            if !right {
                let show = |result: &Result<Vec<u8>, Error>| match result {
                    Ok(content) => format!("{} bytes", content.len()),
                    Err(error) => format!("{error:?}"),
                };
                let (got, expected) = (show(&got), show(&vector.expected));
                let _ = writeln!(
                    wrong,
                    "{} through {door}: {got}, not {expected}",
                    vector.name
                );
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_vector_through_c() {
    let mut wrong = String::new();
    for vector in catalogue::vectors() {
        let accepted = vector.expected.is_ok();
        let differs = C_DIFFERS.iter().find(|(name, ..)| *name == vector.name);
        let (once, stream) =
            differs.map_or((accepted, accepted), |(_, once, stream)| (*once, *stream));
        for (door, got, accepts) in [
            ("one shot", vector.run(doors::c_one_shot), once),
            ("stream", vector.run(doors::c_stream), stream),
        ] {
            let right = match (&got, &vector.expected) {
                (Ok(content), Ok(expected)) => accepts && content == expected,
                (Ok(_), Err(_)) => accepts || C_MAY_ACCEPT.contains(&&*vector.name),
                (Err(_), _) => !accepts,
            };
            if !right {
                let got = got.map(|content| content.len());
                let _ = writeln!(wrong, "{} through C {door}: {got:?}", vector.name);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn good_vectors_into_exact_room_and_into_less() {
    for vector in catalogue::vectors() {
        let Ok(expected) = &vector.expected else {
            continue;
        };
        let sized = |capacity| {
            let run = |input: &Input| doors::one_shot(&Input { capacity, ..*input });
            vector.run(run)
        };
        assert_eq!(
            sized(expected.len()).as_ref(),
            Ok(expected),
            "{} into exact room",
            vector.name
        );
        for less in [1, 2, 17, 100, expected.len()] {
            let Some(room) = expected.len().checked_sub(less).filter(|_| less > 0) else {
                continue;
            };
            assert_eq!(
                sized(room),
                Err(Error::DstSizeTooSmall),
                "{} into {less} bytes less",
                vector.name
            );
        }
    }
}

#[test]
fn good_vectors_give_any_range_from_their_start() {
    for vector in catalogue::vectors() {
        let Ok(expected) = &vector.expected else {
            continue;
        };
        if vector.name.contains("frame") || vector.name.contains("skippable-a") {
            continue; // several frames, or none
        }
        let len = expected.len();
        for wanted in [0, 1, 3, 100, 1000, len / 2, len.saturating_sub(1), len] {
            let wanted = wanted.min(len);
            let run = |input: &Input| {
                doors::range(&Input {
                    capacity: wanted,
                    ..*input
                })
            };
            let (got, more) = vector.run(run).unwrap();
            let name = &vector.name;
            assert_eq!(got, expected[..wanted], "{name}: {wanted} bytes");
            assert_eq!(more, wanted < len, "{name}: more than {wanted} bytes");
        }
    }
}

#[test]
fn cut_anywhere_a_frame_is_an_error() {
    for vector in catalogue::vectors() {
        let Ok(expected) = &vector.expected else {
            continue;
        };
        if vector.bytes.len() > 3000
            || vector.name.contains("frame")
            || vector.name.contains("skippable")
        {
            continue; // whole frames remain when several are cut
        }
        for len in 1..vector.bytes.len() {
            for (door, decode) in DOORS {
                let got = vector.run(|input| {
                    decode(&Input {
                        bytes: &input.bytes[..len],
                        capacity: expected.len() + 1,
                        ..*input
                    })
                });
                assert!(
                    got.is_err(),
                    "{} cut to {len} bytes through {door}",
                    vector.name
                );
            }
        }
    }
}

#[test]
fn an_extent_ends_where_its_frame_ends() {
    for vector in catalogue::vectors() {
        let Ok(expected) = &vector.expected else {
            continue;
        };
        if vector.name.contains("frame") || vector.name.contains("skippable-a") {
            continue;
        }
        for padding in [[0; 32], [0xFF; 32]] {
            let padded = [&vector.bytes[..], &padding].concat();
            let got = vector.run(|input| {
                doors::range(&Input {
                    bytes: &padded,
                    ..*input
                })
            });
            let whole = Ok((expected.clone(), false));
            assert_eq!(got, whole, "{}", vector.name);
        }
    }
}
