//! Bytes to named tensors. Knows no model, no tensor library and no GPU.
//!
//! A [`ByteSource`] delivers a file in chunks, [`SafetensorsStream`] turns chunks of any size into pieces of
//! named tensors, and [`load_safetensors`] joins the two and checks the file against a [`Manifest`] while it
//! arrives. Nothing here ever holds a whole weights file.

pub mod decode;
pub mod dtype;
pub mod error;
pub mod index;
pub mod load;
pub mod manifest;
pub mod progress;
pub mod sniff;
pub mod source;
pub mod stream;

pub use decode::decode_f32;
pub use dtype::Dtype;
pub use error::LoadError;
pub use index::{SafetensorsIndex, TensorInfo};
pub use load::{load_safetensors, load_text};
pub use manifest::{Manifest, ManifestFile};
pub use progress::{Progress, ProgressSum};
#[cfg(not(target_family = "wasm"))]
pub use source::disk::DiskSource;
#[cfg(target_family = "wasm")]
pub use source::fetch::FetchSource;
pub use source::memory::MemorySource;
pub use source::{ByteSource, read_text};
pub use stream::{SafetensorsStream, TensorSink};
