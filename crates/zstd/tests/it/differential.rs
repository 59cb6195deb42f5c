//! Decoders compared: ours through a door that chance picks, C's, and the slow reference.
//!
//! The long runs are campaigns: `cargo xtask campaign zstd-frames-of-c zstd-unusual-frames
//! zstd-damaged-frames`.

use crate::catalogue::Dictionary;
use crate::doors::{self, DOORS, Input};
use crate::generator::{self, Start};
use crate::reference::{self, Fault};
use testkit::{Rng, cases};
use zstd_safe::{CCtx, CParameter, FrameFormat, ResetDirective, Strategy};

/// Content of a kind that chance picks: words, runs, noise, records, copies from before.
fn content(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 300);
    let vocabulary: Vec<Vec<u8>> = (0..1 + rng.index(60))
        .map(|_| {
            let len = 1 + rng.index(12);
            (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
        })
        .collect();
    let kinds = 1 + rng.below(5);
    while bytes.len() < len {
        match rng.below(kinds) {
            0 => bytes.extend(&vocabulary[rng.index(vocabulary.len())]),
            1 => {
                let (byte, run) = (rng.below(256) as u8, rng.index(100));
                bytes.extend(std::iter::repeat_n(byte, run));
            }
            2 => {
                let noise = rng.index(50);
                bytes.extend(rng.bytes(noise));
            }
            3 => bytes.extend((bytes.len() as u32).to_le_bytes()),
            _ if bytes.is_empty() => {}
            _ => {
                let from = rng.index(bytes.len());
                let len = (bytes.len() - from).min(rng.index(300));
                bytes.extend_from_within(from..from + len);
            }
        }
    }
    bytes.truncate(len);
    bytes
}

/// A frame by C with parameters, flags and pieces that chance picks.
fn c_frame(
    rng: &mut Rng,
    c: &mut CCtx,
    content: &[u8],
    dictionary: Option<&[u8]>,
    magicless: bool,
) -> Vec<u8> {
    c.reset(ResetDirective::SessionAndParameters)
        .expect("reset");
    let level = if rng.chance(4) {
        -(rng.below(20) as i32)
    } else {
        1 + rng.below(22) as i32
    };
    let mut parameters = vec![
        CParameter::CompressionLevel(level),
        CParameter::ChecksumFlag(rng.chance(3)),
        CParameter::ContentSizeFlag(!rng.chance(3)),
        CParameter::DictIdFlag(!rng.chance(3)),
    ];
    if magicless {
        parameters.push(CParameter::Format(FrameFormat::Magicless));
    }
    // Small tables at high levels, too: what is tested is the frame, and thousands are made.
    parameters.push(CParameter::WindowLog(10 + rng.below(9) as u32));
    parameters.push(CParameter::HashLog(6 + rng.below(10) as u32));
    parameters.push(CParameter::ChainLog(6 + rng.below(10) as u32));
    if rng.chance(3) {
        parameters.push(CParameter::MinMatch(3 + rng.below(5) as u32));
    }
    if rng.chance(3) {
        parameters.push(CParameter::TargetLength(rng.below(200) as u32));
    }
    if rng.chance(3) {
        let strategies = [
            Strategy::ZSTD_fast,
            Strategy::ZSTD_dfast,
            Strategy::ZSTD_greedy,
            Strategy::ZSTD_lazy,
            Strategy::ZSTD_lazy2,
            Strategy::ZSTD_btlazy2,
            Strategy::ZSTD_btopt,
            Strategy::ZSTD_btultra,
            Strategy::ZSTD_btultra2,
        ];
        parameters.push(CParameter::Strategy(strategies[rng.index(9)]));
    }
    if rng.chance(5) {
        parameters.push(CParameter::EnableLongDistanceMatching(true));
    }
    if rng.chance(5) {
        parameters.push(CParameter::TargetCBlockSize(1340 + rng.below(5000) as u32));
    }
    if rng.chance(5) {
        parameters.push(CParameter::MaxBlockSize(1024 << rng.below(8)));
    }
    if rng.chance(5) {
        let modes = [
            zstd_safe::ParamSwitch::Enable,
            zstd_safe::ParamSwitch::Disable,
        ];
        parameters.push(CParameter::LiteralCompressionMode(modes[rng.index(2)]));
    }
    for parameter in parameters {
        c.set_parameter(parameter)
            .expect("a parameter in its range");
    }
    if let Some(dictionary) = dictionary {
        c.load_dictionary(dictionary).expect("a dictionary");
    }
    // Pieces may be of one byte, and each of them flushed into a block of its own: the C library
    // would wait for room for ever.
    let room = zstd_safe::compress_bound(content.len()) + 32 * content.len() + 1000;
    let mut frame = vec![0; room];
    let len = if rng.chance(2) {
        c.compress2(&mut frame[..], content).expect("enough room")
    } else {
        let mut out = zstd_safe::OutBuffer::around(&mut frame[..]);
        for piece in content.chunks(1 + rng.index(content.len() + 1)) {
            let mut input = zstd_safe::InBuffer::around(piece);
            while input.pos() < piece.len() {
                c.compress_stream(&mut out, &mut input)
                    .expect("enough room");
            }
            if rng.chance(2) {
                while c.flush_stream(&mut out).expect("enough room") > 0 {}
            }
        }
        while c.end_stream(&mut out).expect("enough room") > 0 {}
        out.pos()
    };
    frame.truncate(len);
    frame
}

