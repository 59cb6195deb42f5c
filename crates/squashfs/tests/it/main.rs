//! Tests of SquashFS images.

mod aligned;
mod check;
mod create;
mod differential;
mod failures;
mod fields;
mod holes; // nothing costs what holes claim
mod hostile;
mod keep;
mod kernel;
mod matrix;
mod parts; // images that several machines make
mod reproducible;
mod rescue;
mod reuse;
mod sources;
mod unreadable;
mod vectors;
mod verdicts;
