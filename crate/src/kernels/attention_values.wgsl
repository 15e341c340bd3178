// output[query][channel] = sum over keys of scores[query][key] value[key][channel], of one head and some of its queries, or of all heads of
// all pictures (z).
struct Params {
  m: u32,          // queries of this slice
  n: u32,          // head_dim
  keys: u32,
  channels: u32,   // of all heads
  value_at: u32,   // first key of this head, in values
  output_at: u32,  // first query of this slice and head, in values
  pitch: u32,      // vec4 of a row of scores
}
@group(0) @binding($B_VALUE) var<storage, read_write> value: array<$VALUE>;        // [batch, keys, channels]
@group(0) @binding($B_SCRATCH) var<storage, read_write> scores: array<vec4<f32>>;  // [m, pitch]
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$OUT>;        // [batch, queries, channels]
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

struct Row { ok: bool, at: u32 }
struct Column { ok: bool, at: u32 }
struct K { quad: u32 }

//! if ALL_HEADS
fn first_of(z: u32, tokens: u32) -> u32 { return z / ${NUM_HEADS}u * tokens * params.channels + z % ${NUM_HEADS}u * params.n; }
var<private> head: u32;
//! end
fn begin_row(row: u32) -> Row {
//! if ALL_HEADS
  return Row(row < params.m, (head * params.m + row) * params.pitch);
//! else
  return Row(row < params.m, row * params.pitch);
//! end
}
fn begin_column(column: u32) -> Column {
//! if ALL_HEADS
  let first = first_of(head, params.keys);
//! else
  let first = params.value_at;
//! end
  return Column(column < params.n, first + column);
}
fn begin_k(slice: u32, quad: u32) -> K {
//! if ALL_HEADS
  head = slice;
//! end
  return K(quad);
}
fn next_k(k: K) -> K { return K(k.quad + 4u); }
fn stages(slice: u32) -> u32 { return (params.pitch + 3u) / 4u; }
fn a4(row: Row, k: K) -> vec4<f32> {
  let ok = row.ok & (k.quad < params.pitch);
  return select(vec4<f32>(), scores[select(0u, row.at + k.quad, ok)], ok);
}
fn one(at: u32, ok: bool) -> f32 {
  let origin = select(0u, at, ok);
//! if HALVES
  let pair = from_f16x2(value[origin / 2u]);
  return select(0.0, select(pair.x, pair.y, origin % 2u == 1u), ok);
//! else
  return select(0.0, value[origin], ok);
//! end
}
fn b4(column: Column, quad: u32) -> vec4<f32> {
  let key = quad * 4u;
  let at = column.at + key * params.channels;
  return vec4<f32>(
    one(at, column.ok & (key < params.keys)),
    one(at + params.channels, column.ok & (key + 1u < params.keys)),
    one(at + 2u * params.channels, column.ok & (key + 2u < params.keys)),
    one(at + 3u * params.channels, column.ok & (key + 3u < params.keys)),
  );
}
//! if UNIT1
fn part(x: vec4<f32>, at: u32) -> f32 { return x[at]; }
//! end
//! if UNIT2
fn part(x: vec4<f32>, at: u32) -> vec2<f32> { return select(x.zw, x.xy, at == 0u); }
//! end
//! if UNIT4
fn part(x: vec4<f32>, at: u32) -> vec4<f32> { return x; }
//! end
fn finish(row: u32, quad: u32, sum: vec4<f32>, slice: u32) {
//! if ALL_HEADS
  let first = first_of(slice, params.m);
//! else
  let first = params.output_at;
//! end
//! each i PIECES
  {
    let column = quad * 4u + ${i}u * ${UNIT}u;
    if (row < params.m && column < params.n) {
      output[(first + row * params.channels + column) / ${UNIT}u] = to_${OUT_NAME}(part(sum, ${i}u));
    }
  }
//! end
}
