//! Sequences sections: counts, modes, repeat offsets, lengths, distances.

use super::{Builder, List, letters, pattern, sequence};
use crate::assemble::{
    BackwardBits, Coding, Counts, Header, Literals, Sections, Sequence, sequence_count,
};
use zstd::Error;

pub(super) fn add(list: &mut List) {
    counts(list);
    modes(list);
    repeat_offsets(list);
    distances(list);
    lengths(list);
    streams(list);
}

/// All codes once and for all: no literals, the second repeat offset, length 3. It takes no bits at
/// all.
fn bare() -> Sections {
    Sections {
        literal_lengths: Coding::Rle(0),
        offsets: Coding::Rle(0),
        match_lengths: Coding::Rle(0),
    }
}

fn counts(list: &mut List) {
    for count in [1, 127, 128, 129, 0x7EFF, 0x7F00, 0x7F01, 43_690] {
        let sequences = vec![sequence(0, 1, 3); count];
        let (bytes, content) = Builder::new(Header::window(7))
            .raw(false, &pattern(10))
            .block(true, &Literals::raw(b""), &bare(), &sequences)
            .done();
        list.good(
            &format!("count-{count}"),
            &format!(
                "{count} sequences in the shortest form of the count, none of which takes a bit."
            ),
            bytes,
            content,
        );
    }
    let zero = |count: &[u8]| [Literals::raw(b"abc").bytes(), count.to_vec()].concat();
    list.good(
        "count-0-in-two-bytes",
        "No sequences, the count in two bytes.",
        Builder::new(Header::window(0)).forged(&zero(&[0x80, 0])),
        b"abc",
    );
    let forge = |count: Vec<u8>| {
        let body = [
            Literals::raw(b"").bytes(),
            count,
            vec![bare().modes(), 0, 0, 0, 1],
        ]
        .concat();
        Builder::new(Header::window(7))
            .raw(false, &pattern(10))
            .forged(&body)
    };
    let content = |count| {
        let sequences = vec![sequence(0, 1, 3); count];
        Builder::new(Header::window(7))
            .raw(false, &pattern(10))
            .block(true, &Literals::raw(b""), &bare(), &sequences)
            .done()
            .1
    };
    list.good(
        "count-5-in-two-bytes",
        "Five sequences, the count in two bytes.",
        forge(vec![0x80, 5]),
        content(5),
    );
    list.bad(
        "count-43691",
        "One sequence more than fits in a block.",
        forge(sequence_count(43_691)),
        Error::Corruption,
    );
    list.bad(
        "count-98047",
        "The largest count there can be: 0x7F00 + 65535.",
        forge(vec![255, 255, 255]),
        Error::Corruption,
    );
    list.bad(
        "count-0-and-more",
        "Bytes after a count of 0.",
        Builder::new(Header::window(0)).forged(&zero(&[0, 0])),
        Error::Corruption,
    );
    list.bad(
        "count-0-in-two-bytes-and-more",
        "Bytes after a count of 0 in two bytes.",
        Builder::new(Header::window(0)).forged(&zero(&[0x80, 0, 0])),
        Error::Corruption,
    );
    list.bad(
        "count-cut-1",
        "The second byte of the count is missing.",
        Builder::new(Header::window(0)).forged(&zero(&[0x81])),
        Error::Corruption,
    );
    list.bad(
        "count-cut-2",
        "The third byte of the count is missing.",
        Builder::new(Header::window(0)).forged(&zero(&[255, 0])),
        Error::Corruption,
    );
    list.bad(
        "count-missing",
        "A block that ends with its literals.",
        Builder::new(Header::window(0)).forged(&zero(&[])),
        Error::Corruption,
    );
    list.bad(
        "modes-missing",
        "A block that ends with the count.",
        Builder::new(Header::window(0)).forged(&zero(&[1])),
        Error::Corruption,
    );
    list.bad(
        "tables-missing",
        "A block that ends with the modes.",
        Builder::new(Header::window(0)).forged(&zero(&[1, 0x54])),
        Error::Corruption,
    );
    list.bad(
        "stream-missing",
        "A block that ends with its tables.",
        Builder::new(Header::window(0)).forged(&zero(&[1, 0x54, 0, 0, 0])),
        Error::Corruption,
    );
}

