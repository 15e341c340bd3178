//! What the tests share: fixtures of diffusers, the tiny models, and test bodies that run natively and in a browser.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    async_fn_in_trait
)]

pub mod fixture;
#[cfg(feature = "plan")]
pub mod full_size;
#[cfg(all(feature = "plan", not(target_family = "wasm")))]
pub mod gpu;
#[cfg(all(feature = "plan", not(target_family = "wasm")))]
pub mod kernel_case;
#[cfg(feature = "burn")]
pub mod modules;
#[cfg(feature = "plan")]
pub mod planned;
pub mod tiny;
