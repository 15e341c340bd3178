//! Matrix products: linear layers, 1x1 convolutions, GEGLU; and the 3x3 convolution, which is one over patches.

use std::ops::Range;

use super::{Activation, ChannelRows, Residual, STEP, arena, weight};
use crate::kernels::{Access, Operand, Precision, Role, matrix_bytes, vector_bytes};

/// `out[m][n] = activation(sum_k in[m][k] weight[n][k] + bias[n]) + residual[m][n]`.
///
/// Operands in order, those in brackets where the arguments ask for them:
/// `Input [m, k - k2]`, `[SecondInput [m, k2]]`, `Weight [rows][kp]`, `[Bias [rows]]`, `[Residual [m, n]]`, `[Scratch]`, `Output [m, n]`;
/// `rows` is `n`, or `2 n` with GEGLU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemmArgs {
    /// Rows of the input: `batch * positions`.
    pub m: usize,
    /// Channels of the output.
    pub n: usize,
    /// Channels of the input, of both sources together.
    pub k: usize,
    /// The last `k2` channels come from a second tensor: a concatenation that is never made. `0 < k2 < k`.
    pub second_source: Option<usize>,
    /// Whether there is a bias.
    pub bias: bool,
    /// Applied after the bias; [`Activation::None`] with GEGLU.
    pub activation: Activation,
    /// The weight has `2 n` rows, values then gates: `out = (value + bias) * gelu(gate + bias)` with the exact GELU.
    pub geglu: bool,
    /// Added last.
    pub residual: Residual,
    /// `k` is cut into so many slices (1: none), whose sums go through scratch and are added in a fixed order. For few tiles and long sums.
    pub k_slices: usize,
    /// Of both sources.
    pub input: Precision,
    /// Of the output and the residual.
    pub output: Precision,
}

impl GemmArgs {
    /// Rows of the weight matrix.
    #[must_use]
    pub const fn weight_rows(&self) -> usize {
        if self.geglu { 2 * self.n } else { self.n }
    }

    /// Float32 partial sums `[k_slices, m, weight_rows]`; nothing for one slice.
    #[must_use]
    pub const fn scratch_bytes(&self) -> u64 {
        if self.k_slices > 1 {
            4 * (self.k_slices * self.m * self.weight_rows()) as u64
        } else {
            0
        }
    }

    /// Multiply-adds.
    #[must_use]
    pub const fn macs(&self) -> u64 {
        (self.m * self.weight_rows()) as u64 * self.k as u64
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let k2 = self.second_source.unwrap_or(0);
        let mut list = vec![arena(
            Role::Input,
            Access::Read,
            self.input.bytes(self.m * (self.k - k2)),
        )];
        if k2 > 0 {
            list.push(arena(
                Role::SecondInput,
                Access::Read,
                self.input.bytes(self.m * k2),
            ));
        }
        list.push(weight(
            Role::Weight,
            matrix_bytes(self.weight_rows(), self.k),
        ));
        if self.bias {
            list.push(weight(Role::Bias, vector_bytes(self.weight_rows())));
        }
        push_result(
            &mut list,
            self.residual,
            self.scratch_bytes(),
            self.output.bytes(self.m * self.n),
        );
        list
    }
}

/// 3x3 convolution: `out[b][y][x][n] = sum in[b][sy(y, ky)][sx(x, kx)][c] weight[n][ky][kx][c] + bias[n] + channel_add[row][n] + residual`.
///
/// Without upsampling `sy = y * stride + ky - padding_before`, and a place outside of the input counts as zero.
/// With it the input is first enlarged: place `y` of the enlarged image, `0 <= y < height`, is place `y / 2` of the stored one.
///
/// With a strip only some rows are made, from an input that holds only some rows.
///
/// Operands in order: `Input [batch, height, width, channels_in]`, `Weight [channels_out][kp]`, `Bias [channels_out]`,
/// `[ChannelAdd [rows, channels_out] float32]`, `[Step]`, `[Residual]`, `[Scratch]`, `Output [batch, out_height, out_width, channels_out]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2dArgs {
    /// Pictures.
    pub batch: usize,
    /// Rows of the stored input.
    pub height: usize,
    /// Columns of the stored input.
    pub width: usize,
    /// Channels of the input.
    pub channels_in: usize,
    /// Channels of the output.
    pub channels_out: usize,
    /// Side of the kernel: 3.
    pub kernel: usize,
    /// 1 or 2.
    pub stride: usize,
    /// Zeros above and left of the (enlarged) input.
    pub padding_before: usize,
    /// Zeros below and right of it; differs from `padding_before` for `downsample_padding: 0`.
    pub padding_after: usize,
    /// Height and width of the input after nearest-neighbour doubling, each the double or one less.
    pub upsample: Option<[usize; 2]>,
    /// Added per channel: the time embedding.
    pub channel_add: Option<ChannelRows>,
    /// Added last.
    pub residual: Residual,
    /// As in [`GemmArgs::k_slices`].
    pub k_slices: usize,
    /// Which rows are made, of one picture; all of them without it.
    pub strip: Option<ConvStrip>,
    /// Of the input.
    pub input: Precision,
    /// Of the output and the residual.
    pub output: Precision,
}

