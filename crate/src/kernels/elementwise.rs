//! Launch of what works value by value.

use super::{
    ChannelRows, ElementwiseArgs, ElementwiseOp, Launch, Limits, Role,
    builder::{Builder, OUT, fold, left_names, unit, word},
    gemm::{FUNCTIONS, PRECISION},
};

const ELEMENTWISE: &str = include_str!("elementwise.wgsl");

pub(super) fn launches(args: &ElementwiseArgs, limits: &Limits) -> Vec<Launch> {
    let (mut first, mut input_size) = (0, [0, 0]);
    let (label, flag) = match args.op {
        ElementwiseOp::Add => ("elementwise.add", "ADD"),
        ElementwiseOp::AddChannels { .. } => ("elementwise.add_channels", "ADD_CHANNELS"),
        ElementwiseOp::Silu => ("elementwise.silu", "FUNCTION"),
        ElementwiseOp::QuickGelu => ("elementwise.quick_gelu", "FUNCTION"),
        ElementwiseOp::Gelu => ("elementwise.gelu", "FUNCTION"),
        ElementwiseOp::Geglu => ("elementwise.geglu", "GEGLU"),
        ElementwiseOp::ConcatChannels { first: channels } => {
            first = channels;
            ("elementwise.concat_channels", "CONCAT_CHANNELS")
        }
        ElementwiseOp::UpsampleNearest2d { height, width } => {
            input_size = [height, width];
            ("elementwise.upsample_nearest2d", "UPSAMPLE_NEAREST2D")
        }
    };
    let function = match args.op {
        ElementwiseOp::QuickGelu => "quick_gelu",
        ElementwiseOp::Gelu => "gelu",
        _ => "silu",
    };
    let rows = match args.op {
        ElementwiseOp::AddChannels { rows } => match rows {
            ChannelRows::One => "CHANNEL_ADD_ONE",
            ChannelRows::PerPicture => "CHANNEL_ADD_PICTURE",
            ChannelRows::Step { .. } => "CHANNEL_ADD_STEP",
        },
        _ => "CHANNEL_ADD_NONE",
    };
    let unit = unit(&[args.channels, first]);
    let builder = left_names(Builder::new(&args.operands()), args.input, unit)
        .stored(OUT, args.output, unit)
        .set("FIRST", if args.in_place { "output" } else { "input" });
    // the flag FUNCTION has the function's name for its value
    let builder = if flag == "FUNCTION" {
        builder.set(flag, function)
    } else {
        builder.set(flag, true)
    };
    let builder = builder
        .set(rows, true)
        .bind(Role::Input, "INPUT", "B_INPUT")
        .bind(Role::SecondInput, "SECOND_INPUT", "B_SECOND_INPUT")
        .bind(Role::ChannelAdd, "CHANNEL_ADD", "B_CHANNEL_ADD")
        .bind(Role::Step, "STEP", "B_STEP")
        .bind(Role::Output, "OUTPUT", "B_OUTPUT");
    let count = args.len() / unit;
    vec![
        builder.launch(
            label,
            "elementwise",
            &[PRECISION, FUNCTIONS, ELEMENTWISE],
            &[
                count,
                args.channels / unit,
                args.height * args.width,
                args.width,
                input_size[0],
                input_size[1],
                first / unit,
            ]
            .map(word),
            fold(count, limits),
        ),
    ]
}
