#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

mod ahead;
mod attributes;
mod counters;
mod device;
mod directory;
mod files;
mod greeting;
mod listing;
mod lookup;
mod numbers;
mod places;
mod raw;
mod reply;
mod served;
mod server;
mod siblings;

pub use attributes::Owner;
pub use counters::Counters;
pub use device::FuseDevice;
pub use numbers::Numbers;
pub use served::{DirectoryBytes, Options, Problem, Trace};
pub use server::Server;
