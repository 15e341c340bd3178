//! Twin of what works value by value.

use super::{Values, channel_row, gelu, quick_gelu, silu};
use crate::kernels::{ElementwiseArgs, ElementwiseOp, Role};

pub(super) fn elementwise(args: &ElementwiseArgs, values: &Values) -> Vec<f64> {
    let positions = args.height * args.width;
    (0..args.len())
        .map(|at| {
            let (row, c) = (at / args.channels, at % args.channels);
            let x = || values.input_at(Role::Input, args.in_place, at);
            match args.op {
                ElementwiseOp::Add => x() + values.at(Role::SecondInput, at),
                ElementwiseOp::AddChannels { rows } => {
                    let of = channel_row(rows, row / positions, values.step);
                    x() + values.at(Role::ChannelAdd, of * args.channels + c)
                }
                ElementwiseOp::Silu => silu(x()),
                ElementwiseOp::QuickGelu => quick_gelu(x()),
                ElementwiseOp::Gelu => gelu(x()),
                ElementwiseOp::Geglu => {
                    let value = 2 * row * args.channels + c;
                    values.at(Role::Input, value)
                        * gelu(values.at(Role::Input, value + args.channels))
                }
                ElementwiseOp::ConcatChannels { first } if c < first => {
                    values.at(Role::Input, row * first + c)
                }
                ElementwiseOp::ConcatChannels { first } => {
                    values.at(Role::SecondInput, row * (args.channels - first) + c - first)
                }
                ElementwiseOp::UpsampleNearest2d { height, width } => {
                    let (picture, place) = (row / positions, row % positions);
                    let (y, x) = (place / args.width / 2, place % args.width / 2);
                    let from = (picture * height + y) * width + x;
                    values.at(Role::Input, from * args.channels + c)
                }
            }
        })
        .collect()
}
