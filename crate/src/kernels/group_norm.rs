//! Launches of group norm: statistics, their combination, the norm.

use super::{
    GroupNormArgs, Launch, Limits, Precision, Role,
    builder::{Builder, OUT, fold, left_names, reduce_names, unit, word},
    gemm::{FUNCTIONS, PRECISION},
};

const REDUCE: &str = include_str!("reduce.wgsl");
const GROUP_NORM: &str = include_str!("group_norm.wgsl");
/// Threads of a slice's statistics.
const THREADS: usize = 256;

pub(super) fn launches(args: &GroupNormArgs, limits: &Limits) -> Vec<Launch> {
    let c2 = args.second_source.unwrap_or(0);
    let group_channels = args.channels / args.groups;
    let sources = [args.channels - c2, c2];
    let read = unit(&[group_channels, sources[0], c2]);
    let written = unit(&sources);
    let slices = args.slices();

    let statistics = reduce_names(source(args, read), THREADS, read)
        .set("READS", true)
        .set("STATISTICS", true)
        .set("HALVES", args.input == Precision::F16 && read == 1);
    let statistics = if args.in_place {
        // the output is only read here, in the units of the statistics
        left_names(statistics, args.input, read)
            .stored(OUT, args.output, read)
            .bind(Role::Output, "OUTPUT", "B_OUTPUT")
    } else {
        statistics
    };
    let statistics = statistics.launch(
        "group_norm.statistics",
        "group_norm_statistics",
        &[PRECISION, REDUCE, GROUP_NORM],
        &params(args, read),
        [word(slices), word(args.groups), word(args.batch)],
    );

    let combine = reduce_names(Builder::new(&args.operands()), 64, 1)
        .set("COMBINE", true)
        .bind(Role::Scratch, "SCRATCH", "B_SCRATCH")
        .launch(
            "group_norm.combine",
            "group_norm_combine",
            &[REDUCE, GROUP_NORM],
            &params(args, read),
            [word(args.groups), word(args.batch), 1],
        );

    let apply = source(args, written)
        .set("READS", true)
        .set("APPLY", true)
        .set("ONE_GROUP", group_channels.is_multiple_of(written))
        .set("ACTIVATION", if args.silu { "silu" } else { "identity" })
        .stored(OUT, args.output, written)
        .bind(Role::Scale, "SCALE", "B_SCALE")
        .bind(Role::Shift, "SHIFT", "B_SHIFT")
        .bind(Role::Output, "OUTPUT", "B_OUTPUT")
        .launch(
            "group_norm.apply",
            "group_norm",
            &[PRECISION, FUNCTIONS, GROUP_NORM],
            &params(args, written),
            fold(
                args.batch * args.positions * args.channels / written,
                limits,
            ),
        );
    vec![statistics, combine, apply]
}

fn source(args: &GroupNormArgs, unit: usize) -> Builder {
    let builder = left_names(Builder::new(&args.operands()), args.input, unit)
        .set("FIRST", if args.in_place { "output" } else { "input" });
    builder
        .bind(Role::Input, "INPUT", "B_INPUT")
        .bind(Role::SecondInput, "SECOND_INPUT", "B_SECOND_INPUT")
        .bind(Role::Scratch, "SCRATCH", "B_SCRATCH")
}

fn params(args: &GroupNormArgs, unit: usize) -> [u32; 12] {
    let slices = args.slices();
    let group_units = (args.channels / args.groups / unit).max(1);
    let first = args.channels - args.second_source.unwrap_or(0);
    [
        word(args.positions),
        word(args.channels / unit),
        word(first / unit),
        word(group_units),
        word(args.groups),
        word(slices),
        word(args.positions.div_ceil(slices)),
        word(THREADS / group_units),
        word(THREADS % group_units),
        word(args.batch * args.positions * args.channels / unit),
        word(args.channels / args.groups),
        args.eps.to_bits(),
    ]
}
