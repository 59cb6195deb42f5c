//! Decodes clusters.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::io::Read;

use codec::{Algorithm, Decoder, Wrapper, ZstdFrame};
use tree::{Error, Result, to_u64, to_usize};

use crate::image::{DecodedPiece, Erofs};
use crate::lz4;
use crate::piece::{CONTENT_BYTES_MAX, Format, StoredCluster, StoredPlace};
use crate::superblock::incompat;

/// The longest content of a compressed extent of btrfs, and its largest window.
const EXTENT_BYTES_MAX: u64 = 128 << 10;
/// The header of a zlib stream with a window of 32 KiB.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x9c];
/// The smallest page of Linux.
const PAGE_BYTES: u64 = 4096;
/// The header of a gzip file (RFC 1952) without a name.
const GZIP_HEADER: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

impl Erofs {
    /// Calls `run` with the content of a cluster, from the cache if it is there, and the length of
    /// the whole content, of which the end may not be shown.
    pub(crate) fn with_cluster<T>(
        &self,
        cluster: &StoredCluster,
        run: impl FnOnce(&[u8], u64) -> T,
    ) -> Result<T> {
        let len = to_usize(cluster.len);
        // Clusters at one place can be shown in different lengths.
        let key = cluster.place.key() ^ cluster.len.rotate_left(40);
        let piece = self.pieces.find_or_make(key, len, |gone| {
            let mut content = gone.map(|gone| gone.content).unwrap_or_default();
            let content_len = self.decode(cluster, &mut content)?;
            Ok::<_, Error>(DecodedPiece {
                cluster: *cluster,
                content,
                content_len,
            })
        })?;
        if piece.cluster == *cluster {
            return Ok(run(&piece.content, piece.content_len));
        }
        // Another one has the same key by accident.
        let mut content = Vec::new();
        let content_len = self.decode(cluster, &mut content)?;
        Ok(run(&content, content_len))
    }

    /// Decodes as much of a cluster as is shown. Returns the length of the whole content of zstd
    /// and deflate; of the other codecs, that of the shown part.
    pub(crate) fn decode(&self, cluster: &StoredCluster, content: &mut Vec<u8>) -> Result<u64> {
        // Old content is overwritten.
        content.resize(to_usize(cluster.len), 0);
        self.with_decoder(|worker| {
            let mut stored = std::mem::take(&mut worker.stored);
            stored.resize(to_usize(cluster.stored_len), 0);
            let result = self.decode_with(&mut worker.decoder, cluster, &mut stored, content);
            worker.stored = stored;
            result
        })
    }

