//! Bytes to named tensors. Knows no model, no tensor library and no GPU.

pub mod error;

pub use error::LoadError;
