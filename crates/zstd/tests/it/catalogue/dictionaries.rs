//! Frames that need a dictionary.

use super::{Builder, Dictionary, List, letters, literals, pattern, sequence};
use crate::assemble::{Coding, Counts, Header, Literals, Sections};
use crate::generator::Start;
use zstd::Error;

const ID: u32 = 0x0102_0304;
const REPEATS: [u64; 3] = [10, 20, 30];

/// The content of both dictionaries.
pub(super) fn content() -> Vec<u8> {
    [
        &letters(100, 12)[..],
        b"the quick brown fox jumps over the lazy dog",
        &letters(57, 5),
    ]
    .concat()
}

fn tables() -> [Counts; 3] {
    [
        Counts::near(5, &[2, 2, 3, 8, 1, 1, 1, 1]),
        Counts::near(7, &[5, 4, 9, 30, 1, 1, 1, 1]),
        Counts::near(6, &[5, 4, 9, 1, 1]),
    ]
}

/// A formatted dictionary: tables of offsets, match lengths, literal lengths; repeat offsets 10,
/// 20, 30.
pub(super) fn formatted() -> Vec<u8> {
    let mut bytes = 0xEC30_A437_u32.to_le_bytes().to_vec();
    bytes.extend(ID.to_le_bytes());
    bytes.extend(literals::small().describe());
    for table in tables() {
        bytes.extend(table.describe());
    }
    for repeat in REPEATS {
        bytes.extend((repeat as u32).to_le_bytes());
    }
    bytes.extend(content());
    bytes
}

/// What the formatted dictionary gives to a frame.
pub(super) fn start() -> Start {
    let [offsets, match_lengths, literal_lengths] = tables();
    let table = |counts| Some(Coding::Fse(counts));
    Start {
        id: ID,
        content: content(),
        repeats: REPEATS,
        huffman: Some(literals::small()),
        tables: [table(literal_lengths), table(offsets), table(match_lengths)],
    }
}

