//! Launch of layer norm.

use super::{
    Launch, LayerNormArgs, Limits, Role,
    builder::{Builder, OUT, fold_groups, left_names, reduce_names, unit, word},
    gemm::PRECISION,
};

const REDUCE: &str = include_str!("reduce.wgsl");
const LAYER_NORM: &str = include_str!("layer_norm.wgsl");
/// Most threads of a row. Rows of a text encoder or a UNet have 320 to 1280 channels: five to twenty values a thread.
const THREADS: usize = 64;

pub(super) fn launches(args: &LayerNormArgs, limits: &Limits) -> Vec<Launch> {
    let unit = unit(&[args.channels]);
    let builder = left_names(Builder::new(&args.operands()), args.input, unit);
    // threads of a short row would only wait for each other
    let threads = (args.channels / unit).next_power_of_two().min(THREADS);
    let builder = reduce_names(builder, threads, unit)
        .stored(OUT, args.output, unit)
        .set("FIRST", if args.in_place { "output" } else { "input" })
        .bind(Role::Input, "INPUT", "B_INPUT")
        .bind(Role::Scale, "SCALE", "B_SCALE")
        .bind(Role::Shift, "SHIFT", "B_SHIFT")
        .bind(Role::Output, "OUTPUT", "B_OUTPUT");
    vec![builder.launch(
        "layer_norm",
        "layer_norm",
        &[PRECISION, REDUCE, LAYER_NORM],
        &[
            word(args.rows),
            word(args.channels / unit),
            args.eps.to_bits(),
        ],
        fold_groups(args.rows, limits),
    )]
}