fn dictionary_of(rng: &mut Rng) -> Option<Dictionary> {
    [
        None,
        None,
        Some(Dictionary::Raw),
        Some(Dictionary::Formatted),
    ][rng.index(4)]
}

#[test]
fn frames_of_c_decode_to_their_content() {
    let rng = &mut Rng::new(1);
    let mut c = CCtx::create();
    let dictionaries = [Dictionary::Raw.bytes(), Dictionary::Formatted.bytes()];
    for case in 0..cases(1500) {
        let len = match rng.below(4) {
            0 => rng.index(20),
            1 => rng.index(500),
            2 => rng.index(8000),
            _ if rng.chance(8) => rng.index(300_000),
            _ => rng.index(30_000),
        };
        let content = content(rng, len);
        let dictionary = dictionary_of(rng).map(|d| &dictionaries[d as usize][..]);
        let magicless = rng.chance(8);
        let frame = c_frame(rng, &mut c, &content, dictionary, magicless);
        let (door, decode) = DOORS[rng.index(DOORS.len())];
        if len > 50_000 && door.contains("one byte") {
            continue;
        }
        let input = Input {
            magicless,
            dictionary,
            ..Input::new(&frame, content.len() + rng.index(40))
        };
        let got = decode(&input);
        assert!(
            got.as_ref() == Ok(&content),
            "case {case} through {door}: {:?}",
            got.map(|got| got.len())
        );
    }
}

/// The frame that is written from the steps and descriptions of another one.
#[cfg(feature = "steps")]
fn described_again(frame: &[u8], content: &[u8]) -> Result<Vec<u8>, zstd::Error> {
    let (mut steps, mut descriptions) = (Vec::new(), Vec::new());
    zstd::read_described(
        frame,
        &mut vec![0; zstd::READ_STEPS_WORKSPACE_SIZE],
        &mut |step| steps.push(step),
        &mut |bytes| descriptions.extend_from_slice(bytes),
    )?;
    let mut again = vec![0; frame.len()];
    let len = zstd::compress_described(
        &mut again,
        content,
        &descriptions,
        &mut steps.iter().copied(),
        &mut vec![0; zstd::COMPRESS_STEPS_WORKSPACE_SIZE],
    )?;
    again.truncate(len);
    Ok(again)
}

#[test]
#[cfg(feature = "steps")]
fn frames_of_c_are_written_again_from_their_steps() {
    let rng = &mut Rng::new(5);
    let mut c = CCtx::create();
    for case in 0..cases(1500) {
        let len = match rng.below(4) {
            0 => rng.index(500),
            _ if rng.chance(8) => rng.index(300_000),
            _ => rng.index(30_000),
        };
        let content = content(rng, len);
        let frame = c_frame(rng, &mut c, &content, None, false);
        let again = described_again(&frame, &content);
        assert!(
            again.as_ref() == Ok(&frame),
            "case {case}: {:?}",
            again.err()
        );
    }
}

