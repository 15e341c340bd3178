//! Tiles by measurement: they change the speed, and not one bit of a picture.

use std::sync::Arc;

use latent_canvas::{
    engine::plan::{LowerOptions, Network, ReplayOptions},
    kernels::{Precision, Tile, Tuning},
};
use latent_canvas_tests::tiny::TINY_SD2;
use pollster::block_on;

use super::networks::{new_gpu, run_unet, unet_network};

#[test]
fn tiles_are_measured_and_change_no_bit() {
    let tiny = TINY_SD2;
    let fixture = tiny.unet_fixture();
    let gpu = Arc::new(new_gpu());
    let options = LowerOptions::new(Precision::F32);
    let mut before = unet_network(&gpu, &tiny, &fixture, &options, 1);
    let expected = run_unet(&mut before, &tiny, &fixture);
    let weights = before.weights();
    let plan = before.plan().clone();
    drop(before);

    let make = |replay: ReplayOptions| {
        let (plan, weights) = (plan.clone(), Arc::clone(&weights));
        block_on(Network::with_weights(&gpu, plan, weights, replay)).unwrap()
    };
    let network = make(ReplayOptions::new(&gpu));
    let (tuning, rows) = block_on(network.autotune(Tuning::default(), 1e9)).unwrap();
    assert!(rows.len() > 1, "{rows:?}");
    for row in &rows {
        println!(
            "{:24} {:?} of {:?} ns: {}",
            row.class.name(),
            row.tile,
            row.nanoseconds,
            row.module
        );
        assert_eq!(row.nanoseconds.len(), Tile::ALL.len());
        assert!(row.nanoseconds.iter().all(|ns| ns.is_finite()));
    }
    assert_eq!(Tuning::default().read(&tuning.text()), Some(tuning));

    gpu.set_tuning(tuning);
    let mut after = make(ReplayOptions::new(&gpu));
    assert!(run_unet(&mut after, &tiny, &fixture) == expected);
    drop(after);

    // a time that is over before it began measures one class, and keeps what was known
    let network = make(ReplayOptions::new(&gpu));
    let (again, rows) = block_on(network.autotune(tuning, -1.0)).unwrap();
    assert_eq!((again, rows.len()), (tuning, 0));
    drop(weights);
    assert_eq!(gpu.memory().live_bytes(), 0);
}
