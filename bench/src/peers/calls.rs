//! The calls of all codecs, and how a stream is divided.

/// Bytes that go into a stream, and out of it, in one call.
pub(super) const PIECE: usize = 4096;

pub(super) trait Decode {
    fn decode(&mut self, frame: &[u8], output: &mut [u8]) -> Result<usize, String>;

    fn decode_stream(&mut self, _: &[u8], _: &mut [u8]) -> Result<usize, String> {
        Err("it does not decode streams here".to_owned())
    }
}

pub(super) trait Encode {
    fn encode(&mut self, level: i32, content: &[u8], output: &mut [u8]) -> Result<usize, String>;

    fn encode_stream(&mut self, _: i32, _: &[u8], _: &mut [u8]) -> Result<usize, String> {
        Err("it does not encode streams here".to_owned())
    }
}
