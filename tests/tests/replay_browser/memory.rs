//! What is asked of the browser: bytes, pipelines, objects.

use latent_canvas::{
    engine::plan::{LowerOptions, Network, Part, Plan, ReplayOptions},
    kernels::Precision,
    models::names::Component,
};
use latent_canvas_tests::{
    planned::{fill, run_unet, unet_graph, unet_network, weights_kept_over_two_plans},
    tiny::TINY_MODEL,
};
use wasm_bindgen_test::{console_log, wasm_bindgen_test};

use super::hooks::{Hook, calls, count_buffers, count_calls, js, number};
use crate::device;

fn options() -> LowerOptions {
    LowerOptions::new(Precision::F32)
}

/// The browser's own count is ours, and both are the plan's promise.
#[wasm_bindgen_test]
async fn the_browser_is_asked_for_what_was_promised() {
    let _count = count_buffers();
    let gpu = device().await;
    for passes in [1, 2] {
        js("self.counted = { live: 0, peak: 0 }");
        let fixture = TINY_MODEL.odd_unet_fixture();
        let mut network = unet_network(&gpu, &TINY_MODEL, &fixture, &options(), passes).await;
        run_unet(&mut network, &TINY_MODEL, &fixture).await;
        let promised = network.promised().peak_bytes;
        assert_eq!(number("counted.live") as u64, gpu.memory().live_bytes());
        assert_eq!(number("counted.peak") as u64, promised);
        drop(network);
        assert_eq!(number("counted.live"), 0.0);
        assert_eq!(gpu.memory().live_bytes(), 0);
    }
}

#[wasm_bindgen_test]
async fn weights_outlive_a_plan() {
    weights_kept_over_two_plans(&device().await, &TINY_MODEL).await;
}

/// Pipelines are asked for at once and compile while weights arrive; the calling thread waits for none.
#[wasm_bindgen_test]
async fn pipelines_compile_side_by_side() {
    js("self.compiling = { now: 0, most: 0, all: 0 }");
    let _compile = Hook::new(
        "GPUDevice.prototype.createComputePipelineAsync",
        "compiling.now += 1;
         compiling.all += 1;
         compiling.most = Math.max(compiling.most, compiling.now);
         return call(...args).finally(() => { compiling.now -= 1; });",
    );
    let gpu = device().await;
    let fixture = TINY_MODEL.unet_fixture();
    let graph = unet_graph(&TINY_MODEL, &fixture, 1);
    let plan = Plan::new(graph, &options(), 1, gpu.limits()).unwrap();
    let mut network = Network::new(&gpu, plan, ReplayOptions::new(&gpu))
        .await
        .unwrap();
    let [at_new, asked] = ["compiling.now", "compiling.all"].map(number);
    fill(&mut network, Component::UNet, TINY_MODEL.unet).await;
    network.ready().await.unwrap();
    let [now, most, all] = ["compiling.now", "compiling.most", "compiling.all"].map(number);
    console_log!(
        "{asked} pipelines asked for by new(), {at_new} not done; {most} at once, {all} in all"
    );
    assert!(at_new > 0.0 && most > 1.0 && most <= 12.0 && all > most);
    assert_eq!(now, 0.0);
    let predictions = run_unet(&mut network, &TINY_MODEL, &fixture).await;
    assert!(predictions[0].iter().all(|value| value.is_finite()));
}

/// A run makes no object for a dispatch: a pass and a few commands for each submission.
#[wasm_bindgen_test]
async fn a_step_makes_no_object_for_a_dispatch() {
    let gpu = device().await;
    let fixture = TINY_MODEL.unet_fixture();
    let mut network = unet_network(&gpu, &TINY_MODEL, &fixture, &options(), 1).await;
    run_unet(&mut network, &TINY_MODEL, &fixture).await;
    let made = [
        "GPUDevice.prototype.createBuffer",
        "GPUDevice.prototype.createBindGroup",
        "GPUDevice.prototype.createBindGroupLayout",
        "GPUDevice.prototype.createShaderModule",
        "GPUDevice.prototype.createComputePipeline",
        "GPUDevice.prototype.createComputePipelineAsync",
    ];
    let encoder = "GPUDevice.prototype.createCommandEncoder";
    let dispatch = "GPUComputePassEncoder.prototype.dispatchWorkgroups";
    js("self.calls = {}");
    let _hooks = made.map(count_calls);
    let _more = [encoder, dispatch].map(count_calls);
    network.run_step(0, 0).await.unwrap();
    network.finish().await.unwrap();
    for path in made {
        assert_eq!(calls(path), 0.0, "{path}");
    }
    assert_eq!(calls(encoder) as usize, network.submissions_per_run());
    assert_eq!(calls(dispatch) as usize, network.promised().run.dispatches);
    if gpu.has_timestamps() {
        let expected = network.read_output("noise_pred").await.unwrap();
        let rows = network.time_calls(Part::Step, 0, 0).await.unwrap();
        let times = rows.iter().map(|row| row.nanoseconds.unwrap());
        console_log!("{:.1} ms of the GPU", times.sum::<f64>() / 1e6);
        assert_eq!(rows.len(), network.plan().program.step.len());
        assert!(network.read_output("noise_pred").await.unwrap() == expected);
    }
}
