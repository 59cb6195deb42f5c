//! Frame headers, checksums, skippable and several frames.

use super::{Builder, List, letters, pattern, sequence};
use crate::assemble::{BlockType, Header, Huffman, Literals, Sections, block, checksum, skippable};
use zstd::Error;

pub(super) fn add(list: &mut List) {
    empty(list);
    content_sizes(list);
    header_bits(list);
    checksums(list);
    skippables(list);
    several(list);
}

fn empty(list: &mut List) {
    let (bytes, content) = Builder::new(Header::single(0)).raw(true, b"").done();
    list.good(
        "empty",
        "An empty frame: content size 0 in a single segment.",
        bytes,
        content,
    );
    let header = Header {
        checksum: true,
        ..Header::single(0)
    };
    let (bytes, content) = Builder::new(header).raw(true, b"").done();
    list.good(
        "empty-checksum",
        "An empty frame with a checksum.",
        bytes,
        content,
    );
    let (bytes, content) = Builder::new(Header::window(0)).raw(true, b"").done();
    list.good(
        "empty-window",
        "An empty frame of unknown content size.",
        bytes,
        content,
    );
    list.bad(
        "no-block",
        "A header and nothing after it.",
        Header::window(0).bytes(),
        Error::SrcSizeWrong,
    );
    let (bytes, _) = Builder::new(Header::window(0)).raw(false, b"x").done();
    list.bad(
        "no-last-block",
        "The frame ends after a block that is not the last.",
        bytes,
        Error::SrcSizeWrong,
    );
    let mut bytes = Builder::new(Header::window(0)).raw(true, b"x").done().0;
    bytes[3] = 0xFC;
    list.bad(
        "magic",
        "The magic number is that of no frame.",
        bytes,
        Error::PrefixUnknown,
    );
    let header = Header {
        magic: false,
        ..Header::single(5)
    };
    let (bytes, content) = Builder::new(header).raw(true, b"hello").done();
    list.good(
        "magicless",
        "A frame without its magic number.",
        bytes,
        content,
    )
    .magicless = true;
}

fn content_sizes(list: &mut List) {
    for size in [1, 255, 256, 65_791, 65_792, 131_072] {
        let (bytes, content) = Builder::new(Header::single(size as u64))
            .rle(true, b'z', size)
            .done();
        list.good(
            &format!("content-size-{size}"),
            &format!("Content size {size} in its shortest form, a single segment."),
            bytes,
            content,
        );
    }
    for (flag, width, single, size) in [
        (1, 2, false, 256),
        (2, 4, true, 5),
        (3, 8, true, 5),
        (2, 4, false, 300),
        (3, 8, false, 300),
        (3, 8, true, 70_000),
    ] {
        let header = Header {
            size_flag: flag,
            single_segment: single,
            ..Header::single(size)
        };
        let header = Header {
            window: 7 << 3,
            ..header
        };
        let (bytes, content) = Builder::new(header).rle(true, b'z', size as usize).done();
        let kind = if single { "single" } else { "window" };
        list.good(
            &format!("content-size-{size}-in-{width}-bytes-{kind}"),
            &format!("Content size {size} in {width} bytes; a longer form than needed is legal."),
            bytes,
            content,
        );
    }
    for (name, said, about) in [
        ("less", 5, "less"),
        ("more", 7, "more"),
        ("none", 0, "none at all"),
    ] {
        let header = Header {
            size_flag: 2,
            content_size: said,
            ..Header::window(0)
        };
        let (bytes, _) = Builder::new(header).raw(true, b"sixsix").done();
        let about = format!("The header says {about} than the content that follows.")
            .replace("none at all than the", "there is no");
        list.bad(
            &format!("content-size-says-{name}"),
            &about,
            bytes,
            Error::Corruption,
        );
    }
}

