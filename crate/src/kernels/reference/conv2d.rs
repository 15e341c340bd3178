//! Twin of the convolution.

use super::{Values, channel_row, gemm::residual};
use crate::kernels::{Conv2dArgs, Role};

pub(super) fn conv2d(args: &Conv2dArgs, values: &Values) -> Vec<f64> {
    let [height, width] = args.input_size();
    let [out_height, out_width] = args.output_size();
    let rows = args
        .strip
        .map_or(0..out_height, |strip| strip.first..strip.first + strip.rows);
    let (input_first, input_rows) = args.strip.map_or((0, args.height), |strip| {
        (strip.input_first, strip.input_rows)
    });
    let (kernel, channels) = (args.kernel, args.channels_in);
    // the stored place under place `at` of what the kernel sees, `at` counted from the first row of padding
    let place = |at: usize, size: usize| {
        let inside = at
            .checked_sub(args.padding_before)
            .filter(|at| *at < size)?;
        Some(if args.upsample.is_some() {
            inside / 2
        } else {
            inside
        })
    };
    let mut out = Vec::with_capacity(args.m() * args.channels_out);
    for picture in 0..args.batch {
        for (y, x) in rows
            .clone()
            .flat_map(|y| (0..out_width).map(move |x| (y, x)))
        {
            for n in 0..args.channels_out {
                let mut sum = values.at(Role::Bias, n);
                for (ky, kx) in (0..kernel).flat_map(|ky| (0..kernel).map(move |kx| (ky, kx))) {
                    let at =
                        place(y * args.stride + ky, height).zip(place(x * args.stride + kx, width));
                    let Some((from_y, from_x)) = at else {
                        continue;
                    };
                    // a row that the strip lacks must show, not count as zero
                    let missing = from_y < input_first || from_y >= input_first + input_rows;
                    if missing {
                        sum = f64::NAN;
                        continue;
                    }
                    let from_y = picture * input_rows + from_y - input_first;
                    let from = from_y * args.width + from_x;
                    for c in 0..channels {
                        let weight = ((n * kernel + ky) * kernel + kx) * channels + c;
                        sum += values.at(Role::Input, from * channels + c)
                            * values.at(Role::Weight, weight);
                    }
                }
                if let Some(rows) = args.channel_add {
                    let row = channel_row(rows, picture, values.step);
                    sum += values.at(Role::ChannelAdd, row * args.channels_out + n);
                }
                let at = out.len();
                out.push(sum + residual(args.residual, values, at));
            }
        }
    }
    out
}
