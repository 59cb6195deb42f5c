//! Tests of the codec through its public interface, by layer.

mod decode;