    /// Reads the stored bytes of a cluster without the zeros before them. Returns also whether such
    /// zeros are skipped, and the place.
    fn read_cluster<'a>(
        &self,
        cluster: &StoredCluster,
        stored: &'a mut [u8],
    ) -> Result<(&'a [u8], bool, u64)> {
        let at = match cluster.place {
            StoredPlace::Data { device, at } => {
                self.read_stored(stored, device, at)?;
                at
            }
            StoredPlace::Meta(place) => {
                self.read_meta(place, stored)?;
                place.at
            }
        };
        let has_padding = self.superblock.incompat & incompat::ZERO_PADDING != 0;
        let is_padded = cluster.format != Format::Lz4 || has_padding;
        let stored: &[u8] = if is_padded {
            // In the first block, zeros come before the data.
            let room = (self.superblock.block_bytes()).saturating_sub(self.block_offset(at));
            let zeros = stored
                .iter()
                .take(to_usize(room))
                .take_while(|&&byte| byte == 0);
            stored.split_at(zeros.count()).1
        } else {
            stored
        };
        if stored.is_empty() || stored.first() == Some(&0) && is_padded {
            return Err(Error::corrupt(
                "cluster has no compressed data",
                at,
                cluster.stored_len,
            ));
        }
        Ok((stored, is_padded, at))
    }

    /// The zeros before the data of a cluster.
    pub(crate) fn zeros_before(&self, cluster: &StoredCluster) -> Result<u64> {
        let mut stored = vec![0; to_usize(cluster.stored_len)];
        let (data, _, _) = self.read_cluster(cluster, &mut stored)?;
        Ok(cluster.stored_len.saturating_sub(to_u64(data.len())))
    }

    /// Reads into `stored` the data of a cluster, without zeros before it.
    pub(crate) fn read_data(&self, cluster: &StoredCluster, stored: &mut Vec<u8>) -> Result<()> {
        stored.clear();
        stored.resize(to_usize(cluster.stored_len), 0);
        let (data, _, _) = self.read_cluster(cluster, stored)?;
        let skipped = to_usize(cluster.stored_len).saturating_sub(data.len());
        stored.drain(..skipped);
        Ok(())
    }

    /// Reads into `stored` the bytes of a cluster that a destination can take as they are: a zstd
    /// frame, an LZ4 block, or a deflate stream with the header of a zlib stream and room for its
    /// checksum, which [`Erofs::put_checksum`] adds. Returns the algorithm and the length of
    /// the content; `None` if the cluster has another codec, or if only a part of a content of
    /// unknown length is shown.
    pub(crate) fn read_frame(
        &self,
        cluster: &StoredCluster,
        stored: &mut Vec<u8>,
    ) -> Result<Option<(Algorithm, u64)>> {
        match cluster.format {
            Format::Lzma => return Ok(None),
            Format::Deflate => {
                self.read_data(cluster, stored)?;
                stored.splice(..0, ZLIB_HEADER);
                stored.extend([0; 4]);
                // Decoding it alone tells how long the content is.
                let len = if cluster.is_partial {
                    self.with_cluster(cluster, |_, len| len)?
                } else {
                    cluster.len
                };
                return Ok(Some((Algorithm::Zlib, len)));
            }
            Format::Lz4 | Format::Zstd => {}
        }
        stored.clear();
        stored.resize(to_usize(cluster.stored_len), 0);
        let (frame, is_padded, _) = self.read_cluster(cluster, stored)?;
        let (frame_len, mut len) = (frame.len(), frame.len());
        let known = (!cluster.is_partial).then_some(cluster.len);
        let content = if cluster.format == Format::Zstd {
            // A larger window is more than Linux allows a destination with units of this size.
            let window_max = cluster.len.max(EXTENT_BYTES_MAX);
            let Some(header) = ZstdFrame::parse(frame, window_max) else {
                return Ok(None);
            };
            len = header.bytes;
            header.content_bytes.or(known)
        } else {
            known.filter(|_| is_padded)
        };
        let skipped = stored.len().saturating_sub(frame_len);
        stored.truncate(skipped.saturating_add(len));
        stored.drain(..skipped);
        let algorithm = if cluster.format == Format::Zstd {
            Algorithm::Zstd
        } else {
            Algorithm::Lz4
        };
        let content = content.filter(|&content| content >= cluster.len);
        Ok(content.map(|content| (algorithm, content)))
    }

    /// Gives the zlib stream of a cluster the checksum of its content, behind its end.
    pub(crate) fn put_checksum(
        &self,
        cluster: &StoredCluster,
        content_len: u64,
        stored: &mut [u8],
    ) -> Result<()> {
        let whole = StoredCluster {
            len: content_len,
            ..*cluster
        };
        let sum = self.with_cluster(&whole, |content, _| adler32(content))?;
        let (header, room) = (ZLIB_HEADER.len(), 4);
        let stream_end = stored.len().saturating_sub(room);
        let is_whole = |end: usize| {
            let stream = stored.get(header..end).unwrap_or_default();
            self.with_decoder(|worker| {
                let mut content = vec![0; to_usize(content_len)];
                worker
                    .decoder
                    .decompress_deflate(&mut content, stream)
                    .is_ok()
            })
        };
        let mut end = stream_end;
        if is_whole(end.saturating_sub(1)) {
            let ends: Vec<usize> = (header..end).collect();
            end = header.saturating_add(ends.partition_point(|&end| !is_whole(end)));
        }
        let (_, rest) = stored.split_at_mut(end);
        rest.fill(0);
        for (to, byte) in rest.iter_mut().zip(sum.to_be_bytes()) {
            *to = byte;
        }
        Ok(())
    }

    /// Checks a decoded cluster for faults that only Linux finds.
    pub(crate) fn check_whole(&self, cluster: &StoredCluster, content: &mut [u8]) -> Result<()> {
        if cluster.is_partial && cluster.format != Format::Zstd {
            return Ok(());
        }
        let mut stored = vec![0; to_usize(cluster.stored_len)];
        let (stored, is_padded, at) = self.read_cluster(cluster, &mut stored)?;
        if cluster.format == Format::Zstd {
            let frame = ZstdFrame::parse(stored, u64::MAX);
            let declared = self.superblock.zstd_window_bytes;
            return match frame.filter(|frame| !fits_window(frame, declared)) {
                Some(frame) => {
                    let what = "zstd frame has a larger window than the settings say";
                    Err(Error::corrupt(what, at, frame.window_bytes))
                }
                None => Ok(()),
            };
        }
        let corrupt = |what| Err(Error::corrupt(what, at, cluster.stored_len));
        self.with_decoder(|worker| match cluster.format {
            // The library, which decodes padded blocks, copies from anywhere for a distance of 0.
            Format::Lz4 if is_padded && lz4::check_distances(stored).is_none() => {
                corrupt("lz4 block of an erofs cluster has an impossible distance")
            }
            Format::Lzma => {
                let dictionary = self.superblock.dictionary_bytes.to_le_bytes();
                let len = cluster.len.to_le_bytes();
                let (properties, body) = stored.split_at(1);
                let properties = properties.first().map_or(0, |byte| !byte);
                // The .lzma format, whose decoder looks at the end of a content of known length.
                let file = [&[properties], &dictionary[..], &len, &[0], body].concat();
                let cut = file.split_at(file.len().saturating_sub(1)).0;
                let decoder = &mut worker.decoder;
                let mut decode = |file| decoder.decompress(Algorithm::Lzma, content, file);
                if decode(&file).is_err() || decode(cut).is_ok() {
                    return corrupt("MicroLZMA stream does not end with its cluster");
                }
                Ok(())
            }
            Format::Deflate => {
                let from = at.saturating_add(cluster.stored_len);
                let from = from.saturating_sub(to_u64(stored.len()));
                if ends_early(&mut worker.decoder, stored, from, content) {
                    return corrupt(
                        "deflate stream ends in a page of its own, which Linux takes for damage",
                    );
                }
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn decode_with(
        &self,
        decoder: &mut Decoder,
        cluster: &StoredCluster,
        stored: &mut [u8],
        content: &mut Vec<u8>,
    ) -> Result<u64> {
        let (stored, is_padded, at) = self.read_cluster(cluster, stored)?;
        let of_codec = |error| Error::of_block(error, stored, at);
        let wanted = content.len();
        let len = match cluster.format {
            Format::Lz4 if cluster.is_partial || !is_padded => {
                let what = "lz4 block of an erofs cluster is corrupt";
                lz4::decode_beginning(stored, content).ok_or_else(|| Error::corrupt(what, at, 0))?
            }
            Format::Lz4 => {
                let len = decoder.decompress(Algorithm::Lz4, content, stored);
                len.map_err(of_codec)?
            }
            Format::Lzma => {
                let dictionary = self.superblock.dictionary_bytes;
                let result = decoder.decompress_micro_lzma(content, stored, dictionary);
                result.map(|()| wanted).map_err(of_codec)?
            }
            Format::Deflate | Format::Zstd => {
                let mut frame = stored;
                if cluster.format == Format::Zstd
                    && let Some(header) = ZstdFrame::parse(stored, u64::MAX)
                {
                    // As Linux does, ignore the bytes behind the frame.
                    frame = stored.split_at(header.bytes).0;
                    let content_bytes = header.content_bytes.unwrap_or(0);
                    let len = content_bytes.min(CONTENT_BYTES_MAX).max(to_u64(wanted));
                    content.resize(to_usize(len), 0);
                }
                // A frame can have more content than is shown: its length is not recorded.
                let len = loop {
                    let result = if cluster.format == Format::Zstd {
                        decoder.decompress(Algorithm::Zstd, content, frame)
                    } else {
                        decoder.decompress_deflate(content, frame)
                    };
                    let room = to_u64(content.len());
                    match result {
                        Err(codec::Error::DstSizeTooSmall) if room < CONTENT_BYTES_MAX => {
                            let room = room.saturating_mul(2).min(CONTENT_BYTES_MAX);
                            content.resize(to_usize(room), 0);
                        }
                        result => break result.map_err(of_codec)?,
                    }
                };
                content.truncate(wanted);
                if cluster.format == Format::Deflate && len > wanted && !cluster.is_partial {
                    let what = "deflate cluster's content is longer than its extent";
                    return Err(Error::corrupt(what, at, to_u64(len)));
                }
                len
            }
        };
        if len < wanted {
            let what = "cluster's content is shorter than its extent";
            return Err(Error::corrupt(what, at, to_u64(len)));
        }
        Ok(to_u64(len))
    }
}

/// Whether Linux decodes a frame in the memory for the declared window: room for a block of input,
/// and for the window, a block and some bytes more, or for the content if that is shorter
/// (`ZSTD_decodingBufferSize_min`). Content of a page fits without it.
fn fits_window(frame: &ZstdFrame, declared: u64) -> bool {
    const BLOCK_BYTES_MAX: u64 = 128 << 10;
    let needed = |window: u64, content: u64| {
        let block = window.min(BLOCK_BYTES_MAX);
        let room = window.saturating_add(block).saturating_add(64);
        block.saturating_add(room.min(content))
    };
    let content = frame.content_bytes.unwrap_or(u64::MAX);
    content <= PAGE_BYTES || needed(frame.window_bytes, content) <= needed(declared, u64::MAX)
}

/// Whether Linux has all content of a deflate stream, which begins at this address, in a page
/// before the one in which the stream ends. It hands over one page of stored data at a time, and
/// takes complete content then for damage.
fn ends_early(decoder: &mut Decoder, stream: &[u8], begin: u64, content: &mut [u8]) -> bool {
    let first = PAGE_BYTES.saturating_sub(begin % PAGE_BYTES);
    let ends = (to_usize(first)..stream.len()).step_by(to_usize(PAGE_BYTES));
    let ends: Vec<usize> = ends.collect();
    let Some((&last, (_, room))) = ends.last().zip(content.split_last_mut()) else {
        return false;
    };
    let mut decode =
        |content: &mut [u8], end| decoder.decompress_deflate(content, stream.split_at(end).0);
    // Usually, the last byte of the content needs the last page.
    if decode(room, last) != Err(codec::Error::DstSizeTooSmall) {
        return false;
    }
    // The last page that does not have the end, and the content that is known by then.
    let count = ends.partition_point(|&end| decode(content, end).is_err());
    let Some(&end) = count.checked_sub(1).and_then(|index| ends.get(index)) else {
        return false;
    };
    let mut input = GZIP_HEADER.chain(stream.split_at(end).0);
    let mut beginning = Vec::new();
    // The end is missing.
    let _ = Wrapper::Gzip.decompress(&mut input, &mut beginning);
    beginning.len() >= content.len()
}

/// The checksum of a zlib stream (RFC 1950).
fn adler32(content: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1_u32, 0_u32);
    // As many as cannot exceed 32 bits.
    for part in content.chunks(5552) {
        for &byte in part {
            low = low.wrapping_add(byte.into());
            high = high.wrapping_add(low);
        }
        (low, high) = (low % MODULUS, high % MODULUS);
    }
    high << 16 | low
}
