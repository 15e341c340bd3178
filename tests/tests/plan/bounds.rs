//! What is too much to be planned is refused at once: no overflow, no hang, no memory on a stranger's word.

use std::time::{Duration, Instant};

use latent_canvas::{
    config::UNetLevel,
    engine::plan::Verdict,
    kernels::{AttentionArgs, AttentionForm, Kernel, Limits, Precision, Tuning},
    models::{
        choose::{PlanSubject, PlanWishes, choose_plan},
        plan::ModelConfigs,
    },
};

use super::{memory::configs, networks::EMOJI};

/// Longer than any refusal takes.
const SOON: Duration = Duration::from_secs(20);

fn plan(
    configs: &ModelConfigs,
    size: [usize; 2],
    steps: usize,
) -> Result<Verdict, latent_canvas::Error> {
    let subject = PlanSubject {
        width: size[0],
        height: size[1],
        guided: true,
        steps,
    };
    let start = Instant::now();
    let planned = choose_plan(configs, &subject, &PlanWishes::default(), &Limits::DEFAULT);
    assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
    planned.map(|(_, verdict)| verdict)
}

#[test]
fn sizes_and_steps() {
    let emoji = configs(&EMOJI);
    for size in [
        [usize::MAX, 8],
        [usize::MAX - 7, usize::MAX - 7],
        [1 << 32, 1 << 32],
        [8, 4104],
        [8, 0],
    ] {
        let error = plan(&emoji, size, 20).unwrap_err();
        assert_eq!(error.code(), "invalid-argument", "{size:?}: {error}");
    }
    let error = plan(&emoji, [8, 8], usize::MAX).unwrap_err();
    assert_eq!(error.code(), "invalid-argument", "{error}");
    assert!(plan(&emoji, [8, 8], 1001).unwrap().fits);
    assert!(plan(&emoji, [4096, 4096], 1).is_ok());
}

#[test]
fn networks_that_are_too_large_to_count() {
    let mut one_level = configs(&EMOJI);
    one_level.vae.block_out_channels = vec![1 << 14];
    let error = plan(&one_level, [1024, 1024], 20).unwrap_err();
    assert_eq!(error.code(), "config", "{error}");

    let mut endless = configs(&EMOJI);
    let level = UNetLevel {
        channels: 64,
        down_cross_attention: true,
        up_cross_attention: true,
        layers: 16,
        num_heads: 4,
        transformer_layers: 16,
    };
    endless.unet.levels = vec![level; 8];
    let error = plan(&endless, [128, 128], 20).unwrap_err();
    assert!(error.to_string().contains("operations"), "{error}");
}

/// A slice would be a few rows of a million.
#[test]
fn attention_in_too_many_slices() {
    let args = AttentionArgs {
        batch: 1,
        num_heads: 1,
        head_dim: 512,
        queries: 1 << 20,
        keys: 1 << 20,
        causal: false,
        form: AttentionForm::Sliced { rows: 4 },
        precision: Precision::F32,
        in_place: false,
    };
    let launches = Kernel::Attention(args).launches(&Limits::DEFAULT, &Tuning::default());
    let message = launches.unwrap_err().to_string();
    assert!(message.contains("slices"), "{message}");
}

/// Heads of an odd size are not for the flash form.
#[test]
fn odd_heads_are_sliced() {
    let mut odd = configs(&EMOJI);
    for level in &mut odd.unet.levels {
        level.num_heads = level.channels;
    }
    assert!(plan(&odd, [64, 64], 20).unwrap().fits);
}
