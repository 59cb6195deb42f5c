//! Chooses the filter that makes machine code easier to compress, from the architecture in its ELF
//! header.

use codec::Filters;

/// Number of bytes at the start of a file that identify it.
pub(crate) const HEADER_BYTES: usize = 40;

/// All filters that [`filter_of`] can return.
pub(crate) const FILTERS: Filters = Filters::ALL;

/// The filter for a file that starts with these bytes; no filter if it is not a program.
pub(crate) fn filter_of(header: &[u8; HEADER_BYTES]) -> Filters {
    let &[0x7f, b'E', b'L', b'F', _, order, ..] = header else {
        return Filters(0);
    };
    let is_big = order == 2;
    let machine = [header[18], header[19]];
    let machine = if is_big {
        u16::from_be_bytes(machine)
    } else {
        u16::from_le_bytes(machine)
    };
    // `e_flags` of a 32-bit header; EF_ARM_ABI_FLOAT_HARD. Systems with this flag consist of Thumb
    // code.
    let flags = u32::from_le_bytes([header[36], header[37], header[38], header[39]]);
    match machine {
        3 | 62 => Filters::X86,
        20 | 21 if is_big => Filters::POWERPC,
        50 if !is_big => Filters::IA64,
        40 if !is_big && flags & 0x400 != 0 => Filters::ARM_THUMB,
        40 if !is_big => Filters::ARM,
        2 | 18 | 43 => Filters::SPARC,
        183 => Filters::ARM64,
        243 => Filters::RISCV,
        _ => Filters(0),
    }
}

/// How much of a block with many files is code for each architecture.
#[derive(Default)]
pub(crate) struct CodeShares {
    bytes: [usize; 8],
}

impl CodeShares {
    /// Counts a file.
    pub(crate) fn add(&mut self, filter: Filters, bytes: usize) {
        if let Some(sum) = self.bytes.get_mut(filter.0.trailing_zeros() as usize) {
            *sum += bytes;
        }
    }

    /// The filter for most of the code in a block of `len` bytes; no filter if that code is less
    /// than a quarter of the block.
    pub(crate) fn most(&self, len: usize) -> Filters {
        let all = (0u32..).zip(self.bytes);
        let most = all.max_by_key(|&(bit, bytes)| (bytes, std::cmp::Reverse(bit)));
        match most {
            Some((bit, bytes)) if bytes > 0 && bytes >= len / 4 => Filters(1 << bit),
            _ => Filters(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_recognised() {
        let header = |class: u8, order: u8, machine: u16, flags: u32| {
            let mut header = [0; HEADER_BYTES];
            header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order]);
            let machine = if order == 2 {
                machine.to_be_bytes()
            } else {
                machine.to_le_bytes()
            };
            header[18..20].copy_from_slice(&machine);
            header[36..].copy_from_slice(&flags.to_le_bytes());
            filter_of(&header)
        };
        assert_eq!(header(2, 1, 62, 0), Filters::X86);
        assert_eq!(header(1, 2, 20, 0), Filters::POWERPC);
        assert_eq!(header(2, 1, 21, 0), Filters(0));
        assert_eq!(header(1, 1, 40, 0x0500_0400), Filters::ARM_THUMB);
        assert_eq!(header(1, 1, 40, 0x0500_0200), Filters::ARM);
        assert_eq!(header(2, 1, 183, 0), Filters::ARM64);
        assert_eq!(header(2, 1, 243, 0), Filters::RISCV);
        assert_eq!(
            filter_of(
                b"#!/bin/sh and nothing more than text here"[..40]
                    .try_into()
                    .unwrap()
            ),
            Filters(0)
        );
    }

    #[test]
    fn a_quarter_decides() {
        let mut code = CodeShares::default();
        code.add(Filters(0), 700);
        code.add(Filters::X86, 200);
        code.add(Filters::ARM64, 100);
        assert_eq!(code.most(1000), Filters(0));
        assert_eq!(code.most(800), Filters::X86);
        assert_eq!(CodeShares::default().most(0), Filters(0));
    }
}
