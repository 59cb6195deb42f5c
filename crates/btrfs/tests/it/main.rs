//! Tests of btrfs images: written by the kernel, created by us, and hostile.
#![forbid(unsafe_code)]

mod check;
mod copied;
mod create;
mod damage;
mod devices;
mod encoding;
mod fields;
mod holes; // nothing costs what holes claim
mod hostile;
mod images;
mod judges;
mod kernel;
mod many;
mod packed;
mod parts;
mod replay;
mod rescue;
mod reuse;
mod shapes;
mod small;
mod snapshots;
mod states;
mod subvolumes;
mod verdicts;
