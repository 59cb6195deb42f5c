//! The two kinds of bit streams (RFC 8878, section 4).

/// Bits that are read from the first byte on, least significant first.
#[derive(Default)]
pub(crate) struct ForwardBits {
    bytes: Vec<u8>,
    used: usize,
}

impl ForwardBits {
    pub(crate) fn push(&mut self, value: u64, count: u32) {
        for bit in 0..count {
            if self.used.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let byte = self.bytes.last_mut().expect("pushed above");
            *byte |= ((value >> bit & 1) as u8) << (self.used % 8);
            self.used += 1;
        }
    }

    /// The bytes; unused bits of the last one are zero.
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Bits that are read from the last byte on, collected in the order in which a decoder reads them.
#[derive(Default)]
pub(crate) struct BackwardBits(Vec<(u64, u32)>);

impl BackwardBits {
    pub(crate) fn push(&mut self, value: u64, count: u32) {
        self.0.push((value, count));
    }

    /// The bytes, ended by the mark bit.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bits = ForwardBits::default();
        for (value, count) in self.0.into_iter().rev() {
            bits.push(value, count);
        }
        bits.push(1, 1);
        bits.bytes()
    }
}

#[test]
fn a_decoder_reads_backward_what_was_pushed_first() {
    let mut bits = BackwardBits::default();
    bits.push(0b101, 3);
    bits.push(0b0, 1);
    bits.push(0b11_0010, 6);
    // From the end: the mark 1, then 101, 0 and 110010; the last byte holds the mark and two bits
    // of the first value.
    assert_eq!(bits.bytes(), [0b1011_0010, 0b110]);
}
