//! The integration tests of `testkit`, one module per layer.

mod kernel;
