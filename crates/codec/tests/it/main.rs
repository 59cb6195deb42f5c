//! Tests of the codecs behind one enum. What the foreign tools make of the blocks is tested where
//! images are made.

#[cfg(all(
    feature = "lz4",
    feature = "lzo",
    feature = "xz",
    feature = "zlib",
    feature = "zstd"
))]
mod examples; // the program in `examples`

use std::io::ErrorKind;

use codec::{Algorithm, Decoder, Encoder, Error, Filters, Packer, Settings, Wrapper};

/// The settings of every codec that was built.
fn all_settings() -> Vec<Settings> {
    let mut all = vec![Settings::Lzo, Settings::Lz4];
    all.extend((2..=9).map(|level| Settings::LzoOptimal { level }));
    all.extend((1..=12).map(|level| Settings::Zlib { level }));
    all.extend(
        [-5, -1, 1, 2, 3, 5, 7, 9, 12, 13, 15, 16, 19, 22].map(|level| Settings::Zstd { level }),
    );
    all.extend((2..=12).map(|level| Settings::Lz4Hc { level }));
    for (level, filters) in [(0, Filters(0)), (6, Filters(0)), (1, Filters::ALL)] {
        all.push(Settings::Xz {
            level,
            extreme: level == 6,
            dictionary_bytes: 1 << 17,
            filters,
        });
    }
    all.retain(|settings| settings.algorithm().is_built());
    all
}

#[test]
fn a_codec_that_was_not_built_is_named() {
    for (settings, words) in [
        (Settings::Lz4, "built without lz4"),
        (Settings::LzoOptimal { level: 9 }, "built without lzo"),
        (Settings::Zlib { level: 6 }, "built without zlib"),
        (Settings::Zstd { level: 3 }, "built without zstd"),
    ] {
        let algorithm = settings.algorithm();
        let encoder = Encoder::new(&settings).err();
        let decoded = Decoder::new().decompress(algorithm, &mut [0; 8], b"stored");
        let not_built = Error::NotBuilt(words);
        assert_eq!(encoder, (!algorithm.is_built()).then_some(not_built));
        assert_eq!(decoded == Err(not_built), !algorithm.is_built(), "{words}");
    }
    for wrapper in [
        Wrapper::Gzip,
        Wrapper::Xz,
        Wrapper::Zstd,
        Wrapper::Bzip2,
        Wrapper::Lz4,
        Wrapper::Lzma,
        Wrapper::Lzop,
    ] {
        let is_built = wrapper.is_built();
        let is_written = matches!(wrapper, Wrapper::Gzip | Wrapper::Xz | Wrapper::Zstd);
        let packer = Packer::new(wrapper, None).err();
        assert_eq!(packer.is_none(), is_built && is_written, "{packer:?}");
        let error = wrapper.decompress(&mut &b"stored"[..], &mut Vec::new());
        let kind = error.expect_err("it is no stream").kind();
        assert_eq!(kind != ErrorKind::Unsupported, is_built);
    }
}

/// Words, a ramp, noise, zeros, and code-like content, of lengths around the edges.
fn contents() -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let text: Vec<u8> = (0..131_072u32)
        .map(|n| b"the quick brown fox "[((n ^ (n >> 9)) % 20) as usize])
        .collect();
    let mut all = vec![vec![0; 131_072], vec![7; 5000]];
    for len in [1, 2, 13, 100, 4096, 65_537, 131_072] {
        all.push(text[..len].to_vec());
        all.push((0..len).map(|_| noise()).collect());
        all.push(
            (0..len)
                .map(|n| {
                    if n % 5 == 0 {
                        0xe8
                    } else {
                        (n / 64) as u8 & noise()
                    }
                })
                .collect(),
        );
    }
    all
}

