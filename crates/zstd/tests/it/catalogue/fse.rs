//! FSE table descriptions of sequences sections.

use super::{Builder, List, pattern, sequence};
use crate::assemble::{Coding, Counts, ForwardBits, Header, Literals, Sections, Sequence};
use zstd::Error;

pub(super) fn add(list: &mut List) {
    good(list);
    bad(list);
}

/// Sequences of short codes: literal lengths 0 to 3, offsets 4 to 7, lengths 3 to 6.
fn some(count: usize) -> Vec<Sequence> {
    (0..count as u32)
        .map(|i| sequence(1 + i % 3, u64::from(4 + i % 4), 3 + i % 4))
        .collect()
}

fn good(list: &mut List) {
    let mut add = |name: &str, about: &str, sections: &Sections, sequences: &[Sequence]| {
        let needed: usize = sequences.iter().map(|s| s.literals as usize).sum();
        let (bytes, content) = Builder::new(Header::window(7))
            .raw(false, &pattern(64))
            .block(
                true,
                &Literals::raw(&pattern(needed + 3)),
                sections,
                sequences,
            )
            .done();
        list.good(&format!("fse-{name}"), about, bytes, content);
    };
    for (accuracy, name) in [(5, "least"), (8, "offsets-most"), (9, "most")] {
        let lengths = Coding::Fse(Counts::near(accuracy, &[1, 30, 20, 10, 1, 1]));
        let sections = Sections {
            literal_lengths: lengths.clone(),
            match_lengths: lengths,
            offsets: Coding::Fse(Counts::near(accuracy.min(8), &[1, 5, 90, 3])),
        };
        add(
            &format!("accuracy-{name}"),
            &format!("Tables of accuracy {accuracy} (offsets at most 8)."),
            &sections,
            &some(200),
        );
    }
    let less = Coding::Fse(Counts {
        accuracy: 5,
        counts: vec![-1; 32],
    });
    let sections = Sections {
        offsets: less.clone(),
        literal_lengths: less.clone(),
        match_lengths: less,
    };
    add(
        "all-less-than-1",
        "Every one of 32 symbols has the probability \"less than 1\".",
        &sections,
        &some(50),
    );
    let mut counts = vec![0; 36];
    counts[1] = 31;
    counts[35] = 1;
    let zeros = Coding::Fse(Counts {
        accuracy: 5,
        counts,
    });
    let sections = Sections {
        literal_lengths: zeros,
        ..Sections::PREDEFINED
    };
    let ones: Vec<Sequence> = (0..30).map(|_| sequence(1, 4, 5)).collect();
    add(
        "zero-run-of-33",
        "A run of 33 symbols without probability, in steps of three.",
        &sections,
        &ones,
    );
    for zeros in 1..8 {
        let mut counts = vec![0; zeros + 2];
        counts[0] = 20;
        counts[zeros + 1] = 12;
        let sections = Sections {
            match_lengths: Coding::Fse(Counts {
                accuracy: 5,
                counts,
            }),
            ..Sections::PREDEFINED
        };
        let sequences = [
            sequence(2, 5, 3),
            sequence(1, 6, 4 + zeros as u32),
            sequence(0, 7, 3),
        ];
        add(
            &format!("zero-run-of-{zeros}"),
            &format!("A run of {zeros} symbols without probability."),
            &sections,
            &sequences,
        );
    }
    let mut counts = vec![0; 32];
    counts[2] = 31;
    counts[31] = 1;
    let sections = Sections {
        offsets: Coding::Fse(Counts {
            accuracy: 5,
            counts,
        }),
        ..Sections::PREDEFINED
    };
    add(
        "offset-code-31-unused",
        "The offset table has a cell for code 31, which no sequence uses.",
        &sections,
        &some(20),
    );
    let sections = Sections {
        offsets: Coding::Fse(Counts {
            accuracy: 5,
            counts: vec![0, 0, 32],
        }),
        ..Sections::PREDEFINED
    };
    add(
        "one-symbol",
        "A table in which one symbol has all cells: states take no bits.",
        &sections,
        &some(20),
    );
    let mut counts = vec![1; 53];
    counts[0] = 512 - 52;
    let sections = Sections {
        match_lengths: Coding::Fse(Counts {
            accuracy: 9,
            counts,
        }),
        ..Sections::PREDEFINED
    };
    add(
        "53-match-lengths",
        "All 53 match length codes have probabilities.",
        &sections,
        &some(60),
    );
}