fn modes(list: &mut List) {
    let sequences = [sequence(2, 3 + 5, 6), sequence(2, 3 + 7, 6)];
    for bits in 1..4 {
        let mut body = [
            Literals::raw(b"abcdef").bytes(),
            Sections::PREDEFINED.bytes(&sequences).expect("codes"),
        ]
        .concat();
        body[8] |= bits;
        let frame = Builder::new(Header::window(0))
            .raw(false, &pattern(30))
            .forged(&body);
        list.bad(
            &format!("reserved-mode-bits-{bits}"),
            &format!("The reserved bits of the modes are {bits}."),
            frame,
            Error::Corruption,
        );
    }

    let fse = || Sections {
        literal_lengths: Coding::Fse(Counts::near(6, &[5, 4, 9, 1])),
        offsets: Coding::Fse(Counts::near(5, &[2, 2, 3, 8])),
        match_lengths: Coding::Fse(Counts::near(7, &[5, 4, 9, 30])),
    };
    // 2 literals, offset code 3, length 6: one code of each kind, so that RLE can hold them, too.
    let rle = || Sections {
        literal_lengths: Coding::Rle(2),
        offsets: Coding::Rle(3),
        match_lengths: Coding::Rle(3),
    };
    let again = |coding: &Coding| Coding::Repeat(Box::new(coding.clone()));
    let pick = |which: usize, kind: usize, from: &Sections, other: &Sections| {
        let take = |index, a: &Coding, b: &Coding| {
            if which == index || which == 3 {
                a.clone()
            } else {
                b.clone()
            }
        };
        let _ = kind;
        Sections {
            literal_lengths: take(0, &from.literal_lengths, &other.literal_lengths),
            offsets: take(1, &from.offsets, &other.offsets),
            match_lengths: take(2, &from.match_lengths, &other.match_lengths),
        }
    };
    let names = ["literal-lengths", "offsets", "match-lengths", "all"];
    for (kind, (mode, sections)) in [
        ("rle", rle()),
        ("fse", fse()),
        ("predefined", Sections::PREDEFINED),
    ]
    .into_iter()
    .enumerate()
    {
        for (which, name) in names.iter().enumerate() {
            let first = pick(which, kind, &sections, &Sections::PREDEFINED);
            let repeat = Sections {
                literal_lengths: again(&sections.literal_lengths),
                offsets: again(&sections.offsets),
                match_lengths: again(&sections.match_lengths),
            };
            let second = pick(which, kind, &repeat, &Sections::PREDEFINED);
            let literals = Literals::raw(b"abcdef");
            let (bytes, content) = Builder::new(Header::window(0))
                .raw(false, &pattern(30))
                .block(false, &literals, &first, &sequences)
                .block(false, &literals, &second, &sequences)
                .literals(false, &literals) // no sequences: the tables stay
                .rle(false, b'r', 20)
                .block(true, &literals, &second, &sequences)
                .done();
            list.good(
                &format!("repeat-{mode}-{name}"),
                &format!(
                    "{} of mode {mode} in one block, repeated in the next and after others.",
                    name.replace('-', " ")
                ),
                bytes,
                content,
            );
        }
    }
    for (which, name) in names.iter().enumerate() {
        let repeat = Sections {
            literal_lengths: again(&Coding::Predefined),
            offsets: again(&Coding::Predefined),
            match_lengths: again(&Coding::Predefined),
        };
        let sections = pick(which, 0, &repeat, &Sections::PREDEFINED);
        let frame = Builder::new(Header::window(0))
            .raw(false, &pattern(30))
            .forged_sequences(&Literals::raw(b"abcdef"), &sections, &sequences);
        list.bad(
            &format!("repeat-first-{name}"),
            &format!(
                "The first sequences repeat a table of {}.",
                name.replace('-', " ")
            ),
            frame,
            Error::Corruption,
        );
    }
}

