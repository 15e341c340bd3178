//! Planned networks on a native adapter with WebGPU's default limits: the values of diffusers, whatever the plan chooses; the memory that was
//! promised, and none of it afterwards.
//!
//! Needs a Vulkan, Metal or DX12 adapter; without a GPU, Mesa's software adapter lavapipe does. A driver may ask for the environment
//! variable `XDG_RUNTIME_DIR` to name a folder.
#![cfg(all(feature = "plan", not(target_family = "wasm")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod replay {
    mod autotune;
    mod faults;
    mod memory;
    mod networks;
    mod pictures;
    mod vae;
    mod values;
    mod weights;
}