#[test]
fn content_survives_every_codec() {
    let mut decoder = Decoder::new();
    for settings in all_settings() {
        let mut encoder = Encoder::new(&settings).unwrap();
        let algorithm = settings.algorithm();
        for content in contents() {
            let mut packed = vec![0; content.len() * 2 + 1000];
            let len = encoder
                .compress(&mut packed, &content)
                .expect("there is room");
            packed.truncate(len);
            let mut back = vec![0xaa; content.len()];
            let what = format!("{settings:?}, {} bytes", content.len());
            assert_eq!(
                decoder.decompress(algorithm, &mut back, &packed),
                Ok(content.len()),
                "{what}"
            );
            assert!(back == content, "{what}");

            let mut room = vec![0; content.len() + 64];
            assert_eq!(
                decoder.decompress(algorithm, &mut room, &packed),
                Ok(content.len()),
                "{what}"
            );
            assert!(room[..content.len()] == content, "{what}");

            let mut short = vec![0; content.len() - 1];
            assert!(
                decoder.decompress(algorithm, &mut short, &packed).is_err(),
                "{what}"
            );

            // Smaller or not at all: whatever comes out fits and is whole.
            let mut smaller = vec![0; content.len() - 1];
            if let Some(len) = encoder.compress(&mut smaller, &content) {
                assert_eq!(
                    decoder.decompress(algorithm, &mut back, &smaller[..len]),
                    Ok(content.len()),
                    "{what}"
                );
                assert!(back == content, "{what}");
            }
        }
    }
}

/// All content fits, but its end is damaged or missing: that is not too much content.
#[cfg(feature = "xz")]
#[test]
fn an_xz_stream_with_a_damaged_end_is_corrupt_and_not_too_long() {
    let content = b"to be, or not to be, or not to be".repeat(20);
    let settings = Settings::Xz {
        level: 6,
        extreme: false,
        dictionary_bytes: 1 << 16,
        filters: Filters::default(),
    };
    let mut stored = vec![0; content.len()];
    let mut encoder = Encoder::new(&settings).unwrap();
    let len = encoder.compress(&mut stored, &content).unwrap();
    stored.truncate(len);
    let decode = |stored: &[u8], room: usize| {
        Decoder::new().decompress(Algorithm::Xz, &mut vec![0; room], stored)
    };
    assert_eq!(decode(&stored, content.len()), Ok(content.len()));
    // The footer has 12 bytes, the index 8, and the checksum of the content is before them.
    let mut damaged = stored.clone();
    damaged[len - 21] ^= 1;
    let cut = &stored[..len - 1];
    for stored in [&damaged, cut] {
        let decoded = decode(stored, content.len());
        assert!(matches!(decoded, Err(Error::Corrupt(_))), "{decoded:?}");
    }
    let decoded = decode(&stored, content.len() - 1);
    assert_eq!(decoded, Err(Error::DstSizeTooSmall));
}

/// Zeros at the end of a stream cannot be told from those after it if its checksum is zero.
#[cfg(feature = "zlib")]
#[test]
fn a_zlib_stream_with_a_checksum_of_zero_has_no_end() {
    // Zeros at the front raise the checksum's upper half by 1 each, what follows makes the lower
    // half 65,521.
    let mut tail = vec![255; 256];
    tail.extend([239, 1]);
    let upper = tail.iter().fold((1_u64, 0_u64), |(a, b), &byte| {
        let a = a + u64::from(byte);
        (a, b + a)
    });
    assert_eq!(upper.0, 65_521);
    let mut content = vec![0; (65_521 - upper.1 % 65_521) as usize];
    content.extend(tail);
    let mut stored = vec![0; 1000];
    let mut encoder = Encoder::new(&Settings::Zlib { level: 6 }).unwrap();
    let len = encoder.compress(&mut stored, &content).unwrap();
    assert_eq!(stored[len - 4..len], [0; 4]);
    let mut back = vec![0; content.len()];
    let mut decoder = Decoder::new();
    let decoded = decoder.decompress_zlib_extent(&mut back, &stored);
    assert!(matches!(decoded, Err(Error::Corrupt(_))), "{decoded:?}");
    assert!(back == content);
}

