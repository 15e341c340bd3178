// 3x3 convolution as a matrix product whose left matrix is never made: row = output place, k = (ky, kx, channel), channel fastest.
// Needs channels_in in whole quads, at least four of them: then a stage of 16 values of k passes at most one kernel place.
struct Params {
  m: u32,              // output places of all pictures
  n: u32,              // channels_out
  quads: u32,          // channels_in / 4
  first_row: u32,      // of the output that is made
  weight_stride: u32,  // of a row of weight, in units of four values
  stages: u32,         // of a slice of k
  positions: u32,      // output places of a picture that are made
  slices: u32,         // of k
  height: u32,         // of the input that the kernel sees
  width: u32,
  stored_height: u32,  // of a picture of the input in memory; with UPSAMPLE about half
  stored_width: u32,
  out_width: u32,
  stride: u32,
  padding: u32,        // above and left
  stored_first: u32,   // first row of the input in memory
}
@group(0) @binding($B_INPUT) var<storage, read_write> input: array<$IN>;    // [batch, stored_height, stored_width, quads] four channels
@group(0) @binding($B_WEIGHT) var<storage, read> weight: array<vec2<u32>>;  // [n, weight_stride] four float16
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

struct Row { ok: bool, picture: u32, y: i32, x: i32 }
struct Column { ok: bool, at: u32 }
struct K { quad: u32, ky: u32, kx: u32, channel: u32 }

fn begin_row(row: u32) -> Row {
  let place = row % params.positions;
  let y = (params.first_row + place / params.out_width) * params.stride;
  let x = place % params.out_width * params.stride;
  let picture = row / params.positions * params.stored_height * params.stored_width;
  return Row(row < params.m, picture, i32(y) - i32(params.padding), i32(x) - i32(params.padding));
}
fn begin_column(column: u32) -> Column { return Column(column < params.n, column * params.weight_stride); }
fn begin_k(slice: u32, quad: u32) -> K {
  let first = slice * params.stages * 4u + quad;
  let place = first / params.quads;
  return K(first, place / 3u, place % 3u, first % params.quads);
}
fn next_k(k: K) -> K {
  let wraps = k.channel + 4u >= params.quads;
  let channel = k.channel + 4u - select(0u, params.quads, wraps);
  let kx = k.kx + select(0u, 1u, wraps);
  return K(k.quad + 4u, k.ky + kx / 3u, kx % 3u, channel);
}
fn stages(slice: u32) -> u32 {
  let all = (9u * params.quads + 3u) / 4u;
  let first = min(slice * params.stages, all);
  return min(params.stages, all - first);
}
fn a4(row: Row, k: K) -> vec4<f32> {
  let y = row.y + i32(k.ky);
  let x = row.x + i32(k.kx);
  let ok = row.ok & (k.ky < 3u) & (y >= 0) & (x >= 0) & (y < i32(params.height)) & (x < i32(params.width));
//! if UPSAMPLE
  let place = (u32(y / 2) - params.stored_first) * params.stored_width + u32(x / 2);
//! else
  let place = (u32(y) - params.stored_first) * params.stored_width + u32(x);
//! end
  return select(vec4<f32>(), from_${IN_NAME}(input[select(0u, (row.picture + place) * params.quads + k.channel, ok)]), ok);
}
fn b4(column: Column, quad: u32) -> vec4<f32> {
  let ok = column.ok & (quad < params.weight_stride);
  return select(vec4<f32>(), from_f16x4(weight[select(0u, column.at + quad, ok)]), ok);
}