fn header_bits(list: &mut List) {
    let header = Header {
        unused_bit: true,
        ..Header::single(5)
    };
    let (bytes, content) = Builder::new(header).raw(true, b"hello").done();
    list.good(
        "unused-bit",
        "The unused bit of the descriptor is set, which decoders ignore.",
        bytes,
        content,
    );
    let header = Header {
        reserved_bit: true,
        ..Header::single(5)
    };
    let (bytes, _) = Builder::new(header).raw(true, b"hello").done();
    list.bad(
        "reserved-bit",
        "The reserved bit of the descriptor is set.",
        bytes,
        Error::FrameParameterUnsupported,
    );
    for (flag, width) in [(1, 1), (2, 2), (3, 4)] {
        let header = Header {
            dictionary_flag: flag,
            ..Header::single(5)
        };
        let (bytes, content) = Builder::new(header.clone()).raw(true, b"hello").done();
        list.good(
            &format!("dictionary-id-0-in-{width}-bytes"),
            &format!("A dictionary id of 0 in {width} bytes: no dictionary is needed."),
            bytes,
            content,
        );
        let header = Header {
            dictionary: 0x2A,
            ..header
        };
        let (bytes, _) = Builder::new(header).raw(true, b"hello").done();
        list.bad(
            &format!("dictionary-id-42-in-{width}-bytes"),
            &format!("A dictionary id of 42 in {width} bytes, and no dictionary."),
            bytes,
            Error::DictionaryWrong,
        );
    }
    for (window, name) in [
        (0x00, "least"),
        (0x01, "least-and-an-eighth"),
        (0x3F, "odd"),
        (0x6A, "8-mib-and-more"),
    ] {
        let header = Header {
            window,
            ..Header::window(0)
        };
        let (bytes, content) = Builder::new(header).raw(true, b"hello").done();
        list.good(
            &format!("window-{name}"),
            &format!("A window byte of {window:#04x}."),
            bytes,
            content,
        );
    }
    // All fields at once, each wider than needed.
    let header = Header {
        size_flag: 3,
        unused_bit: true,
        checksum: true,
        dictionary_flag: 3,
        content_size: 500,
        ..Header::window(3)
    };
    let (bytes, content) = Builder::new(header)
        .raw(false, &pattern(200))
        .rle(true, 7, 300)
        .done();
    list.good(
        "header-of-18-bytes",
        "The longest header: every field, all as wide as can be.",
        bytes,
        content,
    );
}

fn checksums(list: &mut List) {
    let header = Header {
        checksum: true,
        ..Header::single(1000)
    };
    let (bytes, content) = Builder::new(header.clone())
        .raw(true, &pattern(1000))
        .done();
    list.good(
        "checksum",
        "A frame with a checksum.",
        bytes.clone(),
        content,
    );
    let mut wrong = bytes.clone();
    *wrong.last_mut().expect("a checksum") ^= 0x80;
    list.bad(
        "checksum-wrong",
        "The last bit of the checksum is wrong.",
        wrong,
        Error::ChecksumWrong,
    );
    let mut wrong = bytes.clone();
    wrong[20] ^= 1;
    list.bad(
        "checksum-of-other-content",
        "One bit of the content differs from what was summed.",
        wrong,
        Error::ChecksumWrong,
    );
    for kept in 0..4 {
        list.bad(
            &format!("checksum-missing-after-{kept}"),
            &format!("The frame ends after {kept} of the checksum's four bytes."),
            bytes[..bytes.len() - 4 + kept].to_vec(),
            Error::SrcSizeWrong,
        );
    }
}

fn skippables(list: &mut List) {
    let (frame, content) = Builder::new(Header::single(5)).raw(true, b"hello").done();
    for low in 0..16 {
        let magic = 0x184D_2A50 + low;
        let skip = skippable(magic, &pattern(low as usize));
        list.good(
            &format!("skippable-{low:x}"),
            &format!("A skippable frame of magic {magic:#x} and {low} bytes before a frame."),
            [skip, frame.clone()].concat(),
            content.clone(),
        );
    }
    list.good(
        "skippable-after",
        "A skippable frame after a frame.",
        [frame.clone(), skippable(0x184D_2A50, b"after")].concat(),
        content.clone(),
    );
    list.good(
        "skippable-alone",
        "A skippable frame alone: no content.",
        skippable(0x184D_2A5F, b"alone"),
        b"",
    );
    let mut past = skippable(0x184D_2A50, b"12345");
    past[4] = 6;
    list.bad(
        "skippable-past-end",
        "A skippable frame that is longer than the input.",
        past.clone(),
        Error::SrcSizeWrong,
    );
    past[4..8].copy_from_slice(&[0xFF; 4]);
    list.bad(
        "skippable-near-4-gib",
        "A skippable frame of 2^32 - 1 bytes: the sum with its header must not wrap.",
        [past, frame].concat(),
        Error::SrcSizeWrong,
    );
    list.bad(
        "skippable-cut",
        "A skippable frame's header, cut.",
        skippable(0x184D_2A50, b"")[..7].to_vec(),
        Error::SrcSizeWrong,
    );
    let (frame, _) = Builder::new(Header::single(5)).raw(true, b"hello").done();
    list.bad(
        "magic-beside-skippable",
        "A magic number that is one beyond those of skippable frames.",
        [skippable(0x184D_2A60, b""), frame].concat(),
        Error::PrefixUnknown,
    );
}

