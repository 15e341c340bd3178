//! Twin of layer norm.

use super::Values;
use crate::kernels::{LayerNormArgs, Role};

pub(super) fn layer_norm(args: &LayerNormArgs, values: &Values) -> Vec<f64> {
    let mut out = Vec::with_capacity(args.rows * args.channels);
    for row in 0..args.rows {
        let value = |c: usize| values.input_at(Role::Input, args.in_place, row * args.channels + c);
        let each = |f: &dyn Fn(f64) -> f64| {
            (0..args.channels).map(|c| f(value(c))).sum::<f64>() / args.channels as f64
        };
        let mean = each(&|x| x);
        let variance = each(&|x| (x - mean) * (x - mean));
        let deviation = (variance + f64::from(args.eps)).sqrt();
        for c in 0..args.channels {
            let normed = (value(c) - mean) / deviation;
            out.push(normed * values.at(Role::Scale, c) + values.at(Role::Shift, c));
        }
    }
    out
}