fn repeat_offsets(list: &mut List) {
    // Distances 5, 7, 9 are pushed first, so that the repeat offsets are 9, 7, 5.
    let start = [
        sequence(1, 3 + 5, 4),
        sequence(1, 3 + 7, 4),
        sequence(1, 3 + 9, 4),
    ];
    let show = |then: &[Sequence]| {
        // Afterwards the three are shown by matches with literals, each of which only moves to the
        // front.
        let all: Vec<Sequence> = start
            .iter()
            .chain(then)
            .copied()
            .chain((1..=3).map(|i| sequence(1, i, 4)))
            .collect();
        let literals = Literals::raw(&letters(20, 8));
        (all, literals)
    };
    for literals in [1, 0] {
        for value in 1..=3 {
            let (sequences, text) = show(&[sequence(literals, value, 5)]);
            let (bytes, content) = Builder::new(Header::window(0))
                .raw(false, &pattern(30))
                .block(true, &text, &Sections::PREDEFINED, &sequences)
                .done();
            list.good(
                &format!("repeat-offset-{value}-after-{literals}-literals"),
                &format!("Offset value {value} after {literals} literals, then the three repeat offsets in turn."),
                bytes,
                content,
            );
        }
    }
    let mut mixed = Vec::new();
    for i in 0..60u64 {
        mixed.push(sequence((i % 2) as u32, 1 + i * 7 % 3, 3 + (i % 5) as u32));
        if i % 9 == 0 {
            mixed.push(sequence(0, 3 + 11 + i % 4, 4));
        }
    }
    let (bytes, content) = Builder::new(Header::window(7))
        .raw(false, &pattern(200))
        .block(
            true,
            &Literals::raw(&pattern(64)),
            &Sections::PREDEFINED,
            &{
                // "The first one less 1" must not become 0: check with the model and leave such
                // values out.
                let mut model = crate::assemble::Model::new();
                mixed
                    .into_iter()
                    .filter(|s| {
                        let mut ahead = model.clone();
                        let good = ahead
                            .distance(s.offset, s.literals)
                            .is_some_and(|distance| distance < 200);
                        if good {
                            model = ahead;
                        }
                        good
                    })
                    .collect::<Vec<_>>()
            },
        )
        .done();
    list.good(
        "repeat-offsets-mixed",
        "Repeat offsets in every order, with and without literals.",
        bytes,
        content,
    );
    let (bytes, content) = Builder::new(Header::window(0))
        .raw(false, &pattern(30))
        .block(
            true,
            &Literals::raw(b"abcdef"),
            &Sections::PREDEFINED,
            &[
                sequence(1, 3 + 6, 4),
                sequence(1, 3 + 6, 4),
                sequence(1, 2, 4),
                sequence(1, 3, 4),
            ],
        )
        .done();
    list.good(
        "repeat-offset-pushed-twice",
        "An explicit distance is pushed even when it equals the first repeat offset.",
        bytes,
        content,
    );
    let (bytes, content) = Builder::new(Header::window(0))
        .raw(false, &pattern(30))
        .block(
            false,
            &Literals::raw(b"abcdef"),
            &Sections::PREDEFINED,
            &[sequence(1, 3 + 6, 4), sequence(1, 3 + 9, 4)],
        )
        .raw(false, b"raw")
        .rle(false, b'r', 9)
        .literals(false, &Literals::raw(b"literals"))
        .block(
            true,
            &Literals::raw(b"abcdef"),
            &Sections::PREDEFINED,
            &[sequence(1, 2, 5), sequence(1, 1, 5)],
        )
        .done();
    list.good(
        "repeat-offsets-survive-blocks",
        "Raw, RLE and sequence-free blocks leave the repeat offsets alone.",
        bytes,
        content,
    );
    for (value, name) in [(1, "1"), (2, "4"), (3, "8")] {
        let (bytes, content) = Builder::new(Header::window(0))
            .raw(false, &pattern(30))
            .block(
                true,
                &Literals::raw(b"abc"),
                &Sections::PREDEFINED,
                &[sequence(2, value, 20)],
            )
            .done();
        list.good(
            &format!("repeat-offset-starts-{name}"),
            &format!("Repeat offset {value} is {name} at the start of a frame."),
            bytes,
            content,
        );
    }
    let frame = Builder::new(Header::window(0))
        .raw(false, &pattern(30))
        .forged_sequences(
            &Literals::raw(b"abc"),
            &Sections::PREDEFINED,
            &[sequence(0, 3, 4)],
        );
    list.bad(
        "repeat-offset-0",
        "The first repeat offset, 1, less 1: a distance of 0.",
        frame,
        Error::Corruption,
    );
}

