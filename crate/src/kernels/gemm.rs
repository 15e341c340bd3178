//! Launches of the matrix product.

use super::{
    Activation, GemmArgs, Launch, Limits, Role, ShapeClass, Tuning,
    builder::{Builder, Epilogue, fold, left_names, tile_names, unit, word},
    padded_k, tuning,
};

pub(super) const PRECISION: &str = include_str!("precision.wgsl");
pub(super) const FUNCTIONS: &str = include_str!("functions.wgsl");
pub(super) const EPILOGUE: &str = include_str!("epilogue.wgsl");
const SPLIT_K: &str = include_str!("split_k.wgsl");
/// The part of a source that is the tile.
pub(super) const TILE: &str = include_str!("tile.wgsl");
const GEMM: &str = include_str!("gemm.wgsl");

/// Columns of the tiles: with GEGLU a quad of them is two values and their gates.
fn columns(args: &GemmArgs) -> usize {
    if args.geglu {
        4 * args.n.div_ceil(2)
    } else {
        args.n
    }
}

impl GemmArgs {
    pub(super) fn shape_class(&self) -> ShapeClass {
        ShapeClass::new(tuning::Product::Gemm, self.m, columns(self))
    }
}

pub(super) fn launches(args: &GemmArgs, limits: &Limits, tuning: &Tuning) -> Vec<Launch> {
    let operands = args.operands();
    let k2 = args.second_source.unwrap_or(0);
    let columns = columns(args);
    let tile = tuning.tile(tuning::Product::Gemm, args.m, columns);
    let front = Builder::new(&operands)
        .set("GEGLU", args.geglu)
        .bind(Role::Input, "INPUT", "B_INPUT")
        .bind(Role::SecondInput, "SECOND_INPUT", "B_SECOND_INPUT")
        .bind(Role::Weight, "WEIGHT", "B_WEIGHT");
    let front = left_names(front, args.input, unit(&[args.k - k2, k2]));
    let product = Product {
        front,
        front_source: GEMM,
        labels: ["gemm", "gemm.partial", "gemm.split_k"],
        entry_point: "gemm",
        epilogue: Epilogue {
            output: args.output,
            n: args.n,
            geglu: args.geglu,
            activation: activation(args.activation),
            channel_add: None,
            residual: args.residual,
        },
        m: args.m,
        k_slices: args.k_slices,
        grid: tile.grid(args.m, columns),
    };
    let stages = args.k.div_ceil(16).div_ceil(args.k_slices.max(1));
    let params = [
        args.m,
        args.n,
        args.k - k2,
        k2,
        padded_k(args.k) / 4,
        stages,
        args.m,
        args.k_slices,
    ]
    .map(word);
    product.launches(Builder::new(&operands), &params, tile, limits)
}

/// WGSL's name of an activation function.
pub(super) const fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::None => "identity",
        Activation::Silu => "silu",
        Activation::Gelu => "gelu",
        Activation::QuickGelu => "quick_gelu",
    }
}

/// A product through the tile: in one launch, or in slices of k and their sum.
pub(super) struct Product {
    /// Binds the operands of the product itself.
    pub(super) front: Builder,
    pub(super) front_source: &'static str,
    /// Of the whole product, of its slices, of their sum.
    pub(super) labels: [&'static str; 3],
    pub(super) entry_point: &'static str,
    pub(super) epilogue: Epilogue,
    pub(super) m: usize,
    pub(super) k_slices: usize,
    /// Tiles along the columns and along the rows.
    pub(super) grid: [usize; 2],
}

impl Product {
    /// `reduce` is an empty builder over the same operands; the first eight `params` are those of `split_k.wgsl`.
    pub(super) fn launches(
        self,
        reduce: Builder,
        params: &[u32],
        tile: super::Tile,
        limits: &Limits,
    ) -> Vec<Launch> {
        let [whole, partial, sum] = self.labels;
        let [columns, rows] = self.grid.map(word);
        let front = tile_names(self.front, tile);
        if self.k_slices <= 1 {
            let builder = self.epilogue.add_to(front).set("WHOLE", true);
            let parts = [
                PRECISION,
                FUNCTIONS,
                self.front_source,
                EPILOGUE,
                SPLIT_K,
                TILE,
            ];
            return vec![builder.launch(
                whole,
                self.entry_point,
                &parts,
                params,
                [columns, rows, 1],
            )];
        }
        let builder = front
            .set("PARTIAL", true)
            .bind(Role::Scratch, "SCRATCH", "B_SCRATCH");
        let parts = [PRECISION, self.front_source, SPLIT_K, TILE];
        let slices = builder.launch(
            partial,
            self.entry_point,
            &parts,
            params,
            [columns, rows, word(self.k_slices)],
        );
        let quad = if self.epilogue.geglu { 2 } else { 4 };
        let threads = self.m * self.epilogue.n.div_ceil(quad);
        let reduce = reduce
            .set("GEGLU", self.epilogue.geglu)
            .set("REDUCE", true)
            .bind(Role::Scratch, "SCRATCH", "B_SCRATCH");
        let reduce = self.epilogue.add_to(reduce);
        let parts = [PRECISION, FUNCTIONS, EPILOGUE, SPLIT_K];
        let sum = reduce.launch(sum, "split_k", &parts, params, fold(threads, limits));
        vec![slices, sum]
    }
}
