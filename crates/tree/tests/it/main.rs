//! The integration tests of `tree`, one module per layer.

mod extract;
mod host;
mod hostile;
