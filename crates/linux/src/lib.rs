//! The Linux system calls that the standard library lacks, safe on the outside.
