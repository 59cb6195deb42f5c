//! What Miri runs: the small vectors, and small inputs through the encoder. C cannot be called
//! there.

use crate::doors::{DOORS, Input};
use zstd::{Compressor, LEVEL_MAX, LEVEL_MIN, Params, compress_bound, workspace_size};

/// Content and frames above this many bytes take Miri too long.
const LARGEST: usize = 512;

/// What each file decodes to, and with which dictionary, is read from the table in the README.
#[test]
#[expect(
    clippy::print_stdout,
    reason = "how much was tested is part of the result"
)]
fn small_vectors_through_every_door() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
    let read = |name: &str| std::fs::read(format!("{folder}/{name}")).expect("a committed file");
    // Making the catalogue takes Miri longer than decoding it.
    let table = String::from_utf8(read("README.md")).expect("text");
    let (mut good, mut bad, mut large) = (0, 0, 0);
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split(" | ");
        let name = cells.next().expect("a name").trim_matches(['|', ' ', '`']);
        let result = cells.next().expect("a result");
        let expected = result.split_once(" bytes, ").map(|(len, hash)| {
            let hash = u64::from_str_radix(hash.trim_matches('`'), 16).expect("a hash");
            (len.parse::<usize>().expect("a length"), hash)
        });
        assert_eq!(expected.is_some(), name.starts_with("good-"), "{name}");
        let bytes = read(name);
        if bytes.len() > LARGEST || expected.is_some_and(|(len, _)| len > LARGEST) {
            large += 1;
            continue;
        }
        let dictionary = ["dictionary-raw.bin", "dictionary-formatted.bin"]
            .into_iter()
            .find(|file| line.contains(&format!("Dictionary: `{file}`")))
            .map(read);
        let input = Input {
            magicless: name.contains("magicless"),
            dictionary: dictionary.as_deref(),
            ..Input::new(&bytes, LARGEST + 64)
        };
        for (door, decode) in DOORS {
            let got = decode(&input).map(|content| (content.len(), xxhash::xxh64(&content, 0)));
            if got != Err(zstd::Error::WindowTooLarge) || *door == "one shot" {
                assert_eq!(got.ok(), expected, "{name} through {door}");
            }
        }
        match expected {
            Some(_) => good += 1,
            None => bad += 1,
        }
    }
    println!("{good} good and {bad} bad vectors; {large} are too large for Miri");
    assert!(good >= 50 && bad >= 50, "{good} good, {bad} bad vectors");
}

#[test]
fn small_inputs_at_every_level() {
    let text = b"static int inode(void)\n\treturn 0x10;\n";
    for len in [0, 1, 300] {
        let content: Vec<u8> = (0..len).map(|i| text[(i + i / 97) % text.len()]).collect();
        for level in LEVEL_MIN.max(-2)..=LEVEL_MAX {
            let params = Params::for_level(level, Some(len as u64));
            let mut workspace = vec![0; workspace_size(&params)];
            let mut frame = vec![0; compress_bound(len)];
            let written = Compressor::new(&mut workspace)
                .compress(&mut frame, &content, &params)
                .expect("there is room");
            let back = DOORS[0].1(&Input::new(&frame[..written], len + 1));
            assert_eq!(back.as_ref(), Ok(&content), "level {level}, {len} bytes");
        }
    }
}
