//! Which kernel does a group of operations, with which arguments.

use std::collections::BTreeMap;

use super::{
    fuse::Group,
    graph::{Op, ValueId, WeightId},
    lower::{Lowering, Source},
    options::AttentionChoice,
    storage::Phase,
};
use crate::{
    Result,
    engine::{AttentionMask, Shape},
    kernels::{
        AttentionArgs, AttentionForm, ChannelRows, Conv2dArgs, ElementwiseArgs, ElementwiseOp,
        EmbeddingArgs, GemmArgs, GroupNormArgs, Kernel, LayerNormArgs, Residual, Role,
    },
};

impl Lowering<'_> {
    /// The kernel, and what its operands stand for.
    pub(super) fn kernel(&self, group: &Group) -> Result<(Kernel, BTreeMap<Role, Source>)> {
        let node = &self.graph.nodes[group.anchor];
        let output = self.precisions[group.output.0];
        let input = self.precisions[group.input.0];
        let shape = self.shape(group.output);
        let (batch, positions) = (shape.batch, shape.height * shape.width);
        let second_source = group.second.map(|value| self.shape(value).channels);
        let residual = match group.residual {
            Some(_) => Residual::Separate,
            None => Residual::None,
        };
        let channel_rows = |value: ValueId| self.channel_rows(value, batch);
        let mut roles = BTreeMap::new();
        let value_roles = [
            (Role::Input, Some(group.input)),
            (Role::SecondInput, group.second),
            (Role::ChannelAdd, group.channel_add),
            (Role::Residual, group.residual),
        ];
        for (role, value) in value_roles {
            roles.extend(value.map(|value| (role, Source::Value(value))));
        }
        let mut weights = |names: &[Role]| {
            let pairs = names.iter().copied().zip(&node.weights);
            roles.extend(pairs.map(|(role, &weight)| (role, Source::Weight(weight))));
        };
        let kernel = match node.op {
            Op::Linear => {
                weights(&[Role::Weight, Role::Bias]);
                let k = self.graph.weights[node.weights[0].0].shape[1];
                let args = GemmArgs {
                    m: batch * positions,
                    n: shape.channels,
                    k,
                    second_source,
                    bias: node.weights.len() > 1,
                    activation: group.activation,
                    geglu: group.geglu,
                    residual,
                    k_slices: 1,
                    input,
                    output,
                };
                Kernel::Gemm(GemmArgs {
                    k_slices: self.k_slices(args.m, args.weight_rows(), k),
                    ..args
                })
            }
            Op::Conv2d { stride, padding } => {
                weights(&[Role::Weight, Role::Bias]);
                let stored = self.shape(group.input);
                let args = Conv2dArgs {
                    batch,
                    height: stored.height,
                    width: stored.width,
                    channels_in: stored.channels,
                    channels_out: shape.channels,
                    kernel: 3,
                    stride,
                    padding_before: padding,
                    padding_after: padding,
                    upsample: group.upsample,
                    channel_add: group.channel_add.map(channel_rows),
                    residual,
                    k_slices: 1,
                    strip: None,
                    input,
                    output,
                };
                Kernel::Conv2d(Conv2dArgs {
                    k_slices: self.k_slices(args.m(), args.channels_out, args.k()),
                    ..args
                })
            }
            Op::GroupNorm { groups, eps } => {
                weights(&[Role::Scale, Role::Shift]);
                Kernel::GroupNorm(GroupNormArgs {
                    batch,
                    positions,
                    channels: shape.channels,
                    second_source,
                    groups,
                    eps: eps as f32,
                    silu: group.silu,
                    input,
                    output,
                    in_place: false,
                })
            }
            Op::LayerNorm { eps } => {
                weights(&[Role::Scale, Role::Shift]);
                Kernel::LayerNorm(LayerNormArgs {
                    rows: batch * positions,
                    channels: shape.channels,
                    eps: eps as f32,
                    input,
                    output,
                    in_place: false,
                })
            }
            Op::Attention { num_heads, mask } => {
                for (role, &value) in [Role::Query, Role::Key, Role::Value]
                    .iter()
                    .zip(&node.inputs)
                {
                    roles.insert(*role, Source::Value(value));
                }
                self.attention(group, num_heads, mask)
            }
            Op::Embedding => {
                weights(&[Role::TokenTable]);
                let Some(positions) = group.positions else {
                    return Err(self.unsupported(group, "has no positions added to it"));
                };
                roles.insert(Role::Ids, Source::Value(group.input));
                let position_table = self.graph.nodes[positions].weights[0];
                roles.insert(Role::PositionTable, Source::Weight(position_table));
                let rows = |weight: WeightId| self.graph.weights[weight.0].shape[0];
                Kernel::Embedding(EmbeddingArgs {
                    batch,
                    tokens: positions_of(shape),
                    channels: shape.channels,
                    rows: rows(node.weights[0]),
                    positions: rows(position_table),
                    output,
                })
            }
            Op::AddPositions => {
                return Err(self.unsupported(group, "does not follow an embedding"));
            }
            Op::Silu
            | Op::QuickGelu
            | Op::Gelu
            | Op::Geglu
            | Op::Add
            | Op::AddChannels
            | Op::ConcatChannels
            | Op::UpsampleNearest2d => {
                let source = self.shape(group.input);
                let second = node.inputs.get(1).copied();
                let op = match (node.op, second) {
                    (Op::Silu, _) => ElementwiseOp::Silu,
                    (Op::QuickGelu, _) => ElementwiseOp::QuickGelu,
                    (Op::Gelu, _) => ElementwiseOp::Gelu,
                    (Op::Geglu, _) => ElementwiseOp::Geglu,
                    (Op::AddChannels, Some(second)) => {
                        roles.insert(Role::ChannelAdd, Source::Value(second));
                        ElementwiseOp::AddChannels {
                            rows: channel_rows(second),
                        }
                    }
                    (Op::ConcatChannels, _) => ElementwiseOp::ConcatChannels {
                        first: source.channels,
                    },
                    (Op::UpsampleNearest2d, _) => ElementwiseOp::UpsampleNearest2d {
                        height: source.height,
                        width: source.width,
                    },
                    _ => ElementwiseOp::Add,
                };
                if let (Some(second), Op::Add | Op::ConcatChannels) = (second, node.op) {
                    roles.insert(Role::SecondInput, Source::Value(second));
                }
                Kernel::Elementwise(ElementwiseArgs {
                    op,
                    batch,
                    height: shape.height,
                    width: shape.width,
                    channels: shape.channels,
                    input,
                    output,
                    in_place: false,
                })
            }
        };
        Ok((kernel, roles))
    }

    fn attention(&self, group: &Group, num_heads: usize, mask: AttentionMask) -> Kernel {
        let q = self.shape(group.input);
        let key = self.graph.nodes[group.anchor].inputs[1];
        let (queries, keys) = (positions_of(q), positions_of(self.shape(key)));
        let head_dim = q.channels / num_heads;
        let sliced = self.options.attention == AttentionChoice::Sliced
            || !AttentionArgs::flash_takes(head_dim);
        let form = if self.options.attention == AttentionChoice::AllHeads {
            AttentionForm::AllHeads
        } else if sliced {
            let rows = (self.options.score_bytes / (4 * keys as u64)) as usize;
            AttentionForm::Sliced {
                rows: rows.clamp(1, queries),
            }
        } else {
            AttentionForm::Flash
        };
        Kernel::Attention(AttentionArgs {
            batch: q.batch,
            num_heads,
            head_dim,
            queries,
            keys,
            causal: mask == AttentionMask::Causal,
            form,
            precision: self.precisions[group.output.0],
            in_place: false,
        })
    }

    fn channel_rows(&self, value: ValueId, batch: usize) -> ChannelRows {
        match (self.phases.of(self.graph, value), self.phases.steps) {
            (Phase::Schedule, Some(steps)) => ChannelRows::Step { steps },
            _ if self.shape(value).batch == 1 => ChannelRows::One,
            _ => {
                debug_assert_eq!(self.shape(value).batch, batch);
                ChannelRows::PerPicture
            }
        }
    }

    /// Slices of a long sum where there are too few tiles of outputs to fill a GPU (`k_slices` of the kernels).
    fn k_slices(&self, m: usize, n: usize, k: usize) -> usize {
        const TILE: usize = 64;
        const ENOUGH_TILES: usize = 128;
        const WANTED_TILES: usize = 256;
        const MIN_SLICE: usize = 512;
        let tiles = m.div_ceil(TILE) * n.div_ceil(TILE);
        if !self.options.split_k || tiles >= ENOUGH_TILES {
            return 1;
        }
        let wanted = (WANTED_TILES as f64 / tiles as f64).round() as usize;
        wanted.clamp(2, 8).min(k / MIN_SLICE).max(1)
    }
}

const fn positions_of(shape: Shape) -> usize {
    shape.height * shape.width
}
