//! What the tests share: fixtures of diffusers, the tiny models, and test bodies that run natively and in a browser.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    async_fn_in_trait
)]

pub mod fixture;
#[cfg(feature = "burn")]
pub mod modules;
pub mod tiny;