fn distances(list: &mut List) {
    // The window is 1 KiB; 2 KiB are there when the last block comes.
    let start = || {
        Builder::new(Header::window(0))
            .raw(false, &pattern(1024))
            .raw(false, &letters(1024, 9))
    };
    let (bytes, content) = start()
        .block(
            true,
            &Literals::raw(b""),
            &Sections::PREDEFINED,
            &[sequence(0, 3 + 1024, 50)],
        )
        .done();
    list.good(
        "distance-window",
        "A distance equal to the window.",
        bytes,
        content,
    );
    let (bytes, content) = start()
        .block(
            true,
            &Literals::raw(b"x"),
            &Sections::PREDEFINED,
            &[sequence(1, 3 + 1024, 900)],
        )
        .done();
    list.good(
        "distance-window-inside",
        "A distance equal to the window in the middle of a block.",
        bytes,
        content,
    );
    let bytes = start().forged_sequences(
        &Literals::raw(b""),
        &Sections::PREDEFINED,
        &[sequence(0, 3 + 1025, 50)],
    );
    list.bad(
        "distance-over-window",
        "A distance one larger than the window, though so much content is there.",
        bytes,
        Error::Corruption,
    );
    let all = |distance: u64| [sequence(0, 3 + distance, 10)];
    let (bytes, content) = Builder::new(Header::window(7))
        .raw(false, &pattern(30))
        .block(true, &Literals::raw(b""), &Sections::PREDEFINED, &all(30))
        .done();
    list.good(
        "distance-to-first-byte",
        "A match from the first byte of the frame.",
        bytes,
        content,
    );
    let bytes = Builder::new(Header::window(7))
        .raw(false, &pattern(30))
        .forged_sequences(&Literals::raw(b""), &Sections::PREDEFINED, &all(31));
    list.bad(
        "distance-before-first-byte",
        "A match from one byte before the frame.",
        bytes,
        Error::Corruption,
    );
    let bytes = Builder::new(Header::window(7)).forged_sequences(
        &Literals::raw(b""),
        &Sections::PREDEFINED,
        &[sequence(0, 1, 3)],
    );
    list.bad(
        "match-first",
        "The frame begins with a match.",
        bytes,
        Error::Corruption,
    );
    for distance in [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33] {
        let (bytes, content) = Builder::new(Header::window(7))
            .raw(false, &pattern(40))
            .block(
                true,
                &Literals::raw(b"xyz"),
                &Sections::PREDEFINED,
                &[sequence(1, 3 + distance, 300), sequence(1, 3 + distance, 3)],
            )
            .done();
        list.good(
            &format!("overlap-{distance}"),
            &format!(
                "A match of 300 bytes at distance {distance}: bytes that it has just written."
            ),
            bytes,
            content,
        );
    }
    for code in [28u64, 31] {
        // The largest distance with this code.
        let sections = Sections {
            offsets: Coding::Rle(code as u8),
            ..Sections::PREDEFINED
        };
        let frame = Builder::new(Header::window(14))
            .raw(false, &pattern(30))
            .forged_sequences(
                &Literals::raw(b"abc"),
                &sections,
                &[sequence(1, (1 << (code + 1)) - 1, 4)],
            );
        list.bad(
            &format!("offset-code-{code}"),
            &format!("An offset of code {code}, far before the frame."),
            frame,
            Error::Corruption,
        );
    }
}

