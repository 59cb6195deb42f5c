//! Literals sections: every type and size format at the edges of what it can say.

use super::{Builder, List, letters, pattern, sequence};
use crate::assemble::{Header, Huffman, Literals, Sections};
use zstd::Error;

/// A table of `a` to `d`.
pub(super) fn small() -> Huffman {
    Huffman::new(&[&[0; 97][..], &[3, 2, 1, 1]].concat())
}

fn compressed(format: u8, len: usize) -> Literals {
    let huffman = small();
    Literals::Compressed {
        format,
        table: huffman.describe(),
        huffman,
        bytes: letters(len, 4),
    }
}

pub(super) fn add(list: &mut List) {
    plain(list);
    streams(list);
    forged(list);
    treeless(list);
}

fn plain(list: &mut List) {
    for (format, len) in [
        (0, 1),
        (0, 30),
        (0, 31),
        (1, 0),
        (1, 31),
        (1, 32),
        (1, 4095),
        (3, 0),
        (3, 31),
        (3, 4096),
    ] {
        let literals = Literals::Raw {
            format,
            bytes: pattern(len),
        };
        let (bytes, content) = Builder::new(Header::window(7))
            .literals(true, &literals)
            .done();
        list.good(
            &format!("literals-raw-{len}-format-{format}"),
            &format!("{len} raw literals in size format {format}."),
            bytes,
            content,
        );
    }
    for (format, len) in [(0, 0), (0, 31), (1, 31), (1, 4095), (3, 4096), (3, 131_072)] {
        let literals = Literals::Rle {
            format,
            byte: b'l',
            len,
        };
        let (bytes, content) = Builder::new(Header::window(7))
            .literals(true, &literals)
            .done();
        list.good(
            &format!("literals-rle-{len}-format-{format}"),
            &format!("{len} times one literal in size format {format}."),
            bytes,
            content,
        );
    }
    let literals = Literals::Rle {
        format: 3,
        byte: b'm',
        len: 100_000,
    };
    let (bytes, content) = Builder::new(Header::window(7))
        .block(
            true,
            &literals,
            &Sections::PREDEFINED,
            &[sequence(10, 3 + 9, 30)],
        )
        .done();
    list.good(
        "literals-rle-100000-behind-a-match",
        "A match near the start of a block, and more literals behind it than are kept before they are written.",
        bytes,
        content,
    );
    for (kind, name) in [(0, "raw"), (1, "rle")] {
        for len in [131_073, 0xF_FFFF] {
            let literals = Literals::Forged {
                kind,
                format: 3,
                regenerated: len,
                compressed: 0,
                body: vec![1, 0],
                bytes: Vec::new(),
            };
            let bytes = Builder::new(Header::window(20)).forged(&literals.bytes());
            list.bad(
                &format!("literals-{name}-{len}"),
                &format!("{len} {name} literals: more than a block holds."),
                bytes,
                Error::Corruption,
            );
        }
        let literals = Literals::Forged {
            kind,
            format: 1,
            regenerated: 1025,
            compressed: 0,
            body: pattern(1000),
            bytes: Vec::new(),
        };
        let bytes = Builder::new(Header::window(0)).forged(&literals.bytes());
        list.bad(
            &format!("literals-{name}-over-window"),
            "1025 literals in a window of 1024.",
            bytes,
            Error::Corruption,
        );
    }
    let bytes = Builder::new(Header::window(7)).forged(&Literals::raw(&pattern(50)).bytes()[..40]);
    list.bad(
        "literals-raw-cut",
        "Raw literals that are longer than their block.",
        bytes,
        Error::Corruption,
    );
    let bytes = Builder::new(Header::window(7)).forged(&[5 << 3 | 1]);
    list.bad(
        "literals-rle-cut",
        "RLE literals whose byte is missing.",
        bytes,
        Error::Corruption,
    );
    let bytes = Builder::new(Header::window(7)).forged(&[0x0C, 0]);
    list.bad(
        "literals-header-cut",
        "A literals header that is longer than its block.",
        bytes,
        Error::Corruption,
    );
}

