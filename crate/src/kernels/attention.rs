//! Launches of attention: scores, softmax and values, for each head and slice of queries or for all heads at once; or flash.

use super::{
    AttentionArgs, AttentionForm, Launch, Limits, Precision, Role, Tile,
    builder::{
        Builder, IN, OUT, fold_groups, left_names, out_unit, reduce_names, tile_names, unit, word,
    },
    gemm::{PRECISION, TILE},
    tuning::{Product, Tuning},
};
use crate::{Error, Result};

const REDUCE: &str = include_str!("reduce.wgsl");
const SCORES: &str = include_str!("attention_scores.wgsl");
const SOFTMAX: &str = include_str!("attention_softmax.wgsl");
const VALUES: &str = include_str!("attention_values.wgsl");
const FLASH: &str = include_str!("attention_flash.wgsl");

/// Threads of a row's softmax.
const SOFTMAX_THREADS: usize = 64;

/// Most slices of one call: with more, a GPU waits for launches, and to make them takes minutes.
const MAX_SLICES: u64 = 1 << 14;

impl AttentionArgs {
    /// Whether the flash form can take heads of this size: whole quads, and keys enough in workgroup memory.
    #[must_use]
    pub const fn flash_takes(head_dim: usize) -> bool {
        head_dim >= 4 && head_dim <= 160 && head_dim.is_multiple_of(4)
    }
}

pub(super) fn launches(
    args: &AttentionArgs,
    limits: &Limits,
    tuning: &Tuning,
) -> Result<Vec<Launch>> {
    match args.form {
        AttentionForm::Sliced { .. } | AttentionForm::AllHeads => {
            if args.precision == Precision::F16 && !args.head_dim.is_multiple_of(2) {
                return Err(Error::invalid(
                    "head_dim",
                    "must be even where activations are float16",
                ));
            }
            if slice_count(args) > MAX_SLICES {
                return Err(Error::invalid(
                    "queries",
                    format!(
                        "must be few enough for {MAX_SLICES} slices of attention with a score matrix"
                    ),
                ));
            }
            let slices = slices(args);
            let launches = slices.iter().flat_map(|slice| {
                [
                    scores(args, slice, tuning),
                    softmax(args, slice, limits),
                    values(args, slice, tuning),
                ]
            });
            Ok(launches.collect())
        }
        AttentionForm::Flash => {
            if !AttentionArgs::flash_takes(args.head_dim) {
                return Err(Error::invalid(
                    "head_dim",
                    "must be a multiple of 4 and at most 160 for attention without a score matrix",
                ));
            }
            Ok(vec![flash(args)])
        }
    }
}

/// The length of [`slices`].
const fn slice_count(args: &AttentionArgs) -> u64 {
    match args.form {
        AttentionForm::Sliced { rows } => {
            let rows = if rows == 0 { 1 } else { rows };
            (args.batch * args.num_heads) as u64 * args.queries.div_ceil(rows) as u64
        }
        AttentionForm::AllHeads | AttentionForm::Flash => 1,
    }
}

fn slices(args: &AttentionArgs) -> Vec<Slice> {
    let AttentionForm::Sliced { rows } = args.form else {
        return vec![Slice {
            picture: 0,
            head: 0,
            first: 0,
            rows: args.queries,
            heads: args.batch * args.num_heads,
        }];
    };
    let rows = rows.clamp(1, args.queries);
    let mut list = Vec::new();
    for picture in 0..args.batch {
        for head in 0..args.num_heads {
            for first in (0..args.queries).step_by(rows) {
                list.push(Slice {
                    picture,
                    head,
                    first,
                    rows: rows.min(args.queries - first),
                    heads: 1,
                });
            }
        }
    }
    list
}

/// Some queries of one head of one picture, or all queries of all heads of all pictures.
struct Slice {
    picture: usize,
    head: usize,
    first: usize,
    rows: usize,
    /// Heads of all pictures that one launch takes; for more than one, all of them.
    heads: usize,
}

impl Slice {
    /// Places of the first query and of the first key in their tensors, in values.
    fn places(&self, args: &AttentionArgs) -> [usize; 2] {
        let channels = args.num_heads * args.head_dim;
        let head = self.head * args.head_dim;
        [
            (self.picture * args.queries + self.first) * channels + head,
            self.picture * args.keys * channels + head,
        ]
    }
}