#[test]
fn unusual_frames_decode_as_in_c() {
    let rng = &mut Rng::new(2);
    let dictionaries = [Dictionary::Raw, Dictionary::Formatted].map(|d| (d.start(), d.bytes()));
    for case in 0..cases(4000) {
        let budget = if rng.chance(20) {
            300_000
        } else {
            200 + rng.index(5000)
        };
        let nothing = (Start::nothing(), Vec::new());
        let (start, dictionary) =
            dictionary_of(rng).map_or(&nothing, |d| &dictionaries[d as usize]);
        let made = generator::frame(rng, start, budget);
        let input = Input {
            dictionary: (!dictionary.is_empty()).then_some(dictionary),
            ..Input::new(&made.frame, made.content.len() + rng.index(40))
        };
        let c = doors::c_one_shot(&input);
        assert!(
            c.as_ref() == Ok(&made.content),
            "case {case}: C says {:?}",
            c.map(|c| c.len())
        );
        if dictionary.is_empty() {
            let reference = reference::decode(input.bytes, input.capacity);
            assert!(
                reference.as_ref() == Ok(&made.content),
                "case {case}: the reference"
            );
        }
        let (door, decode) = DOORS[rng.index(DOORS.len())];
        if made.content.len() > 50_000 && door.contains("one byte") {
            continue;
        }
        let got = decode(&input);
        assert!(
            got.as_ref() == Ok(&made.content),
            "case {case} through {door}: {:?}",
            got.map(|got| got.len())
        );
    }
}

/// Changes a few places of a frame.
fn mutate(rng: &mut Rng, frame: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    for _ in 0..1 + rng.below(3) {
        if bytes.is_empty() {
            break;
        }
        // Headers and tables stand at the start, where a change matters most.
        let end = if rng.chance(2) {
            bytes.len()
        } else {
            bytes.len().min(40)
        };
        let at = rng.index(end);
        match rng.below(12) {
            0..5 => bytes[at] ^= 1 << rng.below(8),
            5..7 => bytes[at] = rng.below(256) as u8,
            7 => bytes[at] = bytes[at].wrapping_add(rng.below(5) as u8).wrapping_sub(2),
            8 => bytes.truncate(at),
            9 => {
                bytes.remove(at);
            }
            10 => bytes.insert(at, rng.below(256) as u8),
            _ => {
                let from = rng.index(other.len().max(1)).min(other.len());
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
    bytes
}

/// A verdict of C that differs is one that `docs/formats/zstd.md` lists: the reference says which.
#[allow(clippy::print_stderr, reason = "a campaign wants its figures")]
#[test]
fn damaged_frames_have_the_same_verdict_as_in_c() {
    const CAPACITY: usize = 40_000;
    let rng = &mut Rng::new(3);
    let mut c = CCtx::create();
    let frames: Vec<Vec<u8>> = (0..400)
        .map(|case| {
            if case % 2 == 0 {
                generator::frame(rng, &Start::nothing(), 300 + case * 3).frame
            } else {
                let len = 20 + rng.index(3000);
                let content = content(rng, len);
                c_frame(rng, &mut c, &content, None, false)
            }
        })
        .filter(|frame| frame.len() < 6000)
        .collect();
    let mut counts = [0u64; 3];
    for case in 0..cases(10_000) {
        let index = rng.index(frames.len());
        let other = rng.index(frames.len());
        let bytes = mutate(rng, &frames[index], &frames[other]);
        let input = Input::new(&bytes, CAPACITY);
        let (door, decode) = DOORS[rng.index(DOORS.len())];
        let ours = doors::one_shot(&input);
        let reference = reference::decode(&bytes, CAPACITY);
        let c = doors::c_one_shot(&input);
        let show = || {
            let ours = ours.as_ref().map(Vec::len);
            let (c, reference) = (c.as_ref().map(Vec::len), reference.as_ref().map(Vec::len));
            format!("case {case}: ours {ours:?}, C {c:?}, reference {reference:?}: {bytes:02x?}")
        };
        match (&ours, &reference) {
            (Ok(ours), Ok(reference)) => assert!(ours == reference, "contents: {}", show()),
            (Err(_), Err(_)) => {}
            _ => panic!("{}", show()),
        }
        match (&c, &reference) {
            (Ok(c), Ok(reference)) => assert!(c == reference, "contents: {}", show()),
            (Err(_), Err(_)) => {}
            (Ok(_), Err(Fault::Broken | Fault::NoRoom)) | (Err(_), Ok(_)) => panic!("{}", show()),
            (Ok(_), Err(_)) => counts[2] += 1,
        }
        counts[usize::from(ours.is_ok())] += 1;
        let through = decode(&input);
        let agree = match (&through, &ours) {
            (Ok(through), Ok(ours)) => through == ours,
            (Err(_), Err(_)) => true,
            // A stream has memory for so large a window only.
            (Err(zstd::Error::WindowTooLarge), Ok(_)) => door != "one shot",
            _ => false,
        };
        assert!(
            agree,
            "through {door}: {:?}; {}",
            through.as_ref().map(Vec::len),
            show()
        );
    }
    let [refused, accepted, differs] = counts;
    eprintln!("campaign: {refused} refused, {accepted} accepted, {differs} refused that C accepts");
}
