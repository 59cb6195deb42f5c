//! Huffman table descriptions.

use super::{Builder, List, pattern};
use crate::assemble::{BackwardBits, Counts, Header, Huffman, Literals};
use zstd::Error;

/// A block of these literals under this table.
fn block(table: Vec<u8>, huffman: &Huffman, bytes: Vec<u8>) -> Builder {
    let format = if bytes.len() < 64 { 0 } else { 2 };
    let literals = Literals::Compressed {
        format,
        table,
        huffman: huffman.clone(),
        bytes,
    };
    Builder::new(Header::window(7)).literals(true, &literals)
}

pub(super) fn add(list: &mut List) {
    good(list);
    bad(list);
}

fn good(list: &mut List) {
    let mut add = |name: &str, about: &str, table: Vec<u8>, huffman: &Huffman, bytes: Vec<u8>| {
        let (frame, content) = block(table, huffman, bytes).done();
        list.good(&format!("huffman-{name}"), about, frame, content);
    };
    let two = Huffman::new(&[1, 1]);
    add(
        "two-symbols",
        "The smallest table: two symbols of one bit, one weight written.",
        two.describe_direct(),
        &two,
        vec![0, 1, 1, 0, 1],
    );
    let two = Huffman::new(&[0, 0, 0, 0, 0, 1, 0, 0, 1]);
    add(
        "zeros-before-last",
        "Symbols without a code stand before the last one.",
        two.describe_direct(),
        &two,
        vec![5, 8, 8, 5],
    );
    let flat = Huffman::new(&[1; 128]);
    add(
        "flat-7-bits",
        "128 symbols of seven bits, written direct.",
        flat.describe_direct(),
        &flat,
        pattern(500).iter().map(|b| b & 127).collect(),
    );
    let mut weights = [2; 129];
    weights[0] = 1;
    weights[128] = 1;
    let most = Huffman::new(&weights);
    add(
        "128-direct-weights",
        "128 weights written direct, the most there can be: 129 symbols.",
        most.describe_direct(),
        &most,
        (0..=128).chain(0..=128).collect(),
    );
    let deep = Huffman::new(&[11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1]);
    add(
        "11-bits",
        "Codes of 1 to 11 bits, the longest there can be.",
        deep.describe_direct(),
        &deep,
        (0..12).chain((0..12).rev()).cycle().take(200).collect(),
    );
    add(
        "11-bits-fse",
        "The same table, its weights as FSE.",
        deep.describe_fse(6).expect("fits"),
        &deep,
        (0..12).cycle().take(100).collect(),
    );
    let mut weights = [1; 256];
    weights[0] = 5;
    weights[1..31].fill(2);
    weights[31..61].fill(2);
    // 16 + 60 * 2 + rest: 256 symbols need 255 written weights, which only FSE can hold.
    let sum = |weights: &[u8]| weights.iter().map(|w| 1u32 << (w - 1)).sum::<u32>();
    while !sum(&weights).is_power_of_two() {
        let next = weights
            .iter()
            .position(|w| *w == 1)
            .expect("weights of 1 are left");
        weights[next] = 2;
    }
    let full = Huffman::new(&weights);
    add(
        "256-symbols",
        "256 symbols: 255 weights as FSE.",
        full.describe_fse(6).expect("fits"),
        &full,
        pattern(800),
    );
    for accuracy in [5, 6] {
        let mut weights = [0; 200];
        for (i, weight) in weights.iter_mut().enumerate() {
            *weight = [1, 0, 0, 3, 0, 0, 2, 2][i % 8];
        }
        let sum = |w: &[u8]| {
            w.iter()
                .filter(|w| **w > 0)
                .map(|w| 1u32 << (w - 1))
                .sum::<u32>()
        };
        let missing = sum(&weights).next_power_of_two() - sum(&weights);
        // Fill the space with symbols of weight 1 where there were none.
        let mut left = missing;
        for weight in weights.iter_mut().filter(|w| **w == 0) {
            if left > 0 {
                *weight = 1;
                left -= 1;
            }
        }
        let huffman = Huffman::new(&weights);
        let used: Vec<u8> = (0..200)
            .filter(|s| huffman.weights[usize::from(*s)] > 0)
            .collect();
        let bytes = pattern(300)
            .iter()
            .map(|b| used[usize::from(*b) % used.len()])
            .collect();
        add(
            &format!("fse-accuracy-{accuracy}"),
            &format!("Weights as FSE with an accuracy of {accuracy}."),
            huffman.describe_fse(accuracy).expect("fits"),
            &huffman,
            bytes,
        );
    }
    // Weights with an odd and an even count end in the first and in the second state.
    for count in [2, 3, 4, 5] {
        let mut weights = vec![1; count + 1];
        weights[0] = 0;
        let sum = |w: &[u8]| {
            w.iter()
                .filter(|w| **w > 0)
                .map(|w| 1u32 << (w - 1))
                .sum::<u32>()
        };
        while !sum(&weights).is_power_of_two() {
            *weights
                .iter_mut()
                .find(|w| **w == 1)
                .expect("a weight of 1") += 1;
        }
        let huffman = Huffman::new(&weights);
        let Some(table) = huffman.describe_fse(5) else {
            continue;
        };
        let bytes = (0..40).map(|i| 1 + (i % count) as u8).collect();
        add(
            &format!("fse-{count}-weights"),
            &format!("{count} weights as FSE: the two states take turns to the end."),
            table,
            &huffman,
            bytes,
        );
    }
}

