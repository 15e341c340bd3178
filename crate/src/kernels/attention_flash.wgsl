// Attention with online softmax: no score matrix. $TEAM threads a query, each with $PART quads of head_dim, 64 threads a workgroup.
//
// Keys and values pass through workgroup memory $KEYS at a time, and are taken eight at a time: eight scores, then the running
// maximum and sum, then the values. exp2 with log2(e) in the scale. The quads of a query are named variables, made by `each`.
struct Params {
  queries: u32,
  keys: u32,
  num_heads: u32,
  row_quads: u32,    // of all heads
  query_rows: u32,   // workgroups along the queries
  scale: f32,        // log2(e) / sqrt(head_dim)
}
//! if QUERY
@group(0) @binding($B_QUERY) var<storage, read_write> query: array<$IN>;    // [batch, queries, row_quads]
//! end
@group(0) @binding($B_KEY) var<storage, read_write> key: array<$IN>;       // [batch, keys, row_quads]
@group(0) @binding($B_VALUE) var<storage, read_write> value: array<$IN>;    // [batch, keys, row_quads]
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$IN>;  // [batch, queries, row_quads]; in place the queries too
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

const QUADS = ${QUADS}u;     // of head_dim
const PART = ${PART}u;       // of a thread
const TEAM = ${TEAM}u;       // threads of a query
const STRIDE = ${STRIDE}u;   // TEAM * PART: quads of a key in workgroup memory, zeros past QUADS
const KEYS = ${KEYS}u;       // keys in workgroup memory
const QUERIES = 64u / TEAM;  // of a workgroup
var<workgroup> keys: array<vec4<f32>, $TILE>;    // [KEYS][STRIDE]
var<workgroup> values: array<vec4<f32>, $TILE>;  // [KEYS][STRIDE]
//! if TEAMWORK
var<workgroup> parts: array<vec4<f32>, 256>;     // [2][2][64]: of eight scores, twice, so that one barrier is enough
//! end

@compute @workgroup_size(64)
fn attention_flash(
  @builtin(workgroup_id) group: vec3<u32>,  // queries, head, picture
  @builtin(local_invocation_index) index: u32,
) {
  let member = index % TEAM;
  let row = group.x * QUERIES + index / TEAM;
  let head = group.y * QUADS;
  // a thread past the last query goes along with the last, for the barriers, and stores nothing
  let query_at = (group.z * params.queries + min(row, params.queries - 1u)) * params.row_quads + head;
  let key_at = group.z * params.keys * params.row_quads + head;
//! each i PART
  let quad$i = member * PART + ${i}u;
  let ok$i = quad$i < QUADS;
  let q$i = select(vec4<f32>(), from_${IN_NAME}(${FIRST}[query_at + min(quad$i, QUADS - 1u)]) * params.scale, ok$i);
  var o$i = vec4<f32>();
//! end
//! if CAUSAL
  let visible = row + 1u;
  let end = min(params.keys, group.x * QUERIES + QUERIES);
//! else
  let visible = params.keys;
  let end = params.keys;
//! end
  var most = -1e30;
  var sum = 0.0;
  for (var first = 0u; first < end; first += KEYS) {
    for (var at = index; at < KEYS * STRIDE; at += 64u) {
      let place = first + at / STRIDE;
      let quad = at % STRIDE;
      let ok = (place < params.keys) & (quad < QUADS);
      let origin = select(key_at, key_at + place * params.row_quads + quad, ok);
      keys[at] = select(vec4<f32>(), from_${IN_NAME}(key[origin]), ok);
      values[at] = select(vec4<f32>(), from_${IN_NAME}(value[origin]), ok);
    }
    workgroupBarrier();
    for (var at = 0u; at < KEYS; at += 8u) {
      let base = at * STRIDE + member * PART;
//! each j 8
      var s$j = 0.0;
//! end
//! each i PART
//! each j 8
      s$j += dot(q$i, keys[base + ${j}u * STRIDE + ${i}u]);
//! end
//! end
      var low = vec4<f32>(s0, s1, s2, s3);
      var high = vec4<f32>(s4, s5, s6, s7);
//! if TEAMWORK
      let place = (at / 8u) % 2u * 128u;
      parts[place + index] = low;
      parts[place + 64u + index] = high;
      workgroupBarrier();
      low = vec4<f32>();
      high = vec4<f32>();
//! each t TEAM
      low += parts[place + index - member + ${t}u];
      high += parts[place + 64u + index - member + ${t}u];
//! end
//! end
      let number = vec4<u32>(first + at) + vec4<u32>(0u, 1u, 2u, 3u);
      let last = vec4<u32>(min(visible, params.keys));
      low = select(vec4<f32>(-1e30), low, number < last);
      high = select(vec4<f32>(-1e30), high, number + vec4<u32>(4u) < last);
      let both = max(low, high);
      let highest = max(most, max(max(both.x, both.y), max(both.z, both.w)));
      let shrink = exp2(max(most - highest, -126.0));
      low = exp2(max(low - highest, vec4<f32>(-126.0)));
      high = exp2(max(high - highest, vec4<f32>(-126.0)));
      most = highest;
      let both_sum = low + high;
      sum = sum * shrink + ((both_sum.x + both_sum.y) + (both_sum.z + both_sum.w));
//! each i PART
      o$i = o$i * shrink
        + low.x * values[base + ${i}u] + low.y * values[base + STRIDE + ${i}u]
        + low.z * values[base + 2u * STRIDE + ${i}u] + low.w * values[base + 3u * STRIDE + ${i}u]
        + high.x * values[base + 4u * STRIDE + ${i}u] + high.y * values[base + 5u * STRIDE + ${i}u]
        + high.z * values[base + 6u * STRIDE + ${i}u] + high.w * values[base + 7u * STRIDE + ${i}u];
//! end
    }
    workgroupBarrier();
  }
  let factor = 1.0 / max(sum, 1e-30);
  if (row < params.queries) {
//! each i PART
    if (ok$i) { output[query_at + quad$i] = to_${IN_NAME}(o$i * factor); }
//! end
  }
}
