//! Every number that the schedulers give, against the fixture that `golden/schedulers.py` makes with diffusers.

use latent_canvas::schedulers::{EulerDiscreteScheduler, SchedulerConfig, SchedulerKind, create};
use serde::Deserialize;
use serde_json::Value;

use crate::model;

const CASES: &str = include_str!("../../golden/schedulers/cases.json");
const VALUES: &[u8] = include_bytes!("../../golden/schedulers/values.bin");
const SIZE: usize = 16;
const TOLERANCE: f64 = 1e-5;

// Euler's first step from sigma 4096 takes 6500 from 6500 and leaves 30. One unit in the last place of 6500 is then 1.7e-5,
// and torch's own square roots are off by one on some machines (they are not correctly rounded there).
const TOLERANCE_FROM_SIGMA_4096: f64 = 5e-5;

/// One case of `golden/schedulers.py`.
#[derive(Deserialize)]
struct Case {
    name: String,
    scheduler: String,
    steps: usize,
    timesteps: usize,
    sigmas: usize,
    config: Value,
}

/// The largest difference, relative to the largest magnitude that is expected.
fn difference(actual: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let pairs = actual.iter().zip(expected);
    let largest = pairs.fold((0.0_f64, 1e-30_f64), |(diff, size), (a, e)| {
        assert!(a.is_finite());
        let (a, e) = (f64::from(*a), f64::from(*e));
        (diff.max((a - e).abs()), size.max(e.abs()))
    });
    largest.0 / largest.1
}

#[test]
fn every_timestep_sigma_and_sample_equals_diffusers() {
    let cases: Vec<Case> = serde_json::from_str(CASES).unwrap();
    let mut values = VALUES
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    let mut take = |count: usize| -> Vec<f32> {
        let taken: Vec<f32> = values.by_ref().take(count).collect();
        assert_eq!(taken.len(), count);
        taken
    };
    let mut worst = (0.0, String::new());
    for case in &cases {
        let label = format!("{} {} {} steps", case.scheduler, case.name, case.steps);
        let tolerance = match (case.scheduler.as_str(), case.name.as_str()) {
            ("euler", "zero terminal SNR") => TOLERANCE_FROM_SIGMA_4096,
            _ => TOLERANCE,
        };
        let mut hold = |what: &str, actual: &[f32], expected: &[f32]| {
            let found = difference(actual, expected);
            let at = format!("{label}, {what}: {found:e}");
            assert!(
                found <= tolerance,
                "{at}: {actual:?} instead of {expected:?}"
            );
            if found >= worst.0 && tolerance == TOLERANCE {
                worst = (found, at);
            }
        };
        let kind: SchedulerKind = case.scheduler.parse().unwrap();
        let config = SchedulerConfig::from_json(&case.config.to_string()).unwrap();
        let mut scheduler = create(kind, &config, case.steps).unwrap();

        hold("timesteps", scheduler.timesteps(), &take(case.timesteps));
        let sigmas = take(case.sigmas);
        if kind == SchedulerKind::Euler {
            let euler = EulerDiscreteScheduler::new(&config, case.steps).unwrap();
            hold("sigmas", euler.sigmas(), &sigmas);
        }
        let init = scheduler.init_noise_sigma();
        hold("init_noise_sigma", &[init], &take(1));
        let mut sample = take(SIZE);
        for i in 0..case.timesteps {
            let timestep = scheduler.timesteps()[i];
            let mut scaled = sample.clone();
            scheduler.scale_model_input(&mut scaled, i);
            let output = model(&scaled, timestep);
            sample = scheduler.step(&output, i, &sample).unwrap();
            hold(&format!("sample {i}"), &sample, &take(SIZE));
        }
    }
    assert_eq!(
        values.next(),
        None,
        "the fixture has values that no case uses"
    );
    assert!(cases.len() > 250);
    println!("{} cases, worst: {}", cases.len(), worst.1);
}