fn streams(list: &mut List) {
    for (format, len) in [
        (0, 1),
        (0, 2),
        (0, 1023),
        (1, 6),
        (1, 7),
        (1, 8),
        (1, 9),
        (1, 1023),
        (2, 6),
        (2, 1024),
        (2, 16_383),
        (3, 6),
        (3, 16_384),
        (3, 131_072),
    ] {
        let huffman = small();
        let literals = match len {
            // Only the most frequent letter: one bit each, to keep the file small.
            131_072 => Literals::Compressed {
                format,
                table: huffman.describe(),
                huffman,
                bytes: vec![b'a'; len],
            },
            _ => compressed(format, len),
        };
        let count = if format == 0 {
            "one stream"
        } else {
            "four streams"
        };
        let (bytes, content) = Builder::new(Header::window(7))
            .literals(true, &literals)
            .done();
        list.good(
            &format!("literals-huffman-{len}-format-{format}"),
            &format!("{len} literals in {count}, size format {format}."),
            bytes,
            content,
        );
    }
    // Rare symbols only: the section is larger than the literals.
    let weights: Vec<u8> = [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1].into();
    let huffman = Huffman::new(&[&[0; 97][..], &weights].concat());
    let bytes = vec![b'l'; 300];
    let literals = Literals::Compressed {
        format: 1,
        table: huffman.describe(),
        huffman,
        bytes,
    };
    let (bytes, content) = Builder::new(Header::window(7))
        .literals(true, &literals)
        .done();
    list.good(
        "literals-huffman-expands",
        "Compressed literals that take more bytes than they stand for.",
        bytes,
        content,
    );
}

fn forged(list: &mut List) {
    let huffman = small();
    let table = huffman.describe();
    let text = letters(40, 4);
    let stream = huffman.stream(&text).expect("letters have codes");
    let forge = |format, regenerated, body: Vec<u8>| {
        let literals = Literals::Forged {
            kind: 2,
            format,
            regenerated,
            compressed: body.len(),
            body,
            bytes: Vec::new(),
        };
        Builder::new(Header::window(7)).forged(&[literals.bytes(), vec![0]].concat())
    };
    let one = |regenerated, stream: &[u8]| forge(0, regenerated, [&table[..], stream].concat());
    list.bad(
        "literals-0-in-one-stream",
        "No literals in a compressed section.",
        one(0, &stream),
        Error::Corruption,
    );
    list.bad(
        "literals-one-too-few",
        "A stream holds one literal more than the header says.",
        one(39, &stream),
        Error::Corruption,
    );
    list.bad(
        "literals-one-too-many",
        "A stream holds one literal less than the header says.",
        one(41, &stream),
        Error::Corruption,
    );
    let mut unended = stream.clone();
    *unended.last_mut().expect("a byte") = 0;
    list.bad(
        "literals-no-end-mark",
        "A stream whose last byte is 0: there is no end mark.",
        one(40, &unended),
        Error::Corruption,
    );
    list.bad(
        "literals-empty-stream",
        "A table and no stream.",
        one(40, &[]),
        Error::Corruption,
    );
    let longer = [&[0][..], &stream].concat();
    list.bad(
        "literals-leftover-byte",
        "A stream with a byte that is never read.",
        one(40, &longer),
        Error::Corruption,
    );
    let mut leftover = crate::assemble::BackwardBits::default();
    for _ in 0..40 {
        leftover.push(1, 1); // the code of `a`
    }
    leftover.push(0, 1);
    list.bad(
        "literals-leftover-bit",
        "A stream with a bit that is never read.",
        one(40, &leftover.bytes()),
        Error::Corruption,
    );

    let four = |regenerated: usize, streams: [&[u8]; 4]| {
        let jump = streams[..3]
            .iter()
            .flat_map(|s| (s.len() as u16).to_le_bytes())
            .collect::<Vec<u8>>();
        forge(
            1,
            regenerated,
            [table.clone(), jump, streams.concat()].concat(),
        )
    };
    let part = |len| {
        huffman
            .stream(&letters(len, 4))
            .expect("letters have codes")
    };
    list.bad(
        "literals-5-in-four-streams",
        "Five literals in four streams: six are the least.",
        four(5, [&part(2), &part(2), &part(2), &part(1)]),
        Error::Corruption,
    );
    list.bad(
        "literals-four-streams-split",
        "Four streams of 10, 10, 11 and 9 literals instead of 10 each.",
        four(40, [&part(10), &part(10), &part(11), &part(9)]),
        Error::Corruption,
    );
    list.bad(
        "literals-four-streams-empty-one",
        "The second of four streams is empty.",
        four(40, [&part(10), &[], &part(10), &part(10)]),
        Error::Corruption,
    );
    list.bad(
        "literals-four-streams-empty-last",
        "The last of four streams is empty.",
        four(40, [&part(10), &part(10), &part(10), &[]]),
        Error::Corruption,
    );
    let mut leftover = crate::assemble::BackwardBits::default();
    for _ in 0..250 {
        leftover.push(1, 1); // the code of `a`
    }
    leftover.push(0, 1);
    let long = part(250);
    list.bad(
        "literals-four-streams-leftover-bit",
        "1000 literals in four streams, the second of which has a bit that is never read.",
        four(1000, [&long, &leftover.bytes(), &long, &long]),
        Error::Corruption,
    );
    let mut bytes = [vec![0xFF; 6], part(40)].concat();
    list.bad(
        "literals-jump-table-past-end",
        "A jump table that points past the section.",
        forge(1, 40, [table.clone(), bytes.clone()].concat()),
        Error::Corruption,
    );
    bytes.truncate(5);
    list.bad(
        "literals-jump-table-cut",
        "A section too short for its jump table.",
        forge(1, 40, [table.clone(), bytes].concat()),
        Error::Corruption,
    );

    for (format, len) in [(3, 131_073), (3, 0x3_FFFF)] {
        list.bad(
            &format!("literals-huffman-{len}"),
            &format!("{len} compressed literals: more than a block holds."),
            forge(format, len, [table.clone(), stream.clone()].concat()),
            Error::Corruption,
        );
    }
    let literals = Literals::Forged {
        kind: 2,
        format: 0,
        regenerated: 40,
        compressed: 1000,
        body: [table, stream].concat(),
        bytes: Vec::new(),
    };
    let bytes = Builder::new(Header::window(7)).forged(&[literals.bytes(), vec![0]].concat());
    list.bad(
        "literals-huffman-cut",
        "Compressed literals that are longer than their block.",
        bytes,
        Error::Corruption,
    );
}