pub(super) fn add(list: &mut List) {
    let content = content();
    let raw = |header| Builder::with_dictionary(header, &content, [1, 4, 8]);
    let sections = Sections::PREDEFINED;
    let reach = content.len() as u64;

    let mut good = |name: &str, about: &str, dictionary, builder: Builder| {
        let (bytes, content) = builder.done();
        list.good(&format!("dictionary-{name}"), about, bytes, content)
            .dictionary = Some(dictionary);
    };
    let start = |header| {
        raw(header).block(
            false,
            &Literals::raw(b"ab"),
            &sections,
            &[sequence(2, 3 + 60, 20)],
        )
    };
    good(
        "raw",
        "A match into a raw dictionary.",
        Dictionary::Raw,
        start(Header::window(0)).raw(true, b"end"),
    );
    good(
        "raw-first-byte",
        "A match from the first byte of a raw dictionary.",
        Dictionary::Raw,
        raw(Header::window(0)).block(
            true,
            &Literals::raw(b""),
            &sections,
            &[sequence(0, 3 + reach, 30)],
        ),
    );
    good(
        "raw-straddles",
        "A match that begins in the dictionary and ends in the frame.",
        Dictionary::Raw,
        raw(Header::window(0)).block(
            true,
            &Literals::raw(b"abcdefgh"),
            &sections,
            &[sequence(8, 3 + 18, 60)],
        ),
    );
    good(
        "raw-repeat-offset",
        "The repeat offsets start as 1, 4, 8 and reach into a raw dictionary.",
        Dictionary::Raw,
        raw(Header::window(0)).block(true, &Literals::raw(b"a"), &sections, &[sequence(1, 3, 9)]),
    );
    good(
        "raw-unused",
        "A frame that does not use the dictionary it is given.",
        Dictionary::Raw,
        raw(Header::single(5)).raw(true, b"hello"),
    );
    good(
        "raw-position-window",
        "A match into the dictionary when the content has just reached the window.",
        Dictionary::Raw,
        raw(Header::window(0)).raw(false, &pattern(1024)).block(
            true,
            &Literals::raw(b""),
            &sections,
            &[sequence(0, 3 + 1024 + 50, 3)],
        ),
    );
    good(
        "single-segment",
        "A match into the dictionary in a single segment, from beyond the content size.",
        Dictionary::Raw,
        raw(Header::single(40)).block(
            true,
            &Literals::raw(b"ab"),
            &sections,
            &[sequence(2, 3 + reach, 38)],
        ),
    );

    let with_id = |flag| Header {
        dictionary_flag: flag,
        dictionary: ID,
        ..Header::window(0)
    };
    let formatted = |header| Builder::with_dictionary(header, &content, REPEATS);
    good(
        "formatted",
        "A match into a formatted dictionary that the frame names.",
        Dictionary::Formatted,
        formatted(with_id(3)).block(
            true,
            &Literals::raw(b"ab"),
            &sections,
            &[sequence(2, 3 + 60, 20)],
        ),
    );
    good(
        "formatted-unnamed",
        "The frame does not name the dictionary that it needs.",
        Dictionary::Formatted,
        formatted(Header::window(0)).block(
            true,
            &Literals::raw(b"ab"),
            &sections,
            &[sequence(2, 3 + 60, 20)],
        ),
    );
    for value in 1..=3 {
        good(
            &format!("formatted-repeat-offset-{value}"),
            &format!("Repeat offset {value} comes from the dictionary."),
            Dictionary::Formatted,
            formatted(with_id(3)).block(
                true,
                &Literals::raw(b"ab"),
                &sections,
                &[sequence(2, value, 20)],
            ),
        );
    }
    let [offsets, match_lengths, literal_lengths] = tables();
    let again = |counts| Coding::Repeat(Box::new(Coding::Fse(counts)));
    let repeat = || Sections {
        literal_lengths: again(literal_lengths.clone()),
        offsets: again(offsets.clone()),
        match_lengths: again(match_lengths.clone()),
    };
    let sequences = [
        sequence(2, 3 + 5, 6),
        sequence(2, 3 + 12, 6),
        sequence(1, 1, 3),
    ];
    good(
        "formatted-repeat-tables",
        "The first sequences repeat the tables of the dictionary.",
        Dictionary::Formatted,
        formatted(with_id(3)).block(true, &Literals::raw(b"abcdefg"), &repeat(), &sequences),
    );
    let treeless = Literals::Treeless {
        format: 0,
        huffman: literals::small(),
        bytes: letters(40, 4),
    };
    good(
        "formatted-treeless",
        "The first literals use the Huffman table of the dictionary.",
        Dictionary::Formatted,
        formatted(with_id(3)).literals(true, &treeless),
    );
    good(
        "formatted-all",
        "Tables, repeat offsets and content of the dictionary, after a raw block.",
        Dictionary::Formatted,
        formatted(with_id(3))
            .raw(false, b"raw")
            .block(false, &treeless, &repeat(), &sequences)
            .block(true, &treeless, &repeat(), &sequences),
    );

    let mut bad = |name: &str, about: &str, dictionary, bytes, error| {
        list.bad(&format!("dictionary-{name}"), about, bytes, error)
            .dictionary = Some(dictionary);
    };
    bad(
        "raw-before-first-byte",
        "A match from one byte before the dictionary.",
        Dictionary::Raw,
        raw(Header::window(0)).forged_sequences(
            &Literals::raw(b""),
            &sections,
            &[sequence(0, 3 + reach + 1, 30)],
        ),
        Error::Corruption,
    );
    bad(
        "raw-position-over-window",
        "A match into the dictionary when the content is longer than the window.",
        Dictionary::Raw,
        raw(Header::window(0))
            .raw(false, &pattern(1024))
            .raw(false, b"x")
            .forged_sequences(
                &Literals::raw(b""),
                &sections,
                &[sequence(0, 3 + 1025 + 50, 3)],
            ),
        Error::Corruption,
    );
    bad(
        "raw-repeat-tables",
        "The first sequences repeat tables, and a raw dictionary has none.",
        Dictionary::Raw,
        raw(Header::window(0)).forged_sequences(&Literals::raw(b"abcdefg"), &repeat(), &sequences),
        Error::Corruption,
    );
    let other = Header {
        dictionary: ID + 1,
        ..with_id(3)
    };
    bad(
        "formatted-other-id",
        "The frame names another dictionary.",
        Dictionary::Formatted,
        raw(other).raw(true, b"hello").done().0,
        Error::DictionaryWrong,
    );
    let frame = raw(with_id(3)).raw(true, b"hello").done().0;
    bad(
        "raw-but-named",
        "The frame names a dictionary and is given a raw one.",
        Dictionary::Raw,
        frame,
        Error::DictionaryWrong,
    );
}
