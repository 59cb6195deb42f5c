//! The integration tests of `restow`. The tests of the command run most of the library, too.

mod append;
mod disk_files;
mod examples;
mod index;
mod memory;
