//! Public bug reports about other programs' schedulers, as tests.

use latent_canvas::schedulers::{
    DdimScheduler, EulerDiscreteScheduler, Scheduler, SchedulerKind, create,
};
use serde_json::{Value, json};

use crate::{model, stock};

#[test]
fn s01_step_counts_give_so_many_timesteps_all_inside_the_table() {
    let leading = stock(&json!({"timestep_spacing": "leading"}));
    let list = |n: usize| {
        create(SchedulerKind::Ddim, &leading, n)
            .unwrap()
            .timesteps()
            .to_vec()
    };
    assert_eq!(list(1), [1.0]);
    assert_eq!(list(3), [667.0, 334.0, 1.0]);
    assert_eq!(list(9)[..2], [889.0, 778.0]);
    assert_eq!(list(9)[8], 1.0);
    assert_eq!(list(20)[..2], [951.0, 901.0]);
    assert_eq!(list(20)[19], 1.0);
    assert_eq!(list(27)[..3], [963.0, 926.0, 889.0]);

    for spacing in ["leading", "trailing", "linspace"] {
        let config = stock(&json!({"timestep_spacing": spacing}));
        for n in 1..=1000 {
            for kind in SchedulerKind::ALL {
                let scheduler = create(kind, &config, n).unwrap();
                let mut timesteps = scheduler.timesteps().to_vec();
                if kind == SchedulerKind::Pndm && n > 1 {
                    assert_eq!(timesteps[1], timesteps[2]);
                    timesteps.remove(2);
                }
                assert_eq!(timesteps.len(), n, "{kind} {spacing}");
                assert!(timesteps.is_sorted_by(|a, b| a > b), "{kind} {spacing} {n}");
                assert!(timesteps[0] <= 999.0 && timesteps[n - 1] >= 0.0);
            }
        }
    }
}

#[test]
fn s01_all_thousand_steps_run_and_stay_finite() {
    for spacing in ["leading", "trailing", "linspace"] {
        let config = stock(&json!({"timestep_spacing": spacing}));
        for kind in SchedulerKind::ALL {
            let mut scheduler = create(kind, &config, 1000).unwrap();
            let mut sample = vec![0.5 * scheduler.init_noise_sigma(); 4];
            for i in 0..scheduler.timesteps().len() {
                let mut scaled = sample.clone();
                scheduler.scale_model_input(&mut scaled, i);
                let output = model(&scaled, scheduler.timesteps()[i]);
                sample = scheduler.step(&output, i, &sample).unwrap();
            }
            assert!(sample.iter().all(|x| x.is_finite()), "{kind} {spacing}");
        }
    }
}

/// The alpha-bars of Stable Diffusion, worked out in float64 apart from the crate.
fn alphas_cumprod() -> Vec<f64> {
    let (start, end) = (0.00085_f64.sqrt(), 0.012_f64.sqrt());
    let betas = (0..1000).map(|i| (start + (end - start) * f64::from(i) / 999.0).powi(2));
    betas
        .scan(1.0, |product, beta| {
            *product *= 1.0 - beta;
            Some(*product)
        })
        .collect()
}

/// The alpha-bar that a DDIM step ended at: a model that predicts no noise turns x into `sqrt(prev / now) x`.
fn alpha_after(scheduler: &mut DdimScheduler, step: usize) -> f64 {
    let now = alphas_cumprod()[scheduler.timesteps()[step] as usize];
    let x = scheduler.step(&[0.0], step, &[1.0]).unwrap()[0];
    f64::from(x).powi(2) * now
}

