//! Weights that are no numbers end in an error, never in a picture.

use latent_canvas::{engine::plan::LowerOptions, kernels::Precision, models::names::Component};
use latent_canvas_tests::tiny::TINY_MODEL;
use serde_json::Value;

use super::networks::{gpu, network, run_unet, unet_graph};

/// A checkpoint with `value` in place of the first number of a tensor.
fn spoilt(file: &[u8], tensor: &str, value: f32) -> Vec<u8> {
    let mut file = file.to_vec();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let json: Value = serde_json::from_slice(&file[8..8 + header]).unwrap();
    let info = &json[tensor];
    let at = 8 + header + info["data_offsets"][0].as_u64().unwrap() as usize;
    match info["dtype"].as_str().unwrap() {
        "F32" => file[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        "F16" => file[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes()),
        "BF16" => file[at..at + 2].copy_from_slice(&half::bf16::from_f32(value).to_le_bytes()),
        other => panic!("{other}"),
    }
    file
}

/// The kernels' layout has float16 weights; what is past its range is clamped, but infinities and NaN are not.
#[test]
fn a_weight_that_is_no_number_is_seen_in_the_prediction() {
    let fixture = TINY_MODEL.unet_fixture();
    let options = LowerOptions::new(Precision::F32);
    for tensor in ["conv_in.weight", "time_embedding.linear_1.weight"] {
        for value in [f32::NAN, f32::INFINITY] {
            let file = spoilt(TINY_MODEL.unet, tensor, value);
            let graph = unet_graph(&TINY_MODEL, &fixture, 1);
            let mut unet = network(gpu(), graph, &options, 1, Component::UNet, &file);
            let predictions = run_unet(&mut unet, &TINY_MODEL, &fixture);
            let is_finite = predictions[0].iter().all(|value| value.is_finite());
            assert!(!is_finite, "{tensor} with {value}");
        }
    }
}