/// Some rows of a convolution's picture. Sizes and padding stay those of the whole picture, so only its own edges are padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvStrip {
    /// The first row of the output.
    pub first: usize,
    /// Rows of the output; the operands `Output` and `Residual` hold these alone.
    pub rows: usize,
    /// The first stored row of the operand `Input`.
    pub input_first: usize,
    /// Stored rows of the operand `Input`: at least [`Conv2dArgs::stored_rows`].
    pub input_rows: usize,
}

impl Conv2dArgs {
    /// Height and width that the convolution sees.
    #[must_use]
    pub fn input_size(&self) -> [usize; 2] {
        self.upsample.unwrap_or([self.height, self.width])
    }

    /// Height and width of the output.
    #[must_use]
    pub fn output_size(&self) -> [usize; 2] {
        self.input_size().map(|side| {
            (side + self.padding_before + self.padding_after - self.kernel) / self.stride + 1
        })
    }

    /// Rows of the matrix product: output positions of all pictures, or of the strip.
    #[must_use]
    pub fn m(&self) -> usize {
        let [height, width] = self.output_size();
        self.batch * self.strip.map_or(height, |strip| strip.rows) * width
    }

    /// The rows of the stored input that the given rows of the output are made of.
    #[must_use]
    pub fn stored_rows(&self, rows: Range<usize>) -> Range<usize> {
        let [height, _] = self.input_size();
        let inside = |row: usize| row.saturating_sub(self.padding_before).min(height);
        let first = inside(rows.start * self.stride);
        let end = inside(rows.end.saturating_sub(1) * self.stride + self.kernel);
        match self.upsample {
            Some(_) => first / 2..end.div_ceil(2),
            None => first..end,
        }
    }

    /// Length of each sum.
    #[must_use]
    pub const fn k(&self) -> usize {
        self.kernel * self.kernel * self.channels_in
    }

    /// Float32 partial sums `[k_slices, m, channels_out]`; nothing for one slice.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        if self.k_slices > 1 {
            4 * (self.k_slices * self.m() * self.channels_out) as u64
        } else {
            0
        }
    }

    /// Multiply-adds.
    #[must_use]
    pub fn macs(&self) -> u64 {
        (self.m() * self.channels_out) as u64 * self.k() as u64
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let input_rows = self.strip.map_or(self.height, |strip| strip.input_rows);
        let input = self.batch * input_rows * self.width * self.channels_in;
        let mut list = vec![
            arena(Role::Input, Access::Read, self.input.bytes(input)),
            weight(Role::Weight, matrix_bytes(self.channels_out, self.k())),
            weight(Role::Bias, vector_bytes(self.channels_out)),
        ];
        if let Some(rows) = self.channel_add {
            list.push(arena(
                Role::ChannelAdd,
                Access::Read,
                Precision::F32.bytes(rows.rows(self.batch) * self.channels_out),
            ));
            if matches!(rows, ChannelRows::Step { .. }) {
                list.push(STEP);
            }
        }
        push_result(
            &mut list,
            self.residual,
            self.scratch_bytes(),
            self.output.bytes(self.m() * self.channels_out),
        );
        list
    }
}

fn push_result(list: &mut Vec<Operand>, residual: Residual, scratch: u64, output: u64) {
    if residual == Residual::Separate {
        list.push(arena(Role::Residual, Access::Read, output));
    }
    if scratch > 0 {
        list.push(arena(Role::Scratch, Access::Write, scratch));
    }
    let access = match residual {
        Residual::InPlace => Access::ReadWrite,
        Residual::None | Residual::Separate => Access::Write,
    };
    list.push(arena(Role::Output, access, output));
}
