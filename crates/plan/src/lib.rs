//! Predicts what a copy of a tree would cost with each codec, level and block size, and chooses
//! one.
//!
//! The content is cut as the container would cut it. One fast encoder is run on all parts, or on
//! very many of a large tree: the *first pass*. A sample of the parts, stratified by kind and by
//! the result of the first pass, is then encoded, decoded and compared with every candidate, by the
//! same code that writes the container. How a candidate's lengths relate to those of the first pass
//! in each stratum gives the lengths of all other parts, and the writer makes its tables for them.
//! So metadata, padding and free space are those of a real image.
//!
//! The sample depends on the tree and the seed only. Times do not: they are read from a clock that
//! the caller provides.
//!
//! [`predict`] answers a [`Question`] with a [`CandidateRow`] for each [`Candidate`]; [`choose`]
//! finds the one to take:
//!
//! ```
//! use std::time::Instant;
//!
//! use plan::{Candidate, Container, Limits, Question};
//! use tree::{HostDir, Inventory, Parallel};
//!
//! let start = Instant::now();
//! let directory = HostDir::open("src".as_ref())?;
//! let inventory = Inventory::of(&directory, &tree::Limits::default())?;
//! let prediction = plan::predict(&Question {
//!     inventory: &inventory,
//!     container: Container::Tar,
//!     candidates: Candidate::usual(Container::Tar),
//!     parallel: Parallel::available(),
//!     processors: 1,
//!     seed: 0,
//!     first_bytes: 1 << 20,
//!     sample_bytes: 1 << 16,
//!     opened_seconds: 0.0,
//!     write_seconds: 0.5e-9, // each byte into the cache, and 500 MB a second to the medium
//!     read_seconds: 0.2e-9,
//!     medium_rate: 500e6,
//!     clock: &|| start.elapsed(),
//!     stage: &|_| {},
//! })?;
//! let limits = Limits { seconds_max: Some(60.0), ..Limits::default() };
//! let choice = plan::choose(&prediction.rows, &limits).expect("there are candidates");
//! let row = &prediction.rows[choice.row];
//! println!("{}: {:.0} bytes", row.candidate.words(Container::Tar), row.bytes.value);
//! # Ok::<(), tree::Error>(())
//! ```
#![forbid(unsafe_code)]

mod archive;
mod candidate;
mod choose;
mod cut;
mod estimate;
mod images;
mod population;
mod predict;
mod stream;

pub use candidate::{Candidate, Coding, Container};
pub use choose::{Choice, Goal, Limits, Reason, choose, front, marginal, transfer_seconds};
pub use predict::{CandidateRow, Prediction, PredictionStage, Question, Range, Sampled, predict};
