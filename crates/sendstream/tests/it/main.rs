//! The tests of send streams against the kernel's own, and against hostile ones.

mod sample;
mod vectors;
