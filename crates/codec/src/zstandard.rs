//! Zstandard frames, by this project's own encoder.

use crate::Error;

pub(crate) struct Encoder {
    level: i32,
    /// As large as the largest block so far needed.
    workspace: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(level: i32) -> Result<Self, Error> {
        if level == 0 || !(zstd::LEVEL_MIN..=zstd::LEVEL_MAX).contains(&level) {
            return Err(Error::Settings(
                "zstd level is not -131072 to -1 or 1 to 22",
            ));
        }
        Ok(Encoder {
            level,
            workspace: Vec::new(),
        })
    }

    pub(crate) fn compress(&mut self, dst: &mut [u8], src: &[u8]) -> Option<usize> {
        let params = zstd::Params::for_level(self.level, Some(src.len() as u64));
        let needed = zstd::workspace_size(&params);
        if self.workspace.len() < needed {
            self.workspace.resize(needed, 0);
        }
        zstd::compress(dst, src, &params, &mut self.workspace).ok()
    }
}
