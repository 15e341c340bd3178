//! The shared bodies, natively: each call runs to its end.

use std::sync::{Arc, OnceLock};

use latent_canvas::{
    engine::plan::{Gpu, Graph, LowerOptions, Network},
    models::names::Component,
};
use latent_canvas_tests::{fixture::Fixture, planned, tiny::Tiny};
use pollster::block_on;

pub(super) use latent_canvas_tests::planned::{TIMESTEPS, fill_whole, unet_graph};

/// The one device of this program.
pub(super) fn gpu() -> &'static Arc<Gpu> {
    static GPU: OnceLock<Arc<Gpu>> = OnceLock::new();
    GPU.get_or_init(|| Arc::new(new_gpu()))
}

/// A device of its own, for tests that count its memory or lose it.
pub(super) fn new_gpu() -> Gpu {
    block_on(planned::new_gpu())
}

pub(super) fn network(
    gpu: &Arc<Gpu>,
    graph: Graph,
    options: &LowerOptions,
    passes: usize,
    component: Component,
    bytes: &[u8],
) -> Network {
    block_on(planned::network(
        gpu, graph, options, passes, component, bytes,
    ))
}

pub(super) fn fill(network: &mut Network, component: Component, bytes: &[u8]) {
    block_on(planned::fill(network, component, bytes));
}

pub(super) fn unet_network(
    gpu: &Arc<Gpu>,
    tiny: &Tiny,
    fixture: &Fixture,
    options: &LowerOptions,
    passes: usize,
) -> Network {
    block_on(planned::unet_network(gpu, tiny, fixture, options, passes))
}

pub(super) fn run_unet(network: &mut Network, tiny: &Tiny, fixture: &Fixture) -> Vec<Vec<f32>> {
    block_on(planned::run_unet(network, tiny, fixture))
}

pub(super) fn text_network(
    gpu: &Arc<Gpu>,
    tiny: &Tiny,
    fixture: &Fixture,
    options: &LowerOptions,
) -> Network {
    block_on(planned::text_network(gpu, tiny, fixture, options))
}

pub(super) fn run_text(network: &mut Network, fixture: &Fixture) -> Vec<f32> {
    block_on(planned::run_text(network, fixture))
}

pub(super) fn vae_network(
    gpu: &Arc<Gpu>,
    tiny: &Tiny,
    fixture: &Fixture,
    options: &LowerOptions,
) -> Network {
    block_on(planned::vae_network(gpu, tiny, fixture, options))
}

pub(super) fn run_vae(network: &mut Network, tiny: &Tiny, fixture: &Fixture) -> Vec<f32> {
    block_on(planned::run_vae(network, tiny, fixture))
}
