//! Launches of the 3x3 convolution: through the tile, or directly where there are few channels.

use super::{
    Conv2dArgs, Launch, Limits, Role, ShapeClass, Tuning,
    builder::{Builder, Epilogue, fold, in_unit, left_names, unit, word},
    gemm::{EPILOGUE, FUNCTIONS, PRECISION, Product},
    padded_k, tuning,
};

const TILED: &str = include_str!("conv2d.wgsl");
const DIRECT: &str = include_str!("conv2d_direct.wgsl");

pub(super) fn launches(args: &Conv2dArgs, limits: &Limits, tuning: &Tuning) -> Vec<Launch> {
    let operands = args.operands();
    let front = Builder::new(&operands)
        .set("UPSAMPLE", args.upsample.is_some())
        .bind(Role::Input, "INPUT", "B_INPUT")
        .bind(Role::Weight, "WEIGHT", "B_WEIGHT");
    let epilogue = Epilogue {
        output: args.output,
        n: args.channels_out,
        geglu: false,
        activation: "identity",
        channel_add: args.channel_add,
        residual: args.residual,
    };
    if !is_tiled(args) {
        return vec![direct(args, front, &epilogue, limits)];
    }
    let tile = tuning.tile(tuning::Product::Conv2d, args.m(), args.channels_out);
    let product = Product {
        front: left_names(front, args.input, 4),
        front_source: TILED,
        labels: ["conv2d", "conv2d.partial", "conv2d.split_k"],
        entry_point: "conv2d",
        epilogue,
        m: args.m(),
        k_slices: args.k_slices,
        grid: tile.grid(args.m(), args.channels_out),
    };
    let params = params(args, args.channels_in / 4, padded_k(args.k()) / 4);
    product.launches(Builder::new(&operands), &params, tile, limits)
}

impl Conv2dArgs {
    pub(super) fn shape_class(&self) -> Option<ShapeClass> {
        is_tiled(self)
            .then(|| ShapeClass::new(tuning::Product::Conv2d, self.m(), self.channels_out))
    }
}

/// Whether the tile is used: its quads of `k` must not lie across two kernel places, and with few channels most of it would stand idle.
fn is_tiled(args: &Conv2dArgs) -> bool {
    args.channels_in.is_multiple_of(4) && args.channels_in >= 16 && args.channels_out > 8
}

fn direct(args: &Conv2dArgs, front: Builder, epilogue: &Epilogue, limits: &Limits) -> Launch {
    let unit = unit(&[args.channels_in]);
    let front = left_names(front, args.input, unit).set(in_unit(unit), true);
    let threads = args.m() * args.channels_out.div_ceil(4);
    epilogue.add_to(front).launch(
        "conv2d.direct",
        "conv2d_direct",
        &[PRECISION, FUNCTIONS, DIRECT, EPILOGUE],
        &params(args, args.channels_in / unit, padded_k(args.k())),
        fold(threads, limits),
    )
}

/// The uniform of both forms; `units` and `weight_stride` count in their own units.
fn params(args: &Conv2dArgs, units: usize, weight_stride: usize) -> [u32; 16] {
    let [height, width] = args.input_size();
    let [_, out_width] = args.output_size();
    [
        args.m(),
        args.channels_out,
        units,
        args.strip.map_or(0, |strip| strip.first),
        weight_stride,
        args.k().div_ceil(16).div_ceil(args.k_slices.max(1)),
        args.m() / args.batch.max(1),
        args.k_slices,
        height,
        width,
        args.height,
        args.width,
        out_width,
        args.stride,
        args.padding_before,
        args.strip.map_or(0, |strip| strip.input_first),
    ]
    .map(word)
}
