use latent_canvas::kernels::{
    ChannelRows, Conv2dArgs, ConvStrip, Kernel, Precision, Residual, Role,
};
use latent_canvas_tests::kernel_case::Case;

use super::{PRECISIONS, check_tiles, tolerance};

const PLAIN: Conv2dArgs = Conv2dArgs {
    batch: 2,
    height: 7,
    width: 5,
    channels_in: 20,
    channels_out: 36,
    kernel: 3,
    stride: 1,
    padding_before: 1,
    padding_after: 1,
    upsample: None,
    channel_add: None,
    residual: Residual::None,
    k_slices: 1,
    strip: None,
    input: Precision::F32,
    output: Precision::F32,
};

fn check(args: Conv2dArgs) {
    for precision in PRECISIONS {
        let args = Conv2dArgs {
            input: precision,
            output: precision,
            ..args
        };
        check_tiles(Kernel::Conv2d(args), 1.0, tolerance(precision));
    }
}

#[test]
fn channels() {
    for (channels_in, channels_out) in [(16, 12), (20, 36), (32, 64), (44, 70)] {
        check(Conv2dArgs {
            channels_in,
            channels_out,
            ..PLAIN
        });
    }
}

#[test]
fn strides_and_padding() {
    for (stride, padding_before, padding_after) in [(2, 1, 1), (2, 0, 1), (1, 0, 0), (1, 0, 1)] {
        check(Conv2dArgs {
            stride,
            padding_before,
            padding_after,
            ..PLAIN
        });
        check(Conv2dArgs {
            stride,
            padding_before,
            padding_after,
            channels_in: 4,
            ..PLAIN
        });
    }
}

#[test]
fn upsampling_is_folded_in() {
    for upsample in [[14, 10], [13, 9], [14, 9]] {
        check(Conv2dArgs {
            upsample: Some(upsample),
            ..PLAIN
        });
        check(Conv2dArgs {
            upsample: Some(upsample),
            channels_in: 6,
            ..PLAIN
        });
    }
}

#[test]
fn epilogues() {
    for (rows, residual) in [
        (ChannelRows::One, Residual::None),
        (ChannelRows::PerPicture, Residual::Separate),
        (ChannelRows::Step { steps: 4 }, Residual::InPlace),
    ] {
        check(Conv2dArgs {
            channel_add: Some(rows),
            residual,
            ..PLAIN
        });
    }
}

#[test]
fn split_k() {
    for k_slices in [2, 5, 8] {
        check(Conv2dArgs {
            k_slices,
            channel_add: Some(ChannelRows::PerPicture),
            residual: Residual::Separate,
            ..PLAIN
        });
    }
}

#[test]
fn few_channels_go_without_a_tile() {
    for (channels_in, channels_out) in [(4, 32), (4, 4), (32, 4), (36, 6), (6, 8), (2, 2)] {
        let args = Conv2dArgs {
            channels_in,
            channels_out,
            channel_add: Some(ChannelRows::PerPicture),
            residual: Residual::Separate,
            ..PLAIN
        };
        check(args);
        let launches = Kernel::Conv2d(args).launches(&Default::default(), &Default::default());
        assert_eq!(launches.unwrap()[0].label, "conv2d.direct");
    }
}

#[test]
fn odd_channels() {
    for (channels_in, channels_out) in [(3, 5), (1, 1), (33, 17), (32, 3), (5, 32)] {
        let args = Conv2dArgs {
            channels_in,
            channels_out,
            ..PLAIN
        };
        check_tiles(Kernel::Conv2d(args), 1.0, 1e-5);
    }
}

#[test]
fn outliers() {
    Case::new(Kernel::Conv2d(PLAIN), 1e4).check(1e-5);
}

/// A strip gives the rows of the whole picture, to the bit: in every tile, with and without one, at the picture's edges and inside.
#[test]
fn strips_are_rows_of_the_whole() {
    for (channels_in, channels_out, upsample) in [
        (20, 36, None),
        (20, 36, Some([13, 10])),
        (6, 10, None),
        (6, 10, Some([14, 9])),
    ] {
        for precision in PRECISIONS {
            let args = Conv2dArgs {
                batch: 1,
                channels_in,
                channels_out,
                upsample,
                residual: Residual::Separate,
                input: precision,
                output: precision,
                ..PLAIN
            };
            let case = Case::new(Kernel::Conv2d(args), 1.0);
            let whole = case.gpu();
            let [height, width] = args.output_size();
            let row = width * channels_out;
            for (first, rows) in [(0, 1), (0, 4), (2, 3), (height - 3, 3), (0, height)] {
                let stored = args.stored_rows(first..first + rows);
                // a row more than needed, where there is one
                let input_first = stored.start.saturating_sub(1);
                let strip = ConvStrip {
                    first,
                    rows,
                    input_first,
                    input_rows: stored.end - input_first,
                };
                let args = Conv2dArgs {
                    strip: Some(strip),
                    ..args
                };
                let input = args.width * channels_in;
                let part = |role, width: usize, rows: std::ops::Range<usize>| {
                    case.values.get(role)[rows.start * width..rows.end * width].to_vec()
                };
                let part = Case::new(Kernel::Conv2d(args), 1.0)
                    .with(
                        Role::Input,
                        part(Role::Input, input, input_first..stored.end),
                    )
                    .with(Role::Weight, case.values.get(Role::Weight).to_vec())
                    .with(Role::Bias, case.values.get(Role::Bias).to_vec())
                    .with(
                        Role::Residual,
                        part(Role::Residual, row, first..first + rows),
                    );
                part.check(tolerance(precision));
                assert!(
                    part.gpu() == whole[first * row..(first + rows) * row],
                    "{args:?}"
                );
            }
        }
    }
}
