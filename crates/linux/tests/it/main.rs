//! Tests of the linux crate. System calls are tested beside their functions.

mod examples;