fn lengths(list: &mut List) {
    for (literals, length) in [
        (15, 34),
        (16, 35),
        (17, 36),
        (18, 38),
        (22, 41),
        (24, 43),
        (31, 50),
        (32, 51),
        (48, 83),
        (63, 99),
        (64, 130),
        (127, 131),
        (128, 258),
        (4096, 1027),
        (8191, 2051),
    ] {
        let sections = Sections::PREDEFINED;
        let (bytes, content) = Builder::new(Header::window(7))
            .raw(false, b"start")
            .block(
                true,
                &Literals::rle(b'l', literals as usize),
                &sections,
                &[sequence(literals, 3 + 4, length)],
            )
            .done();
        list.good(
            &format!("lengths-{literals}-{length}"),
            &format!("{literals} literals and a match of {length}: the edges of their codes."),
            bytes,
            content,
        );
    }
    let (bytes, content) = Builder::new(Header::window(7))
        .block(
            true,
            &Literals::rle(b'l', 65_535),
            &Sections::PREDEFINED,
            &[sequence(65_535, 3 + 4, 65_537)],
        )
        .done();
    list.good(
        "lengths-65535-65537",
        "65535 literals (code 34) and a match of 65537 (code 51): a full block.",
        bytes,
        content,
    );
    let (bytes, content) = Builder::new(Header::window(7))
        .block(
            true,
            &Literals::rle(b'l', 131_069),
            &Sections::PREDEFINED,
            &[sequence(131_069, 3 + 4, 3)],
        )
        .done();
    list.good(
        "literal-length-code-35",
        "131069 literals, code 35, and the shortest match.",
        bytes,
        content,
    );
    let (bytes, content) = Builder::new(Header::window(7))
        .block(
            true,
            &Literals::raw(b"l"),
            &Sections::PREDEFINED,
            &[sequence(1, 3 + 1, 131_071)],
        )
        .done();
    list.good(
        "match-length-code-52",
        "A match of 131071, code 52.",
        bytes,
        content,
    );
    let frame = Builder::new(Header::window(7))
        .raw(false, b"start")
        .forged_sequences(
            &Literals::raw(b"abc"),
            &Sections::PREDEFINED,
            &[sequence(4, 3 + 4, 5)],
        );
    list.bad(
        "literals-run-out",
        "A sequence wants four literals of three.",
        frame,
        Error::Corruption,
    );
    let frame = Builder::new(Header::window(7))
        .raw(false, b"start")
        .forged_sequences(
            &Literals::raw(b"abc"),
            &Sections::PREDEFINED,
            &[sequence(3, 3 + 4, 5), sequence(1, 3 + 4, 5)],
        );
    list.bad(
        "literals-run-out-later",
        "The second sequence wants a literal that is no longer there.",
        frame,
        Error::Corruption,
    );
    let frame = Builder::new(Header::window(7))
        .raw(false, b"start")
        .forged_sequences(
            &Literals::raw(b"abc"),
            &Sections::PREDEFINED,
            &[sequence(131_071, 3 + 4, 131_074)],
        );
    list.bad(
        "lengths-largest",
        "The longest literals and the longest match that codes can say.",
        frame,
        Error::Corruption,
    );
}

fn streams(list: &mut List) {
    let literals = Literals::raw(b"abcdef");
    let sequences = [sequence(2, 3 + 5, 6), sequence(2, 3 + 7, 6)];
    let forge = |stream: Vec<u8>| {
        let body = [literals.bytes(), vec![2, 0], stream].concat();
        Builder::new(Header::window(0))
            .raw(false, &pattern(30))
            .forged(&body)
    };
    let bits = || Sections::PREDEFINED.stream(&sequences).expect("codes");
    let good = bits().bytes();
    let mut unended = good.clone();
    *unended.last_mut().expect("a byte") = 0;
    list.bad(
        "sequences-no-end-mark",
        "The bit stream's last byte is 0: there is no end mark.",
        forge(unended),
        Error::Corruption,
    );
    let mut longer = bits();
    longer.push(0, 1);
    list.bad(
        "sequences-leftover-bit",
        "A bit of the stream is never read.",
        forge(longer.bytes()),
        Error::Corruption,
    );
    list.bad(
        "sequences-leftover-byte",
        "A byte of the stream is never read.",
        forge([vec![0], good.clone()].concat()),
        Error::Corruption,
    );
    list.bad(
        "sequences-leftover-8-bytes",
        "Eight bytes of the stream are never read.",
        forge([vec![0; 8], good.clone()].concat()),
        Error::Corruption,
    );
    list.bad(
        "sequences-cut",
        "The stream lacks its first byte, which is read last.",
        forge(good[1..].to_vec()),
        Error::Corruption,
    );
    let mut few = BackwardBits::default();
    few.push(3, 4);
    list.bad(
        "sequences-states-cut",
        "The stream ends within the first states.",
        forge(few.bytes()),
        Error::Corruption,
    );
    let body = [literals.bytes(), vec![3, 0], good].concat();
    let frame = Builder::new(Header::window(0))
        .raw(false, &pattern(30))
        .forged(&body);
    list.bad(
        "sequences-one-too-many",
        "The count says three sequences, the stream holds two.",
        frame,
        Error::Corruption,
    );
}
