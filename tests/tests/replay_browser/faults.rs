//! What the browser does to a page: every error ends as one of ours, soon, and none as a panic.

use std::sync::Arc;

use latent_canvas::{
    Error,
    engine::plan::{BufferUse, Gpu, LowerOptions, Network, Plan, ReplayOptions},
    kernels::{Limits, Precision},
};
use latent_canvas_tests::{
    planned::{run_unet, unet_graph, unet_network},
    tiny::TINY_MODEL,
};
use wasm_bindgen_test::{console_log, wasm_bindgen_test};

use super::hooks::{Hook, js, keep_device, number};
use crate::device;

fn options() -> LowerOptions {
    LowerOptions::new(Precision::F32)
}

async fn network(gpu: &Arc<Gpu>) -> Network {
    let fixture = TINY_MODEL.unet_fixture();
    unet_network(gpu, &TINY_MODEL, &fixture, &options(), 1).await
}

async fn new_network(gpu: &Arc<Gpu>) -> Result<Network, Error> {
    let graph = unet_graph(&TINY_MODEL, &TINY_MODEL.unet_fixture(), 1);
    let plan = Plan::new(graph, &options(), 1, gpu.limits()).unwrap();
    Network::new(gpu, plan, ReplayOptions::new(gpu)).await
}

/// Runs until the device is gone, and gives the milliseconds that it took to be told.
async fn run_until_lost(network: &mut Network) -> f64 {
    let error = loop {
        let run = async {
            network.run_step(0, 0).await?;
            network.read_output("noise_pred").await
        };
        if let Err(error) = run.await {
            break error;
        }
    };
    assert_eq!(error.code(), "device-lost", "{error}");
    number("performance.now() - self.lostAt")
}

async fn check_lost(how: &str) {
    let _keep = keep_device();
    let gpu = device().await;
    let mut network = network(&gpu).await;
    let fixture = TINY_MODEL.unet_fixture();
    run_unet(&mut network, &TINY_MODEL, &fixture).await;
    js(how);
    let ms = run_until_lost(&mut network).await;
    console_log!("told after {ms:.0} ms");
    assert!(ms < 1000.0, "{ms} ms");
    // whatever is asked later is told the same, not that there is no memory
    let buffer = gpu.buffer("late", 16, BufferUse::Uniform).await;
    assert_eq!(buffer.unwrap_err().code(), "device-lost");
    let late = new_network(&gpu).await;
    assert_eq!(late.map(|_| ()).unwrap_err().code(), "device-lost");
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), 0);
}

const LOSE: &str = "self.lostAt = performance.now(); self.device.destroy();";

#[wasm_bindgen_test]
async fn a_device_lost_in_a_run_is_told_within_a_second() {
    check_lost(&format!(
        "self.lostAt = Infinity; setTimeout(() => {{ {LOSE} }}, 20)"
    ))
    .await;
}

/// A browser may leave the promises of a lost device open.
#[wasm_bindgen_test]
async fn promises_that_never_settle_end_with_the_device() {
    let _never = [
        "GPUQueue.prototype.onSubmittedWorkDone",
        "GPUBuffer.prototype.mapAsync",
        "GPUDevice.prototype.popErrorScope",
        "GPUDevice.prototype.createComputePipelineAsync",
    ]
    .map(|path| {
        Hook::new(
            path,
            "return self.isGone ? new Promise(() => {}) : call(...args);",
        )
    });
    js("self.isGone = false");
    check_lost(&format!(
        "self.isGone = true; setTimeout(() => {{ {LOSE} }}, 20)"
    ))
    .await;
    js("self.isGone = false");
}

#[wasm_bindgen_test]
async fn a_device_that_is_given_back_is_silent() {
    let _keep = keep_device();
    let gpu = device().await;
    js(
        "self.heard = 0; device.addEventListener('uncapturederror', () => { heard += 1; });
        self.addEventListener('unhandledrejection', () => { heard += 1; });",
    );
    let mut network = network(&gpu).await;
    network.run_step(0, 0).await.unwrap();
    gpu.destroy();
    let error = network.run_step(0, 0).await.unwrap_err();
    assert_eq!(error.code(), "device-lost", "{error}");
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), 0);
    assert_eq!(number("heard"), 0.0);
}

