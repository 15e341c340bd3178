//! Launches of group norm: statistics, their combination, the norm; as one kernel or as three.

use super::{
    GroupApplyArgs, GroupCombineArgs, GroupNormArgs, GroupStatisticsArgs, Launch, Limits, Operand,
    Precision, Role,
    args::norms::statistics_stride,
    builder::{Builder, OUT, fold, left_names, reduce_names, unit, word},
    gemm::{FUNCTIONS, PRECISION},
};

const REDUCE: &str = include_str!("reduce.wgsl");
const GROUP_NORM: &str = include_str!("group_norm.wgsl");
/// Threads of a slice's statistics.
const THREADS: usize = 256;
/// Threads that combine the slices of a group.
const COMBINE_THREADS: usize = 64;

pub(super) fn launches(args: &GroupNormArgs, limits: &Limits) -> Vec<Launch> {
    let operands = args.operands();
    let c2 = args.second_source.unwrap_or(0);
    let group_channels = args.channels / args.groups;
    let sources = [args.channels - c2, c2];
    let read = unit(&[group_channels, sources[0], c2]);
    let written = unit(&sources);
    let slices = args.slices();
    let sizes = Sizes {
        positions: args.positions,
        channels: args.channels,
        first: sources[0],
        groups: args.groups,
        stride: args.groups,
        slices,
        slice_positions: args.positions.div_ceil(slices),
        rows: args.batch * args.positions,
        eps: args.eps,
    };

    let scratch = (Role::Scratch, "B_SCRATCH");
    let reads = source(&operands, args.input, read, args.in_place, scratch.0);
    let statistics = statistics_names(reads, args.input, read);
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
        &sizes.params(read),
        [word(slices), word(args.groups), word(args.batch)],
    );

    let combine = reduce_names(Builder::new(&operands), COMBINE_THREADS, 1)
        .set("COMBINE", true)
        .bind(scratch.0, "SCRATCH", scratch.1)
        .launch(
            "group_norm.combine",
            "group_norm_combine",
            &[REDUCE, GROUP_NORM],
            &sizes.params(read),
            [word(args.groups), word(args.batch), 1],
        );

    let reads = source(&operands, args.input, written, args.in_place, scratch.0);
    let names = Apply {
        output: args.output,
        unit: written,
        group_channels,
        silu: args.silu,
    };
    vec![statistics, combine, names.launch(reads, &sizes, limits)]
}

/// The first part.
pub(super) fn statistics(args: &GroupStatisticsArgs) -> Launch {
    let read = unit(&[args.channels / args.groups]);
    let sizes = Sizes {
        positions: args.positions,
        channels: args.channels,
        first: args.channels,
        groups: args.groups,
        stride: statistics_stride(args.groups),
        slices: args.slices(),
        slice_positions: args.slice_positions,
        rows: args.positions,
        eps: 0.0,
    };
    let reads = source(&args.operands(), args.input, read, false, Role::Output);
    statistics_names(reads, args.input, read).launch(
        "group_norm.statistics",
        "group_norm_statistics",
        &[PRECISION, REDUCE, GROUP_NORM],
        &sizes.params(read),
        [word(args.slices()), word(args.groups), 1],
    )
}

/// The second part.
pub(super) fn combine(args: &GroupCombineArgs) -> Launch {
    let sizes = Sizes {
        positions: args.positions,
        channels: args.channels,
        first: args.channels,
        groups: args.groups,
        stride: statistics_stride(args.groups),
        slices: args.slices(),
        slice_positions: args.slice_positions,
        rows: 0,
        eps: args.eps,
    };
    reduce_names(Builder::new(&args.operands()), COMBINE_THREADS, 1)
        .set("COMBINE", true)
        .bind(Role::Input, "SCRATCH", "B_SCRATCH")
        .bind(Role::Output, "FINISHED", "B_FINISHED")
        .launch(
            "group_norm.combine",
            "group_norm_combine",
            &[REDUCE, GROUP_NORM],
            &sizes.params(1),
            [word(args.groups), 1, 1],
        )
}

/// The last part.
pub(super) fn apply(args: &GroupApplyArgs, limits: &Limits) -> Launch {
    let unit = unit(&[args.channels]);
    let sizes = Sizes {
        positions: args.positions,
        channels: args.channels,
        first: args.channels,
        groups: args.groups,
        stride: statistics_stride(args.groups),
        // the finished statistics are the first that are bound
        slices: 0,
        slice_positions: 0,
        rows: args.positions,
        eps: 0.0,
    };
    let operands = args.operands();
    let reads = source(&operands, args.input, unit, args.in_place, Role::Statistics);
    let names = Apply {
        output: args.output,
        unit,
        group_channels: args.channels / args.groups,
        silu: args.silu,
    };
    names.launch(reads, &sizes, limits)
}

/// Binds what is read, in units of `unit` channels, and the operand that holds statistics.
fn source(
    operands: &[Operand],
    input: Precision,
    unit: usize,
    in_place: bool,
    statistics: Role,
) -> Builder {
    left_names(Builder::new(operands), input, unit)
        .set("READS", true)
        .set("FIRST", if in_place { "output" } else { "input" })
        .bind(Role::Input, "INPUT", "B_INPUT")
        .bind(Role::SecondInput, "SECOND_INPUT", "B_SECOND_INPUT")
        .bind(statistics, "SCRATCH", "B_SCRATCH")
}

fn statistics_names(builder: Builder, input: Precision, unit: usize) -> Builder {
    reduce_names(builder, THREADS, unit)
        .set("STATISTICS", true)
        .set("HALVES", input == Precision::F16 && unit == 1)
}

/// The names of the norm itself.
struct Apply {
    output: Precision,
    unit: usize,
    group_channels: usize,
    silu: bool,
}

impl Apply {
    fn launch(&self, reads: Builder, sizes: &Sizes, limits: &Limits) -> Launch {
        reads
            .set("APPLY", true)
            .set("ONE_GROUP", self.group_channels.is_multiple_of(self.unit))
            .set("ACTIVATION", if self.silu { "silu" } else { "identity" })
            .stored(OUT, self.output, self.unit)
            .bind(Role::Scale, "SCALE", "B_SCALE")
            .bind(Role::Shift, "SHIFT", "B_SHIFT")
            .bind(Role::Output, "OUTPUT", "B_OUTPUT")
            .launch(
                "group_norm.apply",
                "group_norm",
                &[PRECISION, FUNCTIONS, GROUP_NORM],
                &sizes.params(self.unit),
                fold(sizes.rows * sizes.channels / self.unit, limits),
            )
    }
}

/// What the uniform is made of.
struct Sizes {
    positions: usize,
    channels: usize,
    /// Channels of the first source.
    first: usize,
    groups: usize,
    /// Pairs from one slice's statistics to the next's.
    stride: usize,
    slices: usize,
    slice_positions: usize,
    rows: usize,
    eps: f32,
}

impl Sizes {
    fn params(&self, unit: usize) -> [u32; 12] {
        let group_channels = self.channels / self.groups;
        let group_units = (group_channels / unit).max(1);
        [
            word(self.positions),
            word(self.channels / unit),
            word(self.first / unit),
            word(group_units),
            word(self.stride),
            word(self.slices),
            word(self.slice_positions),
            word(THREADS / group_units),
            word(THREADS % group_units),
            word(self.rows * self.channels / unit),
            word(group_channels),
            self.eps.to_bits(),
        ]
    }
}
