//! How the decoder of Stable Diffusion 1.5 is planned: whole, in strips, in tiles, and which of them a budget gets.

use latent_canvas::{
    engine::plan::{Guidance, LowerOptions, Residency, StageMemory, VaeMethod, VaeTiling, Verdict},
    kernels::{Limits, Precision},
    models::plan::{ModelPlan, PlanRequest},
};

use super::{
    memory::configs,
    networks::{EMOJI, Network, SD15},
};

const MIB: u64 = 1 << 20;

fn plan(
    network: &Network,
    size: [usize; 2],
    precision: Precision,
    vae: VaeMethod,
    budget_bytes: Option<u64>,
) -> (ModelPlan, Verdict) {
    let request = PlanRequest {
        width: size[1],
        height: size[0],
        guidance: Guidance::TwoPasses,
        options: LowerOptions {
            hoist_schedule: Some(20),
            ..LowerOptions::new(precision)
        },
        limits: Limits::DEFAULT,
        vae,
        budget_bytes,
    };
    let plan = ModelPlan::new(&configs(network), &request).unwrap();
    let verdict = plan.memory.fits(&Limits::DEFAULT, budget_bytes);
    (plan, verdict)
}

fn decoder(plan: &ModelPlan) -> &StageMemory {
    plan.memory.stages.last().unwrap()
}

fn show(title: &str, plan: &ModelPlan) {
    let (stage, vae) = (decoder(plan), plan.memory.vae);
    println!(
        "{title:28} arena {:6.1} MiB, peak {:6.1}, binding {:5.1}, buffer {:5.1}, {:6.1} G multiply-adds, {} dispatches: {vae:?}",
        stage.arena_bytes as f64 / MIB as f64,
        stage.peak_bytes as f64 / MIB as f64,
        stage.largest_binding.bytes as f64 / MIB as f64,
        stage.largest_buffer_bytes as f64 / MIB as f64,
        (stage.run.macs * vae.runs() as u64) as f64 / 1e9,
        stage.run.dispatches * vae.runs(),
    );
}

fn keeps_to_the_limits(stage: &StageMemory) {
    assert!(stage.refused.is_none(), "{:?}", stage.refused);
    assert!(stage.largest_binding.bytes <= 128 * MIB);
    assert!(stage.largest_buffer_bytes <= 256 * MIB);
}

#[test]
fn strips_of_stable_diffusion_keep_their_promise() {
    for (side, precision, most_mib) in [
        (512, Precision::F16, 300),
        (512, Precision::F32, 460),
        (640, Precision::F16, 400),
        (768, Precision::F16, 510),
        (1024, Precision::F16, 820),
    ] {
        let (plan, verdict) = plan(&SD15, [side; 2], precision, VaeMethod::Exact, None);
        show(&format!("exact {side} {precision:?}"), &plan);
        assert!(verdict.fits, "{verdict:?}");
        let stage = decoder(&plan);
        keeps_to_the_limits(stage);
        assert!(stage.peak_bytes <= most_mib * MIB);
        assert!(stage.arena_bytes as f64 <= 1.05 * stage.lower_bound_bytes as f64);
        assert_eq!(plan.vae_grid.len(), 1);
        // the picture that is made twice, and the edges of strips
        let (whole, _) = self::plan(&SD15, [side; 2], precision, VaeMethod::Whole, None);
        let ratio = stage.run.macs as f64 / decoder(&whole).run.macs as f64;
        assert!((1.10..1.14).contains(&ratio), "{ratio}");
    }
}

#[test]
fn tiles_of_stable_diffusion_keep_their_promise() {
    for side in [512, 640, 768, 1024] {
        for precision in [Precision::F16, Precision::F32] {
            let (plan, _) = plan(&SD15, [side; 2], precision, VaeMethod::Blended, None);
            show(&format!("blended {side} {precision:?}"), &plan);
            let stage = decoder(&plan);
            keeps_to_the_limits(stage);
            assert!(stage.peak_bytes <= 128 * MIB);
            let VaeTiling::Blended { tile, tiles } = plan.memory.vae else {
                panic!("{:?}", plan.memory.vae)
            };
            assert_eq!((tile, tiles), (plan.vae_grid.tile(), plan.vae_grid.len()));
            assert_eq!(plan.vae_decoder.graph.inputs[0].name, "latents");
            let input = plan.vae_decoder.graph.inputs[0].value;
            let shape = plan.vae_decoder.graph.value(input).shape;
            assert_eq!([shape.height, shape.width], tile);
            assert!(tile.iter().all(|&side| side >= 16));
        }
    }
}

