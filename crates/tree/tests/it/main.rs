//! The integration tests of `tree`, one module per layer.

mod compare;
mod dedup;
mod differential; // GNU tar and libarchive read ours, and we theirs
mod edit; // trees that are edited on the way
mod extract;
mod holes; // nothing costs what holes claim
mod host;
mod hostile; // trees and archives made to do harm
mod joined; // several trees as one
mod kernel;
mod merge; // trees that are put into directories with files
mod output;
mod overlay; // a tree over another one
mod rescue; // sources that cannot be read as a whole
mod toy; // what a new container costs
mod usage; // where the stored bytes of trees in memory are
