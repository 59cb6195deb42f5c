//! The tests of send streams against the kernel's own, and against hostile ones.

mod changes; // of trees in memory, replayed over their parents
mod convert; // replayed before and after
mod damage; // cuts and flips
mod encoded; // extents of any length
mod hostile; // streams that mean harm
mod json; // as JSON lines and back
mod kernel; // converted streams, received by Linux
mod model; // what a stream makes of files, in memory
mod printed; // as btrfs receive --dump prints it
mod replayed; // as trees of files
mod sample; // streams
mod vectors; // read and written again