fn several(list: &mut List) {
    let hello = || Builder::new(Header::single(5)).raw(true, b"hello").done().0;
    list.good(
        "two-frames",
        "Two frames: their contents one after the other.",
        [hello(), hello()].concat(),
        b"hellohello",
    );
    list.good(
        "three-frames-and-skippables",
        "Frames and skippable frames in turn, an empty frame among them.",
        [
            hello(),
            skippable(0x184D_2A51, b""),
            Builder::new(Header::single(0)).raw(true, b"").done().0,
            skippable(0x184D_2A52, b"xyz"),
            hello(),
        ]
        .concat(),
        b"hellohello",
    );
    list.bad(
        "trailing-zeros",
        "Zeros after the frame, as a file system pads an extent.",
        [hello(), vec![0; 16]].concat(),
        Error::SrcSizeWrong,
    );
    list.bad(
        "trailing-byte",
        "One byte after the frame.",
        [hello(), vec![0x28]].concat(),
        Error::SrcSizeWrong,
    );
    list.bad(
        "trailing-cut-magic",
        "Three bytes of a magic number after the frame.",
        [hello(), vec![0x28, 0xB5, 0x2F]].concat(),
        Error::SrcSizeWrong,
    );

    // What a frame leaves behind must not reach the next one.
    let huffman = Huffman::new(&[&[0; 97][..], &[3, 2, 1, 1]].concat());
    let text = letters(40, 4);
    let table = huffman.describe();
    let compressed = Literals::Compressed {
        format: 0,
        table,
        huffman: huffman.clone(),
        bytes: text.clone(),
    };
    let (first, _) = Builder::new(Header::window(0))
        .literals(true, &compressed)
        .done();
    let treeless = Literals::Treeless {
        format: 0,
        huffman,
        bytes: text,
    };
    let (second, _) = Builder::new(Header::window(0))
        .literals(true, &treeless)
        .done();
    list.bad(
        "second-frame-treeless",
        "The second frame relies on the Huffman table of the first.",
        [first, second].concat(),
        Error::Corruption,
    );

    let block_of = |offset| {
        let sequences = [sequence(4, offset, 4)];
        Builder::new(Header::window(0)).block(
            true,
            &Literals::raw(b"abcdefgh"),
            &Sections::PREDEFINED,
            &sequences,
        )
    };
    let (first, content) = block_of(3 + 2).done();
    let (second, again) = block_of(1).done();
    list.good(
        "second-frame-repeat-offset",
        "The second frame uses the first repeat offset, which is 1 again.",
        [first, second].concat(),
        [content, again].concat(),
    );
    let far = Builder::new(Header::window(0)).raw(false, b"0123456789");
    let (first, _) = far.raw(true, b"").done();
    let reach = Builder::new(Header::window(0)).forged_sequences(
        &Literals::raw(b"abcd"),
        &Sections::PREDEFINED,
        &[sequence(4, 3 + 5, 4)],
    );
    list.bad(
        "second-frame-reaches-back",
        "A match in the second frame begins in the first.",
        [first, reach].concat(),
        Error::Corruption,
    );

    let content = pattern(300);
    let header = Header {
        checksum: true,
        ..Header::single(300)
    };
    let mut wrong = header.bytes();
    wrong.extend(block(true, BlockType::Raw, 300, &content));
    let right = [wrong.clone(), checksum(&content).to_vec()].concat();
    wrong.extend([0; 4]);
    list.bad(
        "second-frame-checksum",
        "The checksum of the second frame is wrong.",
        [right, wrong].concat(),
        Error::ChecksumWrong,
    );
}
