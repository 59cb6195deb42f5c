//! Tests of several modules.

mod bars;