fn treeless(list: &mut List) {
    let treeless = |format, len| Literals::Treeless {
        format,
        huffman: small(),
        bytes: letters(len, 4),
    };
    for (format, len, name) in [(0, 40, "one"), (1, 40, "four")] {
        let (bytes, content) = Builder::new(Header::window(7))
            .literals(false, &compressed(0, 50))
            .literals(true, &treeless(format, len))
            .done();
        list.good(
            &format!("treeless-{name}-stream"),
            &format!("The table of the block before, {name} stream(s)."),
            bytes,
            content,
        );
    }
    let (bytes, content) = Builder::new(Header::window(7))
        .literals(false, &compressed(0, 50))
        .literals(false, &Literals::raw(b"raw"))
        .raw(false, b"a raw block")
        .literals(false, &Literals::rle(b'x', 100))
        .rle(false, b'y', 9)
        .literals(true, &treeless(0, 40))
        .done();
    list.good(
        "treeless-after-others",
        "Raw and RLE literals and blocks in between keep the table.",
        bytes,
        content,
    );
    let bytes =
        Builder::new(Header::window(7)).forged(&[treeless(0, 40).bytes(), vec![0]].concat());
    list.bad(
        "treeless-first",
        "Treeless literals in the first block.",
        bytes,
        Error::Corruption,
    );
    let bytes = Builder::new(Header::window(7))
        .literals(false, &Literals::raw(b"abc"))
        .forged(&[treeless(0, 40).bytes(), vec![0]].concat());
    list.bad(
        "treeless-after-raw",
        "Treeless literals after raw ones: there is no table yet.",
        bytes,
        Error::Corruption,
    );
    let other = Huffman::new(&[&[0; 97][..], &[1, 1]].concat());
    let literals = Literals::Compressed {
        format: 0,
        table: other.describe(),
        huffman: other,
        bytes: letters(30, 2),
    };
    let (bytes, content) = Builder::new(Header::window(7))
        .literals(false, &literals)
        .block(
            false,
            &compressed(0, 20),
            &Sections::PREDEFINED,
            &[sequence(10, 3 + 9, 30)],
        )
        .literals(true, &treeless(1, 200))
        .done();
    list.good(
        "treeless-takes-the-latest",
        "Treeless literals use the latest of two tables.",
        bytes,
        content,
    );
}
