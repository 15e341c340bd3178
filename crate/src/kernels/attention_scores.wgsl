// scores[query][key] = query . key * scale, of one head of one picture and some of its queries, or of all heads of all pictures (z), one
// after another. Sums in float32, scale after them.
struct Params {
  m: u32,          // queries of this slice
  n: u32,          // keys
  units: u32,      // head_dim / $IN_UNIT
  row_units: u32,  // channels of all heads / $IN_UNIT
  query_at: u32,   // first query of this slice and head, in units
  key_at: u32,     // first key of this head, in units
  pitch: u32,      // vec4 of a row of scores
  scale: f32,
}
@group(0) @binding($B_QUERY) var<storage, read_write> $QUERY: array<$IN>;          // [batch, queries, row_units]; in place the output
@group(0) @binding($B_KEY) var<storage, read_write> key: array<$IN>;              // [batch, keys, row_units]
@group(0) @binding($B_SCRATCH) var<storage, read_write> scores: array<vec4<f32>>;  // [m, pitch]
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

struct Row { ok: bool, at: u32 }
struct Column { ok: bool, at: u32 }
struct K { quad: u32 }

//! if ALL_HEADS
fn first_of(z: u32, tokens: u32) -> u32 { return z / ${NUM_HEADS}u * tokens * params.row_units + z % ${NUM_HEADS}u * params.units; }
var<private> head: u32;
//! end
fn begin_row(row: u32) -> Row {
//! if ALL_HEADS
  let first = first_of(head, params.m);
//! else
  let first = params.query_at;
//! end
  return Row(row < params.m, first + row * params.row_units);
}
fn begin_column(column: u32) -> Column {
//! if ALL_HEADS
  let first = first_of(head, params.n);
//! else
  let first = params.key_at;
//! end
  return Column(column < params.n, first + column * params.row_units);
}
fn begin_k(slice: u32, quad: u32) -> K {
//! if ALL_HEADS
  head = slice;
//! end
  return K(quad);
}
fn next_k(k: K) -> K { return K(k.quad + 4u); }
fn stages(slice: u32) -> u32 { return (params.units * ${IN_UNIT}u + 15u) / 16u; }
fn a4(row: Row, k: K) -> vec4<f32> {
//! each i IN_PIECES
  let c$i = k.quad * ${IN_PIECES}u + ${i}u;
  let ok$i = row.ok & (c$i < params.units);
  let v$i = select($IN_V(), from_${IN_NAME}(${QUERY}[select(0u, row.at + c$i, ok$i)]), ok$i);
//! end
  return vec4<f32>($IN_JOIN);
}
fn b4(column: Column, quad: u32) -> vec4<f32> {
//! each i IN_PIECES
  let c$i = quad * ${IN_PIECES}u + ${i}u;
  let ok$i = column.ok & (c$i < params.units);
  let v$i = select($IN_V(), from_${IN_NAME}(key[select(0u, column.at + c$i, ok$i)]), ok$i);
//! end
  return vec4<f32>($IN_JOIN);
}
fn finish(row: u32, quad: u32, sum: vec4<f32>, slice: u32) {
  if (row < params.m && quad < params.pitch) { scores[(slice * params.m + row) * params.pitch + quad] = sum * params.scale; }
}