/// The end of a zlib stream is found, whatever zeros its checksum ends with.
#[cfg(feature = "zlib")]
#[test]
fn a_zlib_stream_ends_where_zeros_begin() {
    let mut decoder = Decoder::new();
    let mut encoder = Encoder::new(&Settings::Zlib { level: 6 }).unwrap();
    let mut ends = [0; 4];
    for n in 0..3000_u32 {
        // The checksum's lower half is the sum of all bytes, plus 1, modulo 65,521.
        let mut content = n.to_string().into_bytes();
        if let Some(sum) = [Some(65_520), Some(0xfeff), None][n as usize % 3] {
            content.resize(3 + n as usize % 200, n as u8);
            let mut missing: u32 = sum - content.iter().map(|&byte| u32::from(byte)).sum::<u32>();
            while missing > 0 {
                content.push(missing.min(255) as u8);
                missing -= missing.min(255);
            }
        }
        let mut stored = vec![0; content.len() + 100];
        let len = encoder.compress(&mut stored, &content).unwrap();
        stored.truncate(len);
        let zeros = stored.iter().rev().take_while(|&&byte| byte == 0).count();
        ends[zeros.min(3)] += 1;
        let mut back = vec![0; content.len()];
        for padding in [0, 1, 4, 100] {
            stored.resize(len + padding, 0);
            assert_eq!(
                decoder.decompress_zlib_extent(&mut back, &stored),
                Ok((content.len(), len))
            );
            assert!(back == content);
        }
        stored[len + 7] = 1;
        let followed = decoder.decompress_zlib_extent(&mut back, &stored);
        assert!(matches!(followed, Err(Error::Corrupt(_))), "{followed:?}");
        let cut = decoder.decompress_zlib_extent(&mut back, &stored[..len - 1]);
        assert!(cut.is_err() || zeros > 0);
    }
    assert!(ends[0] > 0 && ends[1] > 0 && ends[2] > 0, "{ends:?}");
}

/// An extent of btrfs reads back, padded or not, into a room of its size, with zeros behind it, and
/// cut where it may be.
#[test]
fn content_survives_as_an_extent() {
    let sector_bytes = 4096;
    let mut decoder = Decoder::new();
    for (settings, algorithm) in [
        (Settings::Zlib { level: 6 }, Algorithm::Zlib),
        (Settings::Zstd { level: 3 }, Algorithm::Zstd),
        (Settings::Lzo, Algorithm::LzoBtrfs { sector_bytes }),
        (
            Settings::LzoOptimal { level: 9 },
            Algorithm::LzoBtrfs { sector_bytes },
        ),
    ] {
        if !algorithm.is_built() {
            continue;
        }
        let mut encoder = Encoder::new(&settings).unwrap();
        for content in contents() {
            let what = format!("{settings:?}, {} bytes", content.len());
            let mut stored = vec![0; content.len() * 2 + 5000];
            let len = encoder
                .compress_extent(sector_bytes, &mut stored, &content)
                .expect("there is room");
            for end in [len, len.next_multiple_of(sector_bytes as usize)] {
                let stored = &stored[..end];
                assert!(algorithm.is_extent(stored), "{what}");
                let mut back = vec![0xaa; content.len() + 5000];
                for room in [content.len(), content.len() + 5000] {
                    let back = &mut back[..room];
                    let decoded = decoder.decompress_extent(algorithm, back, stored);
                    assert_eq!(decoded, Ok(content.len()), "{what}");
                    assert!(back[..content.len()] == content, "{what}");
                    assert!(back[content.len()..].iter().all(|&byte| byte == 0));
                }
                if content.len() > 4096 {
                    let first = &mut back[..4096];
                    let decoded = decoder.decompress_extent(algorithm, first, stored);
                    if algorithm == Algorithm::Zlib {
                        assert_eq!(decoded, Err(Error::DstSizeTooSmall), "{what}");
                    } else {
                        assert_eq!(decoded, Ok(4096), "{what}");
                        assert!(first == &content[..4096], "{what}");
                    }
                }
            }
        }
    }
}

/// Linux reads no window of more than 128 KiB and no dictionary.
#[cfg(feature = "zstd")]
#[test]
fn an_extent_has_a_small_window_and_no_dictionary() {
    let mut decoder = Decoder::new();
    let content = vec![7; 256 << 10];
    let mut encoder = Encoder::new(&Settings::Zstd { level: 3 }).unwrap();
    for (len, is_extent) in [(128 << 10, true), ((128 << 10) + 1, false)] {
        let mut stored = vec![0; 1000];
        let end = encoder.compress(&mut stored, &content[..len]).unwrap();
        let mut back = vec![0; len];
        assert_eq!(Algorithm::Zstd.is_extent(&stored), is_extent, "{len}");
        let decoded = decoder.decompress_extent(Algorithm::Zstd, &mut back, &stored);
        assert_eq!(decoded.is_ok(), is_extent, "{len}");
        assert!(!Algorithm::Zstd.is_extent(&stored[..end - 1]));
    }
    // A frame with one segment of three bytes, in a raw block.
    let plain = b"\x28\xb5\x2f\xfd\x20\x03\x19\0\0abc";
    let with_dictionary = b"\x28\xb5\x2f\xfd\x21\x05\x03\x19\0\0abc";
    let mut back = [0; 3];
    assert!(Algorithm::Zstd.is_extent(plain));
    assert_eq!(
        decoder.decompress_extent(Algorithm::Zstd, &mut back, plain),
        Ok(3)
    );
    assert_eq!(&back, b"abc");
    assert!(!Algorithm::Zstd.is_extent(with_dictionary));
    let decoded = decoder.decompress_extent(Algorithm::Zstd, &mut back, with_dictionary);
    assert!(decoded.is_err());
}

