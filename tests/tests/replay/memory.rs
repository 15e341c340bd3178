//! The memory that was promised is the memory that is taken, and it is given back.

use std::sync::Arc;

use latent_canvas::{
    engine::plan::{Gpu, LowerOptions, Network, Plan, ReplayOptions},
    kernels::{Precision, Tile, Tuning},
    models::names::Component,
};
use latent_canvas_tests::{
    planned::weights_kept_over_two_plans,
    tiny::{TINY_DEEP, TINY_MODEL, Tiny},
};
use pollster::block_on;

use super::networks::{
    TIMESTEPS, fill, new_gpu, run_text, run_unet, run_vae, text_network, unet_graph, unet_network,
    vae_network,
};

fn options(precision: Precision) -> LowerOptions {
    LowerOptions {
        hoist_schedule: Some(TIMESTEPS.len()),
        ..LowerOptions::new(precision)
    }
}

/// After a run: counted by the buffers, counted by the device, promised by the plan.
fn check(gpu: &Gpu, network: Network) {
    let (promised, counted) = (network.promised(), network.counted());
    println!(
        "{} {counted:?}, {} dispatches a run in {} submissions, {} once",
        promised.stage,
        promised.run.dispatches,
        network.submissions_per_run(),
        promised.once.dispatches,
    );
    assert_eq!(counted.weights_bytes, promised.weights_bytes);
    assert_eq!(counted.arena_bytes, promised.arena_bytes);
    assert_eq!(counted.staging_bytes, promised.staging_bytes);
    assert_eq!(gpu.memory().live_bytes(), promised.peak_bytes);
    assert_eq!(gpu.memory().peak_bytes(), promised.peak_bytes);
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), 0);
}

fn unet(tiny: &Tiny, precision: Precision, passes: usize) {
    let gpu = Arc::new(new_gpu());
    let fixture = tiny.odd_unet_fixture();
    let mut network = unet_network(&gpu, tiny, &fixture, &options(precision), passes);
    run_unet(&mut network, tiny, &fixture);
    check(&gpu, network);
}

#[test]
fn the_peak_is_the_promise() {
    for precision in [Precision::F32, Precision::F16] {
        unet(&TINY_MODEL, precision, 1);
        unet(&TINY_DEEP, precision, 2);
    }
    let tiny = &TINY_MODEL;
    let options = options(Precision::F32);
    let gpu = Arc::new(new_gpu());
    let fixture = tiny.text_fixture();
    let mut network = text_network(&gpu, tiny, &fixture, &options);
    run_text(&mut network, &fixture);
    check(&gpu, network);
    let gpu = Arc::new(new_gpu());
    let fixture = tiny.vae_fixture();
    let mut network = vae_network(&gpu, tiny, &fixture, &options);
    run_vae(&mut network, tiny, &fixture);
    check(&gpu, network);
}

/// Stage by stage: what one network took is free before the next takes it.
#[test]
fn networks_one_after_another_take_what_the_largest_takes() {
    let gpu = Arc::new(new_gpu());
    let tiny = &TINY_MODEL;
    let options = options(Precision::F32);
    let text = text_network(&gpu, tiny, &tiny.text_fixture(), &options);
    let mut peaks = vec![text.promised().peak_bytes];
    drop(text);
    let unet = unet_network(&gpu, tiny, &tiny.unet_fixture(), &options, 1);
    peaks.push(unet.promised().peak_bytes);
    drop(unet);
    let vae = vae_network(&gpu, tiny, &tiny.vae_fixture(), &options);
    peaks.push(vae.promised().peak_bytes);
    drop(vae);
    assert_eq!(gpu.memory().peak_bytes(), peaks.into_iter().max().unwrap());
    assert_eq!(gpu.memory().live_bytes(), 0);
}

fn predictions(gpu: &Arc<Gpu>, replay: ReplayOptions) -> (usize, Vec<f32>) {
    let tiny = &TINY_MODEL;
    let fixture = tiny.unet_fixture();
    let graph = unet_graph(tiny, &fixture, 1);
    let plan = Plan::new(graph, &options(Precision::F32), 1, gpu.limits()).unwrap();
    let mut network = block_on(Network::new(gpu, plan, replay)).unwrap();
    fill(&mut network, Component::UNet, tiny.unet);
    let values = run_unet(&mut network, tiny, &fixture).concat();
    (network.submissions_per_run(), values)
}

/// Short submissions, one call each, give the same bits as one long one; so does every tile.
#[test]
fn replay_options_change_no_bit() {
    let gpu = Arc::new(new_gpu());
    let usual = ReplayOptions {
        is_adaptive: false,
        ..ReplayOptions::new(&gpu)
    };
    let (submissions, expected) = predictions(&gpu, usual);
    assert_eq!(submissions, 1);
    let short = ReplayOptions {
        work_per_submission: 1,
        ..usual
    };
    let (submissions, values) = predictions(&gpu, short);
    assert!(submissions > 100, "{submissions}");
    assert!(values == expected);
    for tile in Tile::ALL {
        let tuning = Tuning::by_rule(Some(tile));
        let (_, values) = predictions(&gpu, ReplayOptions { tuning, ..usual });
        assert!(values == expected, "{tile:?}");
    }
}

/// Submissions grow to some milliseconds of the GPU, from whatever they start with; it changes no bit.
#[test]
fn submissions_follow_the_speed_of_the_gpu() {
    let tiny = &TINY_MODEL;
    let fixture = tiny.unet_fixture();
    let values = [1, u64::MAX].map(|work_per_submission| {
        let gpu = Arc::new(new_gpu());
        let graph = unet_graph(tiny, &fixture, 1);
        let plan = Plan::new(graph, &options(Precision::F32), 1, gpu.limits()).unwrap();
        let replay = ReplayOptions {
            work_per_submission,
            ..ReplayOptions::new(&gpu)
        };
        assert!(replay.is_adaptive);
        let mut network = block_on(Network::new(&gpu, plan, replay)).unwrap();
        fill(&mut network, Component::UNet, tiny.unet);
        let first = run_unet(&mut network, tiny, &fixture).concat();
        for _ in 0..8 {
            assert!(run_unet(&mut network, tiny, &fixture).concat() == first);
        }
        let (submissions, calls) = (
            network.submissions_per_run(),
            network.promised().run.dispatches,
        );
        println!("{submissions} submissions for {calls} dispatches");
        assert!(submissions < calls / 4, "{submissions} of {calls}");
        first
    });
    assert!(values[0] == values[1]);
}

/// A plan of another size, precision and guidance reads the weights that are there.
#[test]
fn weights_outlive_a_plan() {
    for tiny in [&TINY_MODEL, &TINY_DEEP] {
        block_on(weights_kept_over_two_plans(&Arc::new(new_gpu()), tiny));
    }
}
