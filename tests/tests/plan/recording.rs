//! A recording declares exactly a checkpoint's tensors and has the shapes of the real network.

use std::{collections::BTreeMap, fs};

use latent_canvas::{
    engine::{
        Shape,
        plan::{Graph, Op, Rate, Recorder},
    },
    models::names::{Component, Name, checkpoint_name},
};
use weights_loader::SafetensorsIndex;

use super::networks::{EMOJI, Network, SD15, SD21, TINY};

fn output(graph: &Graph) -> Shape {
    graph.value(graph.outputs[0].value).shape
}

fn count(graph: &Graph, matches: impl Fn(Op) -> bool) -> usize {
    graph.nodes.iter().filter(|node| matches(node.op)).count()
}

/// Names and shapes of the tensors of a file that are used, without trailing ones.
fn tensors(network: &Network, component: Component, file: &str) -> BTreeMap<String, Vec<usize>> {
    let bytes = fs::read(network.path(file)).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let index =
        SafetensorsIndex::parse(file, &bytes[8..8 + header], Some(bytes.len() as u64)).unwrap();
    index
        .tensors
        .iter()
        .filter_map(|tensor| match checkpoint_name(component, &tensor.name) {
            Name::Weight(name) => Some((name, without_ones(&tensor.shape))),
            Name::Ignored => None,
        })
        .collect()
}

fn without_ones(shape: &[usize]) -> Vec<usize> {
    match shape {
        [n, k, 1, 1] => vec![*n, *k],
        other => other.to_vec(),
    }
}

fn declared(graph: &Graph) -> BTreeMap<String, Vec<usize>> {
    graph
        .weights
        .iter()
        .map(|weight| (weight.name.clone(), without_ones(&weight.shape)))
        .collect()
}

#[test]
fn declared_weights_are_the_checkpoints() {
    let unet = "unet/diffusion_pytorch_model.safetensors";
    let vae = "vae/diffusion_pytorch_model.safetensors";
    for network in TINY.iter().chain([&EMOJI]) {
        for (graph, component, file) in [
            (
                network.text_encoder(1),
                Component::TextEncoder,
                "text_encoder/model.safetensors",
            ),
            (network.unet(1, 8, 8), Component::UNet, unet),
            (network.vae_decoder(1, 8, 8), Component::Vae, vae),
        ] {
            let expected = tensors(network, component, file);
            assert!(expected.len() > 20, "{} has weights", network.0);
            assert_eq!(
                declared(&graph),
                expected,
                "{} of {}",
                graph.name,
                network.0
            );
        }
    }
}

/// Parameters of the published checkpoints, counted with diffusers.
#[test]
fn parameters_of_full_size_models() {
    assert_eq!(SD15.unet(1, 64, 64).parameters(), 859_520_964);
    assert_eq!(SD15.unet(1, 64, 64).weights.len(), 686);
    assert_eq!(SD15.text_encoder(1).parameters(), 123_060_480);
    assert_eq!(SD15.text_encoder(1).weights.len(), 196);
    assert_eq!(SD15.vae_decoder(1, 64, 64).parameters(), 49_490_199);
    assert_eq!(SD21.unet(1, 64, 64).parameters(), 865_910_724);
    assert_eq!(SD21.text_encoder(1).parameters(), 340_387_840);
}

#[test]
fn shapes_of_sd15() {
    let text = SD15.text_encoder(2);
    assert_eq!(output(&text), Shape::tokens(2, 77, 768));
    assert_eq!(count(&text, |op| matches!(op, Op::Attention { .. })), 12);

    let unet = SD15.unet(2, 64, 64);
    assert_eq!(output(&unet), Shape::image(2, 64, 64, 4));
    // 16 transformer blocks with two attentions, 22 resnets, 12 skips, 3 upsamplers
    assert_eq!(count(&unet, |op| matches!(op, Op::Attention { .. })), 32);
    assert_eq!(count(&unet, |op| op == Op::AddChannels), 22);
    assert_eq!(count(&unet, |op| op == Op::ConcatChannels), 12);
    assert_eq!(count(&unet, |op| op == Op::UpsampleNearest2d), 3);
    assert_eq!(count(&unet, |op| op == Op::Geglu), 16);
    // 2 in a resnet, 1 in a transformer, 1 before conv_out
    let norms = count(&unet, |op| matches!(op, Op::GroupNorm { .. }));
    assert_eq!(norms, 2 * 22 + 16 + 1);

    let vae = SD15.vae_decoder(1, 64, 64);
    assert_eq!(output(&vae), Shape::image(1, 512, 512, 3));
    let largest = vae.values.iter().map(|value| value.shape.len()).max();
    assert_eq!(largest, Some(256 * 512 * 512));
}

#[test]
fn shapes_of_small_models_at_odd_sizes() {
    for network in &TINY {
        let unet = network.unet(2, 9, 7);
        assert_eq!(output(&unet), Shape::image(2, 9, 7, 4), "{}", network.0);
    }
    assert_eq!(output(&EMOJI.unet(1, 16, 16)), Shape::image(1, 16, 16, 4));
    assert_eq!(
        output(&EMOJI.vae_decoder(1, 16, 16)),
        Shape::image(1, 128, 128, 3)
    );
}

#[test]
fn rates_follow_the_inputs() {
    let unet = SD15.unet(1, 8, 8);
    let count = |rate| {
        let nodes = unet.nodes.iter();
        nodes
            .filter(|node| unet.value(node.output).rate == rate)
            .count()
    };
    assert_eq!(count(Rate::Image), 2 * 16, "keys and values of the text");
    assert_eq!(
        count(Rate::Schedule),
        4 + 22,
        "the time embedding and its projections"
    );
}

#[test]
fn modules_are_named() {
    let unet = SD15.unet(1, 8, 8);
    let attention = unet
        .nodes
        .iter()
        .find(|node| matches!(node.op, Op::Attention { .. }))
        .unwrap();
    assert_eq!(
        attention.module,
        "down_blocks.0.attentions.0.transformer_blocks.0.attn1"
    );
}

#[test]
fn a_wrong_shape_is_an_error_that_names_the_module() {
    use latent_canvas::engine::{Engine, WeightRole};
    let recorder = Recorder::new("unet");
    let x = recorder.input("sample", Shape::tokens(1, 5, 6), Rate::Step);
    let weight = recorder.declare("block.linear.weight", WeightRole::Linear, &[4, 7]);
    let y = recorder.linear(&x, &weight, None);
    let message = recorder.finish(&[("y", y)]).unwrap_err().to_string();
    assert!(message.contains("block.linear.weight"), "{message}");
}
