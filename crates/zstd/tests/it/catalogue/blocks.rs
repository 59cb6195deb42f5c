//! Block headers and block sizes.

use super::{Builder, List, pattern, sequence};
use crate::assemble::{BlockType, Header, Literals, Sections, block};
use zstd::Error;

pub(super) fn add(list: &mut List) {
    let reserved = [
        Header::window(0).bytes(),
        block(true, BlockType::Reserved, 1, b"x"),
    ]
    .concat();
    list.bad(
        "block-type-3",
        "A block of the reserved type.",
        reserved,
        Error::Corruption,
    );
    let late = Builder::new(Header::window(0)).raw(false, b"abc").done().0;
    let late = [late, block(true, BlockType::Reserved, 0, b"")].concat();
    list.bad(
        "block-type-3-late",
        "A block of the reserved type after a good one.",
        late,
        Error::Corruption,
    );

    limits(list);
    empty(list);

    let (bytes, content) = Builder::new(Header::window(7))
        .rle(false, b'r', 1000)
        .raw(true, b"end")
        .done();
    list.good(
        "rle-first",
        "An RLE block comes first, which old decoders mishandled.",
        bytes,
        content,
    );
    let mut builder = Builder::new(Header::window(0));
    for i in 0..300 {
        builder = if i % 3 == 0 {
            builder.rle(i == 299, i as u8, 5)
        } else {
            builder.raw(i == 299, &[i as u8])
        };
    }
    let (bytes, content) = builder.done();
    list.good(
        "many-small-blocks",
        "300 blocks of a few bytes.",
        bytes,
        content,
    );
}

/// Blocks may hold as much as the window, and at most 128 KiB: on either side of compression.
fn limits(list: &mut List) {
    for (name, header, max) in [
        ("window-1-kib", Header::window(0), 1024),
        (
            "window-1152",
            Header {
                window: 1,
                ..Header::window(0)
            },
            1152,
        ),
        ("window-256-kib", Header::window(8), 128 << 10),
        ("single-700", Header::single(700), 700),
    ] {
        let (bytes, content) = Builder::new(header.clone()).rle(true, b'm', max).done();
        list.good(
            &format!("rle-block-max-{name}"),
            &format!("An RLE block of {max} bytes, the most that the window allows."),
            bytes,
            content,
        );
        let (bytes, _) = Builder::new(header.clone()).rle(true, b'm', max + 1).done();
        list.bad(
            &format!("rle-block-over-{name}"),
            &format!("An RLE block of {} bytes, one too many.", max + 1),
            bytes,
            Error::Corruption,
        );
        if max <= 1152 {
            let (bytes, content) = Builder::new(header.clone()).raw(true, &pattern(max)).done();
            list.good(
                &format!("raw-block-max-{name}"),
                &format!("A raw block of {max} bytes, the most that the window allows."),
                bytes,
                content,
            );
            let (bytes, _) = Builder::new(header.clone())
                .raw(true, &pattern(max + 1))
                .done();
            list.bad(
                &format!("raw-block-over-{name}"),
                &format!("A raw block of {} bytes, one too many.", max + 1),
                bytes,
                Error::Corruption,
            );
        }
        let (bytes, content) = Builder::new(header.clone())
            .block(
                true,
                &Literals::raw(b"ab"),
                &Sections::PREDEFINED,
                &[sequence(2, 3 + 2, max as u32 - 2)],
            )
            .done();
        list.good(
            &format!("block-regenerates-max-{name}"),
            &format!("A compressed block of {max} bytes content, the most that the window allows."),
            bytes,
            content,
        );
        let bytes = Builder::new(header.clone()).forged_sequences(
            &Literals::raw(b"ab"),
            &Sections::PREDEFINED,
            &[sequence(2, 3 + 2, max as u32 - 1)],
        );
        list.bad(
            &format!("block-regenerates-over-{name}"),
            &format!(
                "A compressed block of {} bytes content, one too many.",
                max + 1
            ),
            bytes,
            Error::Corruption,
        );
        let bytes = Builder::new(header).forged_sequences(
            &Literals::raw(b"abc"),
            &Sections::PREDEFINED,
            &[sequence(2, 3 + 2, max as u32 - 2)],
        );
        list.bad(
            &format!("block-regenerates-over-by-literals-{name}"),
            "The literals after the last sequence make the block one byte too long.",
            bytes,
            Error::Corruption,
        );
    }
    // Literals of 1020 bytes, header 2, count 1, sequences: 1024 bytes or more, although the
    // content is short enough.
    for extra in 0..2 {
        let body = [Literals::raw(&pattern(1021 + extra)).bytes(), vec![0]].concat();
        assert_eq!(body.len(), 1024 + extra);
        let bytes = [
            Header::window(0).bytes(),
            block(true, BlockType::Compressed, body.len(), &body),
        ]
        .concat();
        let about = format!(
            "A compressed block of {} bytes in a window of 1024.",
            body.len()
        );
        if extra == 0 {
            list.good("compressed-size-max", &about, bytes, pattern(1021));
        } else {
            list.bad("compressed-size-over", &about, bytes, Error::Corruption);
        }
    }
    let frame =
        Builder::new(Header::single(3)).forged(&[Literals::raw(b"abc").bytes(), vec![0]].concat());
    list.bad(
        "compressed-larger-than-single-segment",
        "A compressed block of 5 bytes in a single segment of 3: larger than a block may be.",
        frame,
        Error::Corruption,
    );
    let bytes = [
        Header::window(14).bytes(),
        block(true, BlockType::Raw, 0x1F_FFFF, b""),
    ]
    .concat();
    list.bad(
        "raw-block-of-2-mib",
        "A raw block of 2^21 - 1 bytes, the most that the header can say.",
        bytes,
        Error::Corruption,
    );
    let bytes = [
        Header::window(14).bytes(),
        block(true, BlockType::Compressed, 0x1F_FFFF, b""),
    ]
    .concat();
    list.bad(
        "compressed-block-of-2-mib",
        "A compressed block of 2^21 - 1 bytes.",
        bytes,
        Error::Corruption,
    );
}

