//! The integration tests of `fuse`: a script of requests instead of a kernel.

mod script;

mod answers; // what each request is answered
mod examples; // the program in `examples`
mod hostile; // requests and trees that mean harm
