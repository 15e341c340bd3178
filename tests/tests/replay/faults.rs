//! What goes wrong is told as what it is.

use std::sync::Arc;

use latent_canvas::{
    Error,
    engine::plan::{BufferUse, Gpu, LowerOptions, Network, Plan, ReplayOptions},
    kernels::{Limits, Precision},
    models::{names::Component, network_sink::NetworkSink},
};
use latent_canvas_tests::tiny::{TINY_MODEL, TINY_SD2};
use pollster::block_on;
use weights_loader::{MemorySource, load_safetensors};

use super::networks::{gpu, new_gpu, unet_graph, unet_network};

fn options() -> LowerOptions {
    LowerOptions::new(Precision::F32)
}

#[test]
fn a_lost_device_is_told_at_once() {
    let gpu = Arc::new(new_gpu());
    let fixture = TINY_MODEL.unet_fixture();
    let mut network = unet_network(&gpu, &TINY_MODEL, &fixture, &options(), 1);
    gpu.destroy();
    let error = block_on(async {
        network.run_step(0, 0).await?;
        network.read_output("noise_pred").await
    })
    .unwrap_err();
    assert_eq!(error.code(), "device-lost", "{error}");
    drop(network);
    assert_eq!(gpu.memory().live_bytes(), 0);
}

#[test]
fn more_than_the_adapter_has_is_refused_with_the_limit() {
    let needed = Limits {
        max_storage_buffer_binding_bytes: 1 << 50,
        ..Limits::DEFAULT
    };
    match block_on(Gpu::request(&needed)) {
        Err(Error::LimitTooSmall { limit, needed, .. }) => {
            assert_eq!(limit, "maxStorageBufferBindingSize");
            assert_eq!(needed, 1 << 50);
        }
        other => panic!("{other:?}"),
    }
}

/// More than any adapter that tests run on has.
#[test]
fn a_buffer_that_is_too_large_is_refused() {
    let buffer = gpu().buffer("too large", (256 << 20) + 4, BufferUse::Weights);
    let error = block_on(buffer).unwrap_err();
    assert_eq!(error.code(), "limit-too-small", "{error}");
}

#[test]
fn a_run_without_all_weights_is_refused_with_their_names() {
    let fixture = TINY_MODEL.unet_fixture();
    let graph = unet_graph(&TINY_MODEL, &fixture, 1);
    let plan = Plan::new(graph, &options(), 1, gpu().limits()).unwrap();
    let mut network = block_on(Network::new(gpu(), plan, ReplayOptions::new(gpu()))).unwrap();
    let error = block_on(network.run_step(0, 0)).unwrap_err();
    assert_eq!(error.code(), "missing-tensor", "{error}");
    assert!(error.to_string().contains("time_embedding"), "{error}");
}

#[test]
fn inputs_of_another_size_or_name_are_refused() {
    let fixture = TINY_MODEL.unet_fixture();
    let network = unet_network(gpu(), &TINY_MODEL, &fixture, &options(), 1);
    for error in [
        network.write_input("sample", 0, &[0.0; 3]).unwrap_err(),
        network.write_input("simple", 0, &[0.0; 3]).unwrap_err(),
        network
            .write_input(
                "encoder_hidden_states",
                1,
                &fixture.get("encoder_hidden_states").values,
            )
            .unwrap_err(),
    ] {
        assert_eq!(error.code(), "plan", "{error}");
    }
}

/// A file of another network is refused by its header, before a byte of it goes to the GPU.
#[test]
fn weights_of_another_model_are_refused() {
    let fixture = TINY_MODEL.unet_fixture();
    let graph = unet_graph(&TINY_MODEL, &fixture, 1);
    let plan = Plan::new(graph, &options(), 1, gpu().limits()).unwrap();
    let mut network = block_on(Network::new(gpu(), plan, ReplayOptions::new(gpu()))).unwrap();
    let source = MemorySource::new("unet", TINY_SD2.unet.to_vec());
    let mut sink = NetworkSink::new(&mut network, Component::UNet, "unet");
    let error = block_on(load_safetensors(&source, None, &mut sink, &mut |_| Ok(()))).unwrap_err();
    assert_eq!(error.code(), "shape-mismatch", "{error}");
    assert_eq!(
        network.missing_weights().count(),
        network.plan().graph.weights.len()
    );
}