/// The first error of a browser that calls a function with `path`, of a device that works until then.
async fn first_error(path: &str, body: &str) -> Error {
    let gpu = device().await;
    let _hook = Hook::new(path, body);
    match new_network(&gpu).await {
        Ok(mut network) => network.ready().await.unwrap_err(),
        Err(error) => error,
    }
}

#[wasm_bindgen_test]
async fn errors_of_the_browser_are_errors_of_ours() {
    let create_buffer = "GPUDevice.prototype.createBuffer";
    let pop_error_scope = "GPUDevice.prototype.popErrorScope";
    for (path, body, code, says) in [
        (
            create_buffer,
            "throw new RangeError('no shared memory')",
            "out-of-memory",
            "bytes are needed",
        ),
        (
            pop_error_scope,
            "call(); return Promise.resolve(new GPUOutOfMemoryError('none left'))",
            "out-of-memory",
            "bytes are needed",
        ),
        (
            pop_error_scope,
            "call(); return Promise.resolve(new GPUInternalError('the driver gave up'))",
            "plan",
            "the driver gave up",
        ),
        (
            pop_error_scope,
            "call(); return Promise.resolve(new GPUValidationError('not like this'))",
            "plan",
            "not like this",
        ),
        (
            "GPUDevice.prototype.createShaderModule",
            "if (args[0].code.includes('softmax')) args[0].code = 'fn broken( {'; return call(...args);",
            "plan",
            "rror",
        ),
        (
            "GPUDevice.prototype.createComputePipelineAsync",
            "return Promise.reject(new GPUPipelineError('too long', { reason: 'internal' }))",
            "plan",
            "too long",
        ),
    ] {
        let error = first_error(path, body).await;
        console_log!("{path}: {error}");
        assert_eq!(error.code(), code, "{path}: {error}");
        assert!(error.to_string().contains(says), "{path}: {error}");
    }
}

#[wasm_bindgen_test]
async fn an_error_that_no_scope_caught_is_a_fault_of_the_device() {
    let _keep = keep_device();
    for (kind, code) in [
        ("GPUInternalError", "plan"),
        ("GPUValidationError", "plan"),
        ("GPUOutOfMemoryError", "out-of-memory"),
    ] {
        let gpu = device().await;
        gpu.check().unwrap();
        js(&format!(
            "device.dispatchEvent(new GPUUncapturedErrorEvent('uncapturederror', {{ error: new {kind}('late') }}))"
        ));
        let error = gpu.check().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(gpu.finish().await.unwrap_err().code(), code);
    }
}

#[wasm_bindgen_test]
async fn without_webgpu_the_reason_is_told() {
    for (fake, says) in [
        ("return Promise.resolve(null)", "graphics card"),
        ("throw new TypeError('not today')", "not today"),
        ("return Promise.reject(new Error('policy'))", "policy"),
    ] {
        let _hook = Hook::new("GPU.prototype.requestAdapter", fake);
        let error = Gpu::request(&Limits::DEFAULT).await.unwrap_err();
        assert_eq!(error.code(), "no-webgpu", "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    js("Object.defineProperty(navigator, 'gpu', { value: undefined, configurable: true })");
    let error = Gpu::request(&Limits::DEFAULT).await.unwrap_err();
    js("delete navigator.gpu");
    assert!(
        error.to_string().contains("This browser has no WebGPU"),
        "{error}"
    );
}

#[wasm_bindgen_test]
async fn more_than_the_adapter_has_is_refused_with_the_limit() {
    let needed = Limits {
        max_storage_buffer_binding_bytes: 1 << 50,
        ..Limits::DEFAULT
    };
    let error = Gpu::request(&needed).await.unwrap_err();
    assert_eq!(error.code(), "limit-too-small", "{error}");
}
