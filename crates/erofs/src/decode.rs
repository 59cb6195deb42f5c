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

use codec::{Algorithm, Decoder, ZstdFrame};
use tree::{Error, Result, to_u64, to_usize};

use crate::image::{DecodedPiece, Erofs};
use crate::lz4;
use crate::piece::{CONTENT_BYTES_MAX, Format, StoredCluster, StoredPlace};
use crate::superblock::incompat;

/// The longest content of a compressed extent of btrfs, and its largest window.
const EXTENT_BYTES_MAX: u64 = 128 << 10;

impl Erofs {
    /// Calls `run` with the content of a cluster, from the cache if it is there.
    pub(crate) fn with_cluster<T>(
        &self,
        cluster: &StoredCluster,
        run: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let len = to_usize(cluster.len);
        // Clusters at one place can be shown in different lengths.
        let key = cluster.place.key() ^ cluster.len.rotate_left(40);
        let piece = self.pieces.find_or_make(key, len, |gone| {
            let mut content = gone.map(|gone| gone.content).unwrap_or_default();
            self.decode(cluster, &mut content)?;
            Ok::<_, Error>(DecodedPiece {
                cluster: *cluster,
                content,
            })
        })?;
        if piece.cluster == *cluster {
            return Ok(run(&piece.content));
        }
        // Another one has the same key by accident.
        let mut content = Vec::new();
        self.decode(cluster, &mut content)?;
        Ok(run(&content))
    }

    /// Decodes as much of a cluster as is shown.
    pub(crate) fn decode(&self, cluster: &StoredCluster, content: &mut Vec<u8>) -> Result<()> {
        content.clear();
        content.resize(to_usize(cluster.len), 0);
        self.with_decoder(|worker| {
            let mut stored = std::mem::take(&mut worker.stored);
            stored.clear();
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
    /// frame, or an LZ4 block. Returns the algorithm and the length of the content; `None` if
    /// the cluster has another codec, or if only a part of a content of unknown length is shown.
    pub(crate) fn read_frame(
        &self,
        cluster: &StoredCluster,
        stored: &mut Vec<u8>,
    ) -> Result<Option<(Algorithm, u64)>> {
        if !matches!(cluster.format, Format::Lz4 | Format::Zstd) {
            return Ok(None);
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

    fn decode_with(
        &self,
        decoder: &mut Decoder,
        cluster: &StoredCluster,
        stored: &mut [u8],
        content: &mut Vec<u8>,
    ) -> Result<()> {
        let (stored, is_padded, at) = self.read_cluster(cluster, stored)?;
        let of_codec = |error| Error::of_block(error, stored, at);
        let short = |got: usize| {
            let what = "cluster's content is shorter than its extent";
            Err(Error::corrupt(what, at, to_u64(got)))
        };
        match cluster.format {
            Format::Lz4 if cluster.is_partial || !is_padded => {
                let len = lz4::decode_beginning(stored, content);
                match len {
                    Some(len) if len == content.len() => Ok(()),
                    Some(len) => short(len),
                    None => Err(Error::corrupt(
                        "lz4 block of an erofs cluster is corrupt",
                        at,
                        0,
                    )),
                }
            }
            Format::Lz4 => {
                let len = decoder.decompress(Algorithm::Lz4, content, stored);
                match len.map_err(of_codec)? {
                    len if len == content.len() => Ok(()),
                    len => short(len),
                }
            }
            Format::Lzma => {
                let dictionary = self.superblock.dictionary_bytes;
                let result = decoder.decompress_micro_lzma(content, stored, dictionary);
                result.map_err(of_codec)
            }
            Format::Deflate | Format::Zstd => {
                let wanted = content.len();
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
                if len < wanted { short(len) } else { Ok(()) }
            }
        }
    }
}