fn empty(list: &mut List) {
    let nothing = Literals::raw(b"");
    for (name, kind) in [("raw", 0), ("rle", 1), ("compressed", 2)] {
        let add = |builder: Builder, last| match kind {
            0 => builder.raw(last, b""),
            1 => builder.rle(last, b'x', 0),
            _ => builder.literals(last, &nothing),
        };
        let (bytes, content) = add(Builder::new(Header::window(0)), false)
            .raw(true, b"after")
            .done();
        list.good(
            &format!("empty-{name}-first"),
            &format!("An empty {name} block comes first."),
            bytes,
            content,
        );
        let (bytes, content) = add(Builder::new(Header::window(0)).raw(false, b"before"), false)
            .raw(true, b"after")
            .done();
        list.good(
            &format!("empty-{name}-between"),
            &format!("An empty {name} block between others."),
            bytes,
            content,
        );
        let (bytes, content) =
            add(Builder::new(Header::window(0)).raw(false, b"before"), true).done();
        list.good(
            &format!("empty-{name}-last"),
            &format!("An empty {name} block comes last."),
            bytes,
            content,
        );
        let (bytes, content) = add(Builder::new(Header::window(0)), true).done();
        list.good(
            &format!("empty-{name}-alone"),
            &format!("An empty {name} block is all."),
            bytes,
            content,
        );
    }
    for len in 0..2 {
        let bytes = Builder::new(Header::window(0)).forged(&vec![0; len]);
        list.bad(
            &format!("compressed-block-of-{len}-bytes"),
            &format!("A compressed block of {len} bytes; two is the least."),
            bytes,
            Error::Corruption,
        );
    }
    let bytes = [
        Header::window(0).bytes(),
        block(true, BlockType::Rle, 5, b""),
    ]
    .concat();
    list.bad(
        "rle-block-without-byte",
        "An RLE block whose byte is missing.",
        bytes,
        Error::SrcSizeWrong,
    );
    let bytes = [
        Header::window(0).bytes(),
        block(true, BlockType::Rle, 0, b""),
    ]
    .concat();
    list.bad(
        "empty-rle-block-without-byte",
        "An empty RLE block whose byte is missing.",
        bytes,
        Error::SrcSizeWrong,
    );
}
