//! Bit streams without bounds checks.
//!
//! The loops lie in `streams`, which is compiled twice. The compiler uses BMI instructions where
//! the machine has them.

#[cfg(target_arch = "x86_64")]
use super::bmi::has_bmi;
use super::find::kernel;
use super::streams;
use super::streams::sequences::{RunTables, StartState};

kernel!(
    /// [`streams::sequences::write_bits`].
    write_bits,
    write_bits_bmi if has_bmi,
    (
        out: &mut [u8],
        reversed: &[[u8; 8]],
        tables: RunTables<'_>,
        starts: [StartState; 3],
    ) -> Option<usize>,
    streams::sequences::write_bits(out, reversed, tables, starts)
);

kernel!(
    /// [`streams::literals::write_stream`].
    write_stream,
    write_stream_bmi if has_bmi,
    (out: &mut [u8], literals: &[u8], codes: &[[u8; 8]; 256], longest: u8) -> Option<usize>,
    streams::literals::write_stream(out, literals, codes, longest)
);
