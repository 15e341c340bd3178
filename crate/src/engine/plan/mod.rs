//! The plan engine's half that needs no GPU: a network is recorded once, its operations become kernel calls, and every activation gets
//! a place in an arena before a byte of the model is downloaded.
//!
//! [`recorder`] -> [`graph`] -> `lower` (which operations one kernel does, and where it may write in place) -> `liveness` -> `arena`
//! (places) -> `verify` (the proof) -> `memory_plan` (the promise).

pub mod graph;
pub mod recorder;

pub use graph::{Graph, Node, Op, Rate, ValueId, WeightId, WeightInfo};
pub use recorder::{Recorder, Symbolic};
