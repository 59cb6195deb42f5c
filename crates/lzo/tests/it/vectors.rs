//! Streams written by hand from the format's description, one instruction form each.

use crate::unpack;
use lzo::Error;

const ABCD: &[u8] = &[21, b'a', b'b', b'c', b'd'];
const END: &[u8] = &[17, 0, 0];

fn stream(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn every_instruction_form() {
    let many: Vec<u8> = (0..3000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    // 3000 literals: 18 + 255 * 11 + 177.
    let mut many_run = vec![0];
    many_run.extend([0; 11]);
    many_run.push((3000 - 18 - 255 * 11) as u8);
    many_run.extend(&many);

    let cases: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        ("empty", END.to_vec(), vec![]),
        (
            "first byte: one literal",
            stream(&[&[18, b'x'], END]),
            b"x".to_vec(),
        ),
        (
            "first byte: four literals",
            stream(&[ABCD, END]),
            b"abcd".to_vec(),
        ),
        ("short run", stream(&[&[1], b"wxyz", END]), b"wxyz".to_vec()),
        (
            "match of 3, near, then a literal",
            stream(&[ABCD, &[0b0100_1101, 0, b'!'], END]),
            b"abcdabc!".to_vec(),
        ),
        (
            "match of 8, near, overlapping",
            stream(&[ABCD, &[0b1110_0000, 0], END]),
            b"abcddddddddd".to_vec(),
        ),
        (
            "middle match of 33",
            stream(&[ABCD, &[0b0011_1111, 0b0000_0100, 0], END]),
            [b"abcd".as_slice(), &b"cd".repeat(17)[..33]].concat(),
        ),
        (
            "middle match with length bytes",
            stream(&[ABCD, &[0b0010_0000, 0, 5, 0, 0], END]),
            [b"abc".as_slice(), &[b'd'; 1 + 33 + 255 + 5]].concat(),
        ),
        (
            "match of 2 after a literal",
            stream(&[ABCD, &[0b0100_1101, 0, b'!', 0b0000_1100, 1], END]),
            b"abcdabc!ab".to_vec(),
        ),
        (
            "match of 3 after a run, 2 to 3 KiB back",
            stream(&[&many_run, &[0b0000_0100, 0], END]),
            [&many[..], &many[3000 - 2050..][..3]].concat(),
        ),
    ];
    for (name, packed, content) in cases {
        assert_eq!(
            unpack(&packed, content.len()).as_deref(),
            Ok(&content[..]),
            "{name}"
        );
        assert_eq!(
            unpack(&packed, content.len() + 100).as_deref(),
            Ok(&content[..]),
            "{name}, with room"
        );
        if !content.is_empty() {
            assert_eq!(
                unpack(&packed, content.len() - 1),
                Err(Error::DstSizeTooSmall),
                "{name}, one byte short"
            );
        }
        for cut in 0..packed.len() {
            assert!(
                unpack(&packed[..cut], content.len() + 100).is_err(),
                "{name}, cut at {cut}"
            );
        }
    }
}

#[test]
fn far_matches() {
    // 20,000 and 40,000 bytes back: the instruction's high bit and its absence.
    let distances = [16_385usize, 49_151, 20_000, 32_767, 32_768, 40_000];
    for &distance in &distances[..if cfg!(miri) { 2 } else { 6 }] {
        let content: Vec<u8> = (0..50_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut packed = vec![0];
        let rest = content.len() - 18;
        packed.extend(vec![0; (rest - 1) / 255]);
        packed.push((rest - (rest - 1) / 255 * 255) as u8);
        packed.extend(&content);
        let back = distance - 16_384;
        packed.push(0b0001_0000 | if back >= 16_384 { 8 } else { 0 } | 7);
        packed.extend(((back % 16_384 * 4) as u16).to_le_bytes());
        packed.extend(END);
        let start = content.len() - distance;
        let want = [&content[..], &content[start..start + 9]].concat();
        assert_eq!(
            unpack(&packed, want.len()).as_deref(),
            Ok(&want[..]),
            "{distance}"
        );
    }
}

#[test]
fn wrong_streams_are_refused() {
    let cases: &[(&[u8], Error)] = &[
        (&[], Error::Truncated),
        (&[17], Error::Truncated),
        (&[17, 1, 0, 0, 0], Error::DistanceTooLong),
        (&[16, 4, 4, 0], Error::DistanceTooLong),
        (
            &[21, 1, 2, 3, 4, 0b0100_0000, 1, 17, 0, 0],
            Error::DistanceTooLong,
        ),
        (&[21, 1, 2, 3, 4, 17, 0, 0, 9], Error::TrailingBytes),
        (&[21, 1, 2, 3, 4, 18, 0, 0], Error::EndMark),
        (&[21, 1, 2, 3, 4, 17, 1, 0], Error::EndMark),
        (&[21, 1, 2, 3, 4], Error::Truncated),
        (&[0, 0, 0, 0, 0], Error::Truncated),
    ];
    for (packed, error) in cases {
        assert_eq!(unpack(packed, 100), Err(*error), "{packed:?}");
    }
}
