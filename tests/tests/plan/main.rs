//! The plan engine without a GPU: recordings, kernel calls, places, memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(not(target_family = "wasm"))]

mod bounds;
mod brute_force;
mod machine;
mod memory;
mod networks;
mod places;
mod random_graphs;
mod recording;
mod strips;
mod vae;
mod vae_tiling;
mod values;