fn bad(list: &mut List) {
    let mut add = |name: &str, about: &str, modes: u8, tables: Vec<u8>| {
        let stream = [0xA5; 12];
        let body = [
            Literals::raw(&pattern(20)).bytes(),
            vec![2, modes],
            tables,
            stream.to_vec(),
            vec![1],
        ]
        .concat();
        let frame = Builder::new(Header::window(7))
            .raw(false, &pattern(64))
            .forged(&body);
        list.bad(&format!("fse-{name}"), about, frame, Error::Corruption);
    };
    for (name, shift, accuracy) in [
        ("literal-lengths", 6, 10),
        ("offsets", 4, 9),
        ("match-lengths", 2, 10),
    ] {
        let table = Counts::near(accuracy, &[1, 1]).describe();
        add(
            &format!("accuracy-{name}"),
            &format!(
                "A table of accuracy {accuracy} for {}, one too many.",
                name.replace('-', " ")
            ),
            2 << shift,
            table,
        );
        add(
            &format!("rle-{name}"),
            &format!(
                "RLE for {}, with a code that does not exist.",
                name.replace('-', " ")
            ),
            1 << shift,
            vec![match shift {
                6 => 36,
                4 => 32,
                _ => 53,
            }],
        );
    }
    let mut counts = vec![1; 37];
    counts[0] = 64 - 36;
    add(
        "37-literal-lengths",
        "A table with a 37th literal length code.",
        2 << 6,
        Counts {
            accuracy: 6,
            counts,
        }
        .describe(),
    );
    let mut counts = vec![1; 54];
    counts[0] = 64 - 53;
    add(
        "54-match-lengths",
        "A table with a 54th match length code.",
        2 << 2,
        Counts {
            accuracy: 6,
            counts,
        }
        .describe(),
    );
    let mut counts = vec![1; 33];
    counts[0] = 64 - 32;
    add(
        "33-offsets",
        "A table with a 33rd offset code.",
        2 << 4,
        Counts {
            accuracy: 6,
            counts,
        }
        .describe(),
    );
    let mut zeros = ForwardBits::default();
    zeros.push(0, 4);
    zeros.push(1, 5); // count 0, in the five bits of a low value
    for _ in 0..20 {
        zeros.push(3, 2);
    }
    add(
        "zero-run-past-last-symbol",
        "A run of symbols without probability that goes past the last one.",
        2 << 4,
        zeros.bytes(),
    );
    add(
        "sum-over",
        "Counts that exceed the table: 31 and then 2 of 32 cells.",
        2 << 4,
        Counts {
            accuracy: 5,
            counts: vec![31, 2],
        }
        .describe(),
    );
    // Found by damaging frames: the description wants six bytes more than the block has.
    let table = [0x14, 0xE0, 0xFF, 0x7F, 0xBE, 0x07, 0x00, 0x04];
    let body = [&[0x15, 0, 0x18, 1, 0x58, 0, 1], &table[..]].concat();
    let frame = Builder::new(Header::window(0))
        .raw(false, &pattern(300))
        .forged(&body);
    list.bad("fse-table-beyond-block", "The description of a table goes on where its block has ended, after ones that fill most of it.", frame, Error::Corruption);
    let short = Counts::near(6, &[1; 30]).describe();
    let body = [
        Literals::raw(&pattern(20)).bytes(),
        vec![2, 2 << 6],
        short[..3].to_vec(),
    ]
    .concat();
    let frame = Builder::new(Header::window(7))
        .raw(false, &pattern(64))
        .forged(&body);
    list.bad(
        "fse-table-cut",
        "The block ends within a table.",
        frame,
        Error::Corruption,
    );
}
