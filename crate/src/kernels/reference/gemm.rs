//! Twin of the matrix product.

use super::{Values, activate, gelu};
use crate::kernels::{GemmArgs, Residual, Role};

pub(super) fn gemm(args: &GemmArgs, values: &Values) -> Vec<f64> {
    let k2 = args.second_source.unwrap_or(0);
    let k1 = args.k - k2;
    let mut out = Vec::with_capacity(args.m * args.n);
    for row in 0..args.m {
        let product = |column: usize| {
            let mut sum = 0.0;
            for k in 0..args.k {
                let x = if k < k1 {
                    values.at(Role::Input, row * k1 + k)
                } else {
                    values.at(Role::SecondInput, row * k2 + k - k1)
                };
                sum += x * values.at(Role::Weight, column * args.k + k);
            }
            // an operand that is not there counts as zeros
            sum + values.at(Role::Bias, column)
        };
        for column in 0..args.n {
            let x = if args.geglu {
                product(column) * gelu(product(args.n + column))
            } else {
                activate(args.activation, product(column))
            };
            out.push(x + residual(args.residual, values, row * args.n + column));
        }
    }
    out
}

pub(super) fn residual(residual: Residual, values: &Values, at: usize) -> f64 {
    match residual {
        Residual::None => 0.0,
        Residual::Separate => values.at(Role::Residual, at),
        Residual::InPlace => values.at(Role::Output, at),
    }
}
