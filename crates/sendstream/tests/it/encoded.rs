//! Encoded extents of any length.

use codec::{Algorithm, Decoder, Encoder, Settings};
use sendstream::EncodedWrite;
use testkit::{Rng, cases};

/// Decoders may leave bytes of a copy behind the content.
#[test]
fn content_of_any_length_is_followed_by_zeros() {
    let mut rng = Rng::new(4);
    let (mut decoder, mut buffer) = (Decoder::new(), Vec::new());
    for (settings, compression) in [
        (Settings::Zlib { level: 3 }, Algorithm::Zlib),
        (Settings::Zstd { level: 3 }, Algorithm::Zstd),
        (Settings::Lzo, Algorithm::LzoBtrfs { sector_bytes: 4096 }),
    ] {
        let mut encoder = Encoder::new(&settings).unwrap();
        for _ in 0..cases(1000) {
            let words: Vec<Vec<u8>> = (1..9).map(|len| rng.bytes(len)).collect();
            let mut content = Vec::new();
            let len = 200 + rng.index(3000);
            while content.len() < len {
                content.extend_from_slice(&words[rng.index(words.len())]);
            }
            let mut data = vec![0; 8192];
            let stored = encoder.compress_extent(4096, &mut data, &content);
            data.truncate(stored.unwrap());
            for unencoded_len in [content.len() as u64, 4096] {
                let write = EncodedWrite {
                    path: b"f",
                    file_offset: 0,
                    unencoded_file_len: unencoded_len,
                    unencoded_len,
                    unencoded_offset: 0,
                    compression,
                    encryption: None,
                    data: &data,
                };
                let decoded = write.decode_exactly(&mut decoder, &mut buffer).unwrap();
                let (found, zeros) = decoded.split_at(content.len());
                assert!(found == content && zeros.iter().all(|&byte| byte == 0));
            }
        }
    }
}