#[test]
fn s03_previous_timestep_is_the_next_of_the_list_and_the_last_is_the_final_alpha() {
    let alphas = alphas_cumprod();
    assert!((alphas[0] - 0.99915).abs() < 1e-6 && (alphas[999] - 0.004_660_1).abs() < 1e-6);
    let trailing = [
        999, 922, 845, 768, 691, 614, 537, 461, 384, 307, 230, 153, 76,
    ];
    let linspace = [999, 888, 777, 666, 555, 444, 333, 222, 111, 0];
    for (spacing, list) in [("trailing", &trailing[..]), ("linspace", &linspace[..])] {
        for (to_one, last) in [(false, 0.99915), (true, 1.0)] {
            let config = stock(&json!({"timestep_spacing": spacing, "set_alpha_to_one": to_one}));
            let mut ddim = DdimScheduler::new(&config, list.len()).unwrap();
            let timesteps: Vec<usize> = ddim.timesteps().iter().map(|&t| t as usize).collect();
            assert_eq!(timesteps, list);
            for step in 0..list.len() {
                let expected = list.get(step + 1).map_or(last, |&t| alphas[t]);
                let found = alpha_after(&mut ddim, step);
                assert!((found / expected - 1.0).abs() < 2e-5, "{spacing} {step}");
            }
        }
    }
}

fn euler(changes: &Value, steps: usize) -> EulerDiscreteScheduler {
    EulerDiscreteScheduler::new(&stock(changes), steps).unwrap()
}

fn near(actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len(), "{actual:?}");
    for (a, e) in actual.iter().zip(expected) {
        assert!(
            (a - e).abs() < 1.01e-4,
            "{actual:?} instead of {expected:?}"
        );
    }
}

#[test]
fn s06_karras_sigmas_fall_to_zero_without_a_repeat() {
    let sigmas = |n| {
        euler(&json!({"use_karras_sigmas": true}), n)
            .sigmas()
            .to_vec()
    };
    near(&sigmas(1), &[14.6146, 0.0]);
    near(&sigmas(2), &[14.6146, 0.0292, 0.0]);
    near(&sigmas(3), &[14.6146, 1.2741, 0.0292, 0.0]);
    near(&sigmas(5), &[14.6146, 4.7965, 1.2741, 0.2479, 0.0292, 0.0]);
    near(
        &sigmas(8),
        &[
            14.6146, 7.9029, 4.0277, 1.9104, 0.8289, 0.3211, 0.1072, 0.0292, 0.0,
        ],
    );
    for n in 1..=200 {
        assert!(sigmas(n).is_sorted_by(|a, b| a > b), "{n}");
    }
}

#[test]
fn s07_trailing_starts_at_the_largest_sigma_in_one_step() {
    let trailing = |n| euler(&json!({"timestep_spacing": "trailing"}), n);
    assert_eq!(trailing(1).timesteps(), [999.0]);
    near(trailing(1).sigmas(), &[14.6146, 0.0]);
    near(trailing(2).sigmas(), &[14.6146, 1.6129, 0.0]);
    near(
        trailing(4).sigmas(),
        &[14.6146, 4.0817, 1.6129, 0.6932, 0.0],
    );

    let leading = euler(&json!({"timestep_spacing": "leading"}), 1);
    assert_eq!(leading.timesteps(), [1.0]);
    near(leading.sigmas(), &[0.0413, 0.0]);
}

#[test]
fn s09_timesteps_are_never_rounded_to_half_floats() {
    let config = stock(&json!({"timestep_spacing": "trailing"}));
    for kind in SchedulerKind::ALL {
        let timesteps = create(kind, &config, 4).unwrap().timesteps().to_vec();
        assert_eq!(timesteps[..2], [999.0, 749.0]);
        assert_ne!(half::bf16::from_f32(999.0).to_f32(), 999.0);
    }
    let karras = euler(&json!({"use_karras_sigmas": true}), 8);
    let fractions: Vec<f32> = karras.timesteps()[1..7].to_vec();
    for t in fractions {
        assert!(t.fract() > 0.0);
        assert_ne!(half::f16::from_f32(t).to_f32(), t);
    }
    // sigma 4.7965, the second of five, lies here
    assert!((euler(&json!({"use_karras_sigmas": true}), 5).timesteps()[1] - 785.954).abs() < 5e-3);
}
