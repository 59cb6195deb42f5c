//! The integration tests of `tree`, one module per layer.

mod host;