/// Whole in float32 is more than a binding; in float16 it is just inside of the limit.
#[test]
fn a_whole_picture_is_refused_with_a_reason_where_it_is_asked_for() {
    let (_, verdict) = plan(&SD15, [512; 2], Precision::F32, VaeMethod::Whole, None);
    assert!(!verdict.fits);
    assert!(
        verdict.reason.contains("vae_decoder binds 256.0 MiB"),
        "{verdict:?}"
    );
    assert!(verdict.remedy.contains("float16"), "{verdict:?}");
    assert!(verdict.remedy.contains("in strips"), "{verdict:?}");
    let (plan_f16, verdict) = plan(&SD15, [512; 2], Precision::F16, VaeMethod::Auto, None);
    assert!(verdict.fits);
    assert_eq!(plan_f16.memory.vae, VaeTiling::Whole);
    assert_eq!(plan_f16.memory.largest_binding_bytes, 128 * MIB);
    let (plan_f32, verdict) = plan(&SD15, [512; 2], Precision::F32, VaeMethod::Auto, None);
    assert!(verdict.fits, "{verdict:?}");
    assert!(matches!(plan_f32.memory.vae, VaeTiling::Exact { .. }));
}

/// A picture of 1024 px in float32 has tensors larger than a buffer may be: strips do not help, tiles do.
#[test]
fn tensors_larger_than_a_buffer_are_refused_or_tiled() {
    let of = |vae| plan(&SD15, [1024; 2], Precision::F32, vae, None);
    let (_, verdict) = of(VaeMethod::Exact);
    assert!(!verdict.fits);
    assert!(
        verdict.reason.contains("needs a buffer of 512.0 MiB"),
        "{verdict:?}"
    );
    assert!(verdict.remedy.contains("in tiles"), "{verdict:?}");
    let (plan, verdict) = of(VaeMethod::Auto);
    assert!(verdict.fits, "{verdict:?}");
    assert!(matches!(plan.memory.vae, VaeTiling::Blended { .. }));
}

/// The same picture as long as it fits, the faster ways first; then tiles, the larger ones first; then nothing, with a reason.
#[test]
fn a_budget_gets_the_best_that_fits() {
    let of = |budget: u64| {
        plan(
            &SD15,
            [512; 2],
            Precision::F16,
            VaeMethod::Auto,
            Some(budget),
        )
    };
    let mut budget = 2400 * MIB;
    let mut seen = Vec::new();
    let mut last_rank = 0;
    while budget > 1600 * MIB {
        let (plan, verdict) = of(budget);
        let rank = match (verdict.residency, plan.memory.vae) {
            (Some(Residency::AllStages), VaeTiling::Whole) => 1,
            (Some(Residency::AllStages), VaeTiling::Exact { recomputes, .. }) => {
                2 + usize::from(recomputes)
            }
            (Some(Residency::StageByStage), VaeTiling::Whole) => 4,
            (None, _) => 5,
            other => panic!("{budget}: {other:?}"),
        };
        assert!(rank >= last_rank, "{budget}: {rank} after {last_rank}");
        if rank > last_rank {
            show(&format!("{} MiB", budget / MIB), &plan);
            seen.push(rank);
        }
        assert!(!verdict.fits || verdict.peak_bytes <= budget);
        last_rank = rank;
        budget -= 10 * MIB;
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
}

/// The bundled model is small enough that its decoder alone may be the largest stage.
#[test]
fn a_small_budget_gets_tiles_of_the_bundled_model() {
    let of = |budget| plan(&EMOJI, [256; 2], Precision::F32, VaeMethod::Auto, budget);
    let (whole, _) = of(None);
    assert_eq!(whole.memory.vae, VaeTiling::Whole);
    let whole_bytes = decoder(&whole).peak_bytes;
    let mut methods = Vec::new();
    let mut tile_rows = usize::MAX;
    for percent in (10..=100).rev().step_by(2) {
        let budget = whole_bytes * percent / 100;
        let (plan, _) = of(Some(budget));
        let fits = decoder(&plan).peak_bytes <= budget;
        let method = match plan.memory.vae {
            _ if !fits => "too much",
            VaeTiling::Whole => "whole",
            VaeTiling::Exact { .. } => "exact",
            VaeTiling::Blended { tile, .. } => {
                assert!(tile[0] <= tile_rows, "{percent} %");
                tile_rows = tile[0];
                "blended"
            }
        };
        if methods.last() != Some(&method) {
            show(&format!("emoji 256 {percent} %"), &plan);
            methods.push(method);
        }
    }
    assert_eq!(methods, ["whole", "exact", "blended", "too much"]);
}

/// Sides that no tile divides.
#[test]
fn odd_sizes_are_planned_in_every_way() {
    for size in [[136, 264], [520, 72], [8, 8], [24, 200]] {
        for vae in [VaeMethod::Whole, VaeMethod::Exact, VaeMethod::Blended] {
            let (plan, verdict) = plan(&EMOJI, size, Precision::F32, vae, None);
            assert!(verdict.fits, "{size:?} {vae:?}: {verdict:?}");
            let [height, width] = plan.vae_grid.size();
            assert_eq!([8 * height, 8 * width], size);
        }
    }
}