#[test]
fn noise_is_not_stored_larger() {
    let noise = contents()
        .into_iter()
        .filter(|content| content.len() == 131_072)
        .nth(2)
        .unwrap();
    for settings in all_settings() {
        let mut dst = vec![0; noise.len() - 1];
        assert_eq!(
            Encoder::new(&settings).unwrap().compress(&mut dst, &noise),
            None,
            "{settings:?}"
        );
    }
}

#[test]
fn damage_is_an_error_or_other_content() {
    let mut decoder = Decoder::new();
    let content = contents().pop().unwrap()[..3000].to_vec();
    for settings in all_settings() {
        let mut packed = vec![0; 8000];
        let len = Encoder::new(&settings)
            .unwrap()
            .compress(&mut packed, &content)
            .unwrap();
        packed.truncate(len);
        let mut back = vec![0; 4000];
        for at in 0..len {
            for flip in [1, 0x80, 0xff] {
                packed[at] ^= flip;
                let result = decoder.decompress(settings.algorithm(), &mut back, &packed);
                assert!(result.is_err() || result.is_ok_and(|len| len <= back.len()));
                if matches!(settings.algorithm(), Algorithm::Zlib | Algorithm::Xz) && result.is_ok()
                {
                    assert!(
                        back[..content.len()] == content,
                        "checksums catch {settings:?} at {at}"
                    );
                }
                packed[at] ^= flip;
            }
            // An LZ4 block has no end mark: cut between two sequences, it is a shorter block.
            let cut = decoder.decompress(settings.algorithm(), &mut back, &packed[..at]);
            assert!(
                cut.is_err()
                    || settings.algorithm() == Algorithm::Lz4
                        && cut.is_ok_and(|len| len < content.len())
            );
        }
    }
}

#[cfg(feature = "xz")]
#[test]
fn an_xz_header_may_not_ask_for_gigabytes() {
    let mut packed = vec![0; 200];
    let settings = Settings::Xz {
        level: 0,
        extreme: false,
        dictionary_bytes: 1 << 26,
        filters: Filters(0),
    };
    let len = Encoder::new(&settings)
        .unwrap()
        .compress(&mut packed, b"some text")
        .unwrap();
    // The dictionary's size is the fourth byte of the block header, which ends with its own CRC32.
    let header = &mut packed[12..24];
    assert_eq!(header[..4], [2, 0, 0x21, 1]);
    header[4] = 40;
    let mut crc = !0u32;
    for &byte in &header[..8] {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    header[8..].copy_from_slice(&(!crc).to_le_bytes());
    assert_eq!(
        Decoder::new().decompress(Algorithm::Xz, &mut [0; 100], &packed[..len]),
        Err(Error::MemoryLimit)
    );
}

#[test]
fn settings_out_of_range_are_refused() {
    for settings in [
        Settings::Zstd { level: 0 },
        Settings::Zstd { level: 23 },
        Settings::Zlib { level: 0 },
        Settings::Zlib { level: 13 },
        Settings::Lz4Hc { level: 1 },
        Settings::Lz4Hc { level: 13 },
        Settings::Xz {
            level: 10,
            extreme: false,
            dictionary_bytes: 8192,
            filters: Filters(0),
        },
        Settings::Xz {
            level: 6,
            extreme: false,
            dictionary_bytes: 100,
            filters: Filters(0),
        },
        Settings::Xz {
            level: 6,
            extreme: false,
            dictionary_bytes: 8192,
            filters: Filters(0x100),
        },
    ] {
        let error = Encoder::new(&settings).err();
        let is_built = settings.algorithm().is_built();
        assert!(
            !is_built || matches!(error, Some(Error::Settings(_))),
            "{settings:?}"
        );
    }
}