fn scores(args: &AttentionArgs, slice: &Slice, tuning: &Tuning) -> Launch {
    let unit = unit(&[args.head_dim]);
    let tile = tuning.tile(Product::Attention, slice.rows, args.keys);
    let builder = left_names(Builder::new(&args.operands()), args.precision, unit);
    let (role, name) = if args.in_place {
        (Role::Output, "queries")
    } else {
        (Role::Query, "query")
    };
    let builder = tile_names(builder, tile)
        .bind(role, "HAS_QUERY", "B_QUERY")
        .bind(Role::Key, "KEY", "B_KEY")
        .bind(Role::Scratch, "SCRATCH", "B_SCRATCH")
        .set("QUERY", name);
    let [query_at, key_at] = slice.places(args);
    heads_names(builder, args).launch(
        "attention.scores",
        "attention_scores",
        &[PRECISION, SCORES, TILE],
        &[
            word(slice.rows),
            word(args.keys),
            word(args.head_dim / unit),
            word(args.num_heads * args.head_dim / unit),
            word(query_at / unit),
            word(key_at / unit),
            word(args.keys.div_ceil(4)),
            scale(args).to_bits(),
        ],
        grid(tile, slice.rows, args.keys, slice.heads),
    )
}

fn softmax(args: &AttentionArgs, slice: &Slice, limits: &Limits) -> Launch {
    let rows = slice.heads * slice.rows;
    let builder = heads_names(Builder::new(&args.operands()), args);
    reduce_names(builder, SOFTMAX_THREADS, 4)
        .set("MAXIMUM", true)
        .set("CAUSAL", args.causal)
        .bind(Role::Scratch, "SCRATCH", "B_SCRATCH")
        .launch(
            "attention.softmax",
            "attention_softmax",
            &[REDUCE, SOFTMAX],
            &[
                rows,
                args.keys,
                args.keys.div_ceil(4),
                slice.first,
                args.queries,
            ]
            .map(word),
            fold_groups(rows, limits),
        )
}

fn values(args: &AttentionArgs, slice: &Slice, tuning: &Tuning) -> Launch {
    let unit = unit(&[args.head_dim]);
    let tile = tuning.tile(Product::Attention, slice.rows, args.head_dim);
    let halves = args.precision == Precision::F16;
    let builder = tile_names(Builder::new(&args.operands()), tile)
        .stored(OUT, args.precision, unit)
        .set(out_unit(unit), true)
        .set("PIECES", 4 / unit)
        .set("HALVES", halves)
        .bind(Role::Value, "HAS_VALUE", "B_VALUE")
        .bind(Role::Scratch, "SCRATCH", "B_SCRATCH")
        .bind(Role::Output, "OUTPUT", "B_OUTPUT")
        .set("VALUE", if halves { "u32" } else { "f32" });
    let [output_at, value_at] = slice.places(args);
    heads_names(builder, args).launch(
        "attention.values",
        "attention_values",
        &[PRECISION, VALUES, TILE],
        &[
            slice.rows,
            args.head_dim,
            args.keys,
            args.num_heads * args.head_dim,
            value_at,
            output_at,
            args.keys.div_ceil(4),
        ]
        .map(word),
        grid(tile, slice.rows, args.head_dim, slice.heads),
    )
}

fn flash(args: &AttentionArgs) -> Launch {
    let quads = args.head_dim / 4;
    // 16 KiB hold 32 x 32 weights, their shares, and the values of 16 keys; with padding against bank conflicts up to 128 channels
    let value_stride = if args.head_dim <= 128 { 5 } else { 4 };
    let builder = Builder::new(&args.operands())
        .stored(IN, args.precision, 4)
        .stored(OUT, args.precision, 2)
        .set("QUADS", quads)
        .set("PAIRS", (2 * quads).div_ceil(8))
        .set("VALUE_STRIDE", value_stride)
        .set("TILES", (2 * 32 * 5).max(args.head_dim * value_stride))
        .set("CAUSAL", args.causal)
        .bind(Role::Query, "QUERY", "B_QUERY")
        .bind(Role::Key, "KEY", "B_KEY")
        .bind(Role::Value, "VALUE", "B_VALUE")
        .bind(Role::Output, "OUTPUT", "B_OUTPUT");
    builder.launch(
        "attention.flash",
        "attention_flash",
        &[PRECISION, FLASH],
        &[
            word(args.queries),
            word(args.keys),
            word(args.num_heads * quads),
            (scale(args) * std::f32::consts::LOG2_E).to_bits(),
        ],
        [
            word(args.queries.div_ceil(32)),
            word(args.num_heads),
            word(args.batch),
        ],
    )
}

/// Whether a launch takes all heads, and how many a picture has.
fn heads_names(builder: Builder, args: &AttentionArgs) -> Builder {
    let all = args.form == AttentionForm::AllHeads;
    builder
        .set("ALL_HEADS", all)
        .set("NUM_HEADS", args.num_heads)
}

fn grid(tile: Tile, rows: usize, columns: usize, heads: usize) -> [u32; 3] {
    let [x, y] = tile.grid(rows, columns);
    [word(x), word(y), word(heads)]
}

fn scale(args: &AttentionArgs) -> f32 {
    (1.0 / (args.head_dim as f64).sqrt()) as f32
}