fn bad(list: &mut List) {
    let mut add = |name: &str, about: &str, table: Vec<u8>| {
        let stream = vec![0x55, 0xAA, 0x55, 0xAA, 0x55, 0x01];
        let body = [table, stream].concat();
        let literals = Literals::Forged {
            kind: 2,
            format: 0,
            regenerated: 20,
            compressed: body.len(),
            body,
            bytes: Vec::new(),
        };
        let frame = Builder::new(Header::window(7)).forged(&[literals.bytes(), vec![0]].concat());
        list.bad(&format!("huffman-{name}"), about, frame, Error::Corruption);
    };
    use crate::assemble::huffman_direct as direct;
    add(
        "sum-leaves-no-power-of-two",
        "Weights 3 and 1: what is left to the next power of two, 3, is none itself.",
        direct(&[3, 1]),
    );
    add("all-zero", "All written weights are 0.", direct(&[0, 0, 0]));
    add(
        "no-weight-of-1",
        "Two weights of 2: no symbol has the longest code.",
        direct(&[2]),
    );
    add(
        "odd-number-of-weight-1",
        "Three symbols of the longest code.",
        direct(&[2, 2, 1, 1, 1, 1, 1, 2]),
    );
    add(
        "12-bits",
        "A table of 12 bits.",
        direct(&[12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
    );
    add("weight-13", "A weight of 13.", direct(&[13, 1]));
    add("weight-15", "A weight of 15.", direct(&[15, 1]));
    add(
        "direct-cut",
        "128 weights of which a few bytes are there.",
        vec![255, 0x11, 0x11],
    );
    add(
        "fse-cut",
        "A description of 100 bytes of which a few are there.",
        vec![100, 0x30, 0x11],
    );
    add("fse-of-0-bytes", "Weights as FSE in 0 bytes.", vec![0]);
    add("fse-of-1-byte", "Weights as FSE in 1 byte.", vec![1, 0x10]);
    use crate::assemble::huffman_fse_with as fse_with;
    let counts = Counts {
        accuracy: 7,
        counts: vec![64, 64],
    };
    add(
        "fse-accuracy-7",
        "Weights as FSE with an accuracy of 7; 6 is the most.",
        fse_with(&[0, 1, 1, 0, 1, 1, 1], &counts).expect("fits"),
    );
    let counts = Counts {
        accuracy: 5,
        counts: vec![16, 8, 1, 1, 1, 1, 1, 1, 1, 1],
    };
    let mut many = vec![0; 256];
    many[3] = 1;
    add(
        "256-weights",
        "256 weights as FSE: 257 symbols.",
        fse_with(&many, &counts).expect("fits"),
    );
    let counts = Counts {
        accuracy: 5,
        counts: [vec![19], vec![1; 13]].concat(),
    };
    add(
        "fse-weight-13",
        "Weights as FSE, one of them 13.",
        fse_with(&[0, 13, 1, 1, 0], &counts).expect("fits"),
    );
    let counts = Counts {
        accuracy: 5,
        counts: vec![16, 16],
    };
    let mut unended = fse_with(&[0, 1, 1, 0, 1, 1, 1], &counts).expect("fits");
    *unended.last_mut().expect("a byte") = 0;
    add(
        "fse-no-end-mark",
        "The weights' bit stream has no end mark.",
        unended,
    );
    let mut short = counts.describe();
    let mut bits = BackwardBits::default();
    bits.push(5, 5);
    bits.push(1, 2); // the second state has too few bits
    short.extend(bits.bytes());
    short.insert(0, short.len() as u8);
    add(
        "fse-states-cut",
        "The bits end within the second state.",
        short,
    );
    let mut none = counts.describe();
    none.insert(0, none.len() as u8);
    add(
        "fse-no-stream",
        "A distribution and no bits after it.",
        none,
    );
    let mut over = Counts {
        accuracy: 5,
        counts: vec![16, 17],
    }
    .describe();
    over.extend([0xFF, 0x01]);
    over.insert(0, over.len() as u8);
    add(
        "fse-sum-over",
        "A distribution whose counts exceed the table.",
        over,
    );
}
