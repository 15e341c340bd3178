//! What is decided about each value before kernels are chosen: when it is computed, and how it is stored.

use super::{
    graph::{Graph, Op, Rate, ValueId},
    options::LowerOptions,
};
use crate::kernels::Precision;

/// The list of a [`super::program::Program`] that a node's kernel goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Schedule,
    Image,
    Step,
}

/// When the values of each rate are computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phases {
    image: bool,
    /// Steps of the schedule where its values are hoisted.
    pub(super) steps: Option<usize>,
}

impl Phases {
    pub(super) fn new(graph: &Graph, options: &LowerOptions) -> Self {
        let has_steps = graph
            .inputs
            .iter()
            .any(|input| graph.value(input.value).rate == Rate::Step);
        // A table with a row for each step can be read by the sum over channels alone.
        let rows_only = graph.nodes.iter().all(|node| {
            graph.value(node.output).rate == Rate::Schedule
                || node.inputs.iter().enumerate().all(|(i, &input)| {
                    graph.value(input).rate != Rate::Schedule
                        || (node.op == Op::AddChannels && i == 1)
                })
        }) && !graph
            .outputs
            .iter()
            .any(|output| graph.value(output.value).rate == Rate::Schedule);
        Self {
            image: has_steps && options.hoist_text,
            steps: options
                .hoist_schedule
                .filter(|&steps| steps > 0 && has_steps && rows_only),
        }
    }

    pub(super) fn of(self, graph: &Graph, value: ValueId) -> Phase {
        match graph.value(value).rate {
            Rate::Image if self.image => Phase::Image,
            Rate::Schedule if self.steps.is_some() => Phase::Schedule,
            Rate::Image | Rate::Schedule | Rate::Step => Phase::Step,
        }
    }
}

/// How each value is stored.
pub(super) fn precisions(graph: &Graph, options: &LowerOptions) -> Vec<Precision> {
    let mut list: Vec<Precision> = graph
        .values
        .iter()
        .map(|value| {
            if value.shape.channels % 2 == 1 || value.rate == Rate::Schedule {
                Precision::F32
            } else {
                options.activations
            }
        })
        .collect();
    for port in graph.inputs.iter().chain(&graph.outputs) {
        list[port.value.0] = Precision::F32;
    }
    for node in &graph.nodes {
        match node.op {
            Op::AddChannels => list[node.inputs[1].0] = Precision::F32,
            // a head must begin on a word
            Op::Attention { num_heads, .. } => {
                let channels = graph.value(node.output).shape.channels;
                if !(channels / num_heads).is_multiple_of(2) {
                    list[node.output.0] = Precision::F32;
                }
            }
            _ => {}
        }
    }
    // Kernels with several inputs read them with one precision; attention writes with the same.
    loop {
        let mut changed = false;
        for node in &graph.nodes {
            let mut alike = match node.op {
                Op::Add | Op::ConcatChannels => node.inputs.clone(),
                Op::Attention { .. } => [&node.inputs[..], &[node.output]].concat(),
                _ => continue,
            };
            alike.retain(|value| list[value.0] == Precision::F16);
            let all = node.inputs.len() + usize::from(matches!(node.op, Op::Attention { .. }));
            if !alike.is_empty() && alike.len() < all {
                for value in alike {
                    list[value.0] = Precision::F32;
                }
                changed = true;
            }
        }
        if !changed {
            return list;
        }
    }
}
