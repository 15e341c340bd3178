//! What is accepted, what is refused, and by which name.

use latent_canvas::Error;
use latent_canvas::schedulers::{SchedulerConfig, SchedulerKind, create};
use serde_json::json;

use crate::stock;

#[test]
fn names_of_kinds() {
    for kind in SchedulerKind::ALL {
        assert_eq!(kind.as_str().parse::<SchedulerKind>().unwrap(), kind);
        assert_eq!(kind.class_name().parse::<SchedulerKind>().unwrap(), kind);
    }
    assert_eq!(
        SchedulerKind::ALL.map(SchedulerKind::class_name),
        ["PNDMScheduler", "DDIMScheduler", "EulerDiscreteScheduler"]
    );
    for name in ["", "PNDM", "lcm", "DPMSolverMultistepScheduler"] {
        let error = name.parse::<SchedulerKind>().unwrap_err();
        assert_eq!(error.code(), "invalid-argument");
    }
}

#[test]
fn config_errors_name_the_key() {
    let unsupported = [
        json!({"beta_schedule": "laplace"}),
        json!({"prediction_type": "flow_prediction"}),
        json!({"timestep_spacing": "uniform"}),
        json!({"final_sigmas_type": 0}),
        json!({"interpolation_type": "cubic"}),
        json!({"timestep_type": "other"}),
        json!({"num_train_timesteps": 0}),
        json!({"num_train_timesteps": 1e12}),
        json!({"num_train_timesteps": "1000"}),
        json!({"beta_start": -0.1}),
        json!({"beta_end": 1.5}),
        json!({"beta_start": null}),
        json!({"steps_offset": -1}),
        json!({"clip_sample": "no"}),
        json!({"trained_betas": [0.1, 0.2]}),
        json!({"trained_betas": [0.1, "x"], "num_train_timesteps": 2}),
        json!({"sigma_min": 0}),
        json!({"thresholding": true, "_class_name": "DDIMScheduler"}),
        json!({"rescale_betas_zero_snr": true, "_class_name": "DDIMScheduler"}),
        json!({"prediction_type": "sample", "_class_name": "PNDMScheduler"}),
        json!({"use_beta_sigmas": true, "_class_name": "EulerDiscreteScheduler"}),
    ];
    for config in unsupported {
        let key = config
            .as_object()
            .unwrap()
            .keys()
            .find(|key| *key != "_class_name");
        let key = key
            .filter(|key| *key != "num_train_timesteps" || config.get("trained_betas").is_none());
        let key = key.map_or("trained_betas", String::as_str);
        match SchedulerConfig::from_json(&config.to_string()) {
            Err(Error::Config { file, why }) => {
                assert_eq!(file, "scheduler/scheduler_config.json");
                assert!(why.contains(key), "{why} does not name {key}");
            }
            other => panic!("{config}: {other:?}"),
        }
    }
    for text in ["", "<!DOCTYPE html>", "[]", "{\"beta_start\": 0.1"] {
        assert_eq!(
            SchedulerConfig::from_json(text).unwrap_err().code(),
            "config"
        );
    }
}

#[test]
fn keys_of_other_classes_are_ignored_until_that_class_is_made() {
    let config = stock(&json!({"thresholding": true, "use_beta_sigmas": true, "solver_order": 2}));
    assert_eq!(config.kind().unwrap(), SchedulerKind::Pndm);
    assert!(create(SchedulerKind::Pndm, &config, 4).is_ok());
    for (kind, key) in [
        (SchedulerKind::Ddim, "thresholding"),
        (SchedulerKind::Euler, "use_beta_sigmas"),
    ] {
        let error = create(kind, &config, 4).unwrap_err();
        assert_eq!(error.code(), "config");
        assert!(error.to_string().contains(key));
    }
    let lcm = SchedulerConfig::from_json(r#"{"_class_name": "LCMScheduler"}"#).unwrap();
    assert_eq!(lcm.class_name, "LCMScheduler");
    assert!(lcm.kind().unwrap_err().to_string().contains("_class_name"));
}

#[test]
fn old_configs_are_corrected_as_the_stable_diffusion_pipeline_does() {
    let config = stock(&json!({"steps_offset": null, "clip_sample": null})).for_stable_diffusion();
    assert_eq!(config, stock(&json!({})));
}

#[test]
fn steps_outside_the_schedule_are_refused_by_name() {
    let config = stock(&json!({}));
    let with_prk = stock(&json!({"skip_prk_steps": false}));
    let refused = |kind, config: &SchedulerConfig, steps| match create(kind, config, steps) {
        Err(Error::InvalidArgument { name, rule }) => {
            assert_eq!(name, "steps");
            rule
        }
        other => panic!("{other:?}"),
    };
    for kind in SchedulerKind::ALL {
        for steps in [0, 1001, usize::MAX] {
            assert!(refused(kind, &config, steps).contains("from 1 to 1000"));
        }
    }
    assert!(refused(SchedulerKind::Pndm, &with_prk, 3).contains("from 4 to 1000"));
}

#[test]
fn a_step_out_of_turn_or_of_another_size_is_refused_and_a_run_can_start_again() {
    let config = stock(&json!({}));
    for kind in SchedulerKind::ALL {
        let mut scheduler = create(kind, &config, 4).unwrap();
        let calls = scheduler.timesteps().len();
        let mut refused = |output: &[f32], index, sample: &[f32]| {
            let error = scheduler.step(output, index, sample).unwrap_err();
            assert_eq!(error.code(), "invalid-argument");
        };
        refused(&[0.0], calls, &[0.0]);
        refused(&[0.0], usize::MAX, &[0.0]);
        refused(&[0.0, 0.0], 0, &[0.0]);
        scheduler.scale_model_input(&mut [1.0], calls);
    }
    let mut pndm = create(SchedulerKind::Pndm, &config, 4).unwrap();
    assert!(pndm.step(&[0.1], 1, &[1.0]).is_err());
    let first = pndm.step(&[0.1], 0, &[1.0]).unwrap();
    assert!(pndm.step(&[0.1], 2, &first).is_err());
    assert!(pndm.step(&[0.1, 0.1], 1, &[1.0, 1.0]).is_err());
    let second = pndm.step(&[0.3], 1, &first).unwrap();
    assert_ne!(first, second);
    // starting again forgets what went before
    let mut fresh = create(SchedulerKind::Pndm, &config, 4).unwrap();
    for i in 0..3 {
        let again = pndm.step(&[0.7], i, &[1.0]).unwrap();
        assert_eq!(again, fresh.step(&[0.7], i, &[1.0]).unwrap());
    }
}
