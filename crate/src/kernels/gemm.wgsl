// out[m][n] = sum over k of input[m][k] weight[n][k]; the first k - k2 channels from input, the last k2 from second_input.
struct Params {
  m: u32,             // rows
  n: u32,             // columns of the output
  k1: u32,            // channels of input
  k2: u32,            // channels of second_input
  weight_stride: u32, // of a row of weight, in units of four values
  stages: u32,        // of a slice of k
  positions: u32,     // not used: nothing is added per picture
  slices: u32,        // of k
}
@group(0) @binding($B_INPUT) var<storage, read_write> input: array<$IN>;                // [m, k1]
//! if SECOND_INPUT
@group(0) @binding($B_SECOND_INPUT) var<storage, read_write> second_input: array<$IN>;  // [m, k2]
//! end
@group(0) @binding($B_WEIGHT) var<storage, read> weight: array<vec2<u32>>;              // [n or 2 n, weight_stride] four float16
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

struct Row { ok: bool, at: u32, second_at: u32 }
struct Column { ok: bool, at: u32 }
struct K { quad: u32 }

fn begin_row(row: u32) -> Row {
  return Row(row < params.m, row * (params.k1 / ${IN_UNIT}u), row * (params.k2 / ${IN_UNIT}u));
}
fn begin_column(column: u32) -> Column {
//! if GEGLU
  // two values, then their two gates
  let value = column / 4u * 2u + column % 2u;
  return Column(value < params.n, (value + select(0u, params.n, column % 4u >= 2u)) * params.weight_stride);
//! else
  return Column(column < params.n, column * params.weight_stride);
//! end
}
fn begin_k(slice: u32, quad: u32) -> K { return K(slice * params.stages * 4u + quad); }
fn next_k(k: K) -> K { return K(k.quad + 4u); }
fn stages(slice: u32) -> u32 {
  let all = (params.k1 + params.k2 + 15u) / 16u;
  let first = min(slice * params.stages, all);
  return min(params.stages, all - first);
}
fn a4(row: Row, k: K) -> vec4<f32> {
//! each i IN_PIECES
  let c$i = k.quad * 4u + ${i}u * ${IN_UNIT}u;
//! if SECOND_INPUT
  let in_first$i = row.ok & (c$i < params.k1);
  let in_second$i = row.ok & (c$i >= params.k1) & (c$i < params.k1 + params.k2);
  let x$i = select($IN_V(), from_${IN_NAME}(input[select(0u, row.at + c$i / ${IN_UNIT}u, in_first$i)]), in_first$i);
  let y$i = from_${IN_NAME}(second_input[select(0u, row.second_at + (c$i - params.k1) / ${IN_UNIT}u, in_second$i)]);
  let v$i = select(x$i, y$i, in_second$i);
//! else
  let ok$i = row.ok & (c$i < params.k1);
  let v$i = select($IN_V(), from_${IN_NAME}(input[select(0u, row.at + c$i / ${IN_UNIT}u, ok$i)]), ok$i);
//! end
//! end
  return vec4<f32>($IN_JOIN);
}
fn b4(column: Column, quad: u32) -> vec4<f32> {
  let ok = column.ok & (quad < params.weight_stride);
  return select(vec4<f32>(), from_f16x4(weight[select(0u, column.at + quad, ok)]), ok);
}
