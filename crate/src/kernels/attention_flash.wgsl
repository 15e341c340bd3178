// Attention with online softmax: no score matrix. A workgroup has 32 queries of one head and passes over the keys, 32 at a time.
//
// Scores are a product of tiles as in tile.wgsl, 4 queries x 4 keys a thread; they go through workgroup memory once, as weights, and
// the values' product follows, 4 queries x $PAIRS pairs of channels a thread. What belongs to a thread's four queries is a vec4 over them.
// exp2 with log2(e) in the scale. Rows past the last query go along, for the barriers, and are not stored.
struct Params {
  queries: u32,
  keys: u32,
  row_quads: u32,  // of all heads
  scale: f32,      // log2(e) / sqrt(head_dim)
}
//! if QUERY
@group(0) @binding($B_QUERY) var<storage, read_write> query: array<$IN>;     // [batch, queries, row_quads]
//! end
@group(0) @binding($B_KEY) var<storage, read_write> key: array<$IN>;        // [batch, keys, row_quads]
@group(0) @binding($B_VALUE) var<storage, read_write> value: array<$IN>;     // [batch, keys, row_quads]
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$OUT>;  // [batch, queries, 2 row_quads]; in place the queries too
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

const QUADS = ${QUADS}u;            // of head_dim
const STRIDE = 5u;                  // vec4 of a row of queries or keys: 16 channels and padding, see tile.wgsl
const WEIGHT_STRIDE = 9u;           // vec4 of a row of weights: 32 keys and padding
const VALUE_STRIDE = ${VALUE_STRIDE}u;  // vec4 of a channel: 16 keys, and padding where there is room
const KEYS_AT = 160u;               // in tiles: 32 queries, then 32 keys
// queries and keys of one stage, then 16 values, turned: even channels [2 QUADS][VALUE_STRIDE], then the odd ones
var<workgroup> tiles: array<vec4<f32>, $TILES>;
var<workgroup> weights: array<vec4<f32>, 288>;  // [32][WEIGHT_STRIDE]
var<workgroup> shares: array<vec4<f32>, 64>;    // of a row's maximum or sum, [8 fours of queries][8 threads]

fn query4(at: u32) -> vec4<f32> {
//! if QUERY
  return from_${IN_NAME}(query[at]);
//! else
  return vec4<f32>(from_${OUT_NAME}(output[2u * at]), from_${OUT_NAME}(output[2u * at + 1u]));
//! end
}

@compute @workgroup_size(8, 8)
fn attention_flash(
  @builtin(workgroup_id) group: vec3<u32>,  // queries, head, picture
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let head = group.y * QUADS;
  let first_row = group.x * 32u;
  let rows = vec4<u32>(first_row + local.y * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  let query_at = group.z * params.queries * params.row_quads + head;
  let key_at = group.z * params.keys * params.row_quads + head;
//! if CAUSAL
  let visible = min(rows + vec4<u32>(1u), vec4<u32>(params.keys));
  let end = min(params.keys, first_row + 32u);
//! else
  let visible = vec4<u32>(params.keys);
  let end = params.keys;
//! end
  // each thread copies two rows of queries and two of keys; key 4 q + j lies at j * 8 + q
  let lane = index / 4u;
  let quad = index % 4u;
  let query_row0 = query_at + min(first_row + lane, params.queries - 1u) * params.row_quads;
  let query_row1 = query_at + min(first_row + lane + 16u, params.queries - 1u) * params.row_quads;
  let to_query = lane * STRIDE + quad;
  let to_key = KEYS_AT + (lane % 4u * 8u + lane / 4u) * STRIDE + quad;
  let from_query = local.y * 4u * STRIDE;
  let from_key = KEYS_AT + local.x * STRIDE;

  var most = vec4<f32>(-1e30);
  var sum = vec4<f32>();
//! each c PAIRS
  var even$c = vec4<f32>();
  var odd$c = vec4<f32>();
//! end
  for (var first = 0u; first < end; first += 32u) {
//! each j 4
    var s$j = vec4<f32>();
//! end
    let key_row0 = key_at + min(first + lane, params.keys - 1u) * params.row_quads;
    let key_row1 = key_at + min(first + lane + 16u, params.keys - 1u) * params.row_quads;
    for (var stage = 0u; stage < QUADS; stage += 4u) {
      // a quad past the head's last is not used
      let at = min(stage + quad, QUADS - 1u);
      tiles[to_query] = query4(query_row0 + at);
      tiles[to_query + 16u * STRIDE] = query4(query_row1 + at);
      tiles[to_key] = from_${IN_NAME}(key[key_row0 + at]);
      tiles[to_key + 4u * STRIDE] = from_${IN_NAME}(key[key_row1 + at]);
      workgroupBarrier();
      let quads = min(4u, QUADS - stage);
      for (var q = 0u; q < quads; q++) {
//! each i 4
        let a$i = tiles[from_query + ${i}u * STRIDE + q];
//! end
//! each j 4
        let b$j = tiles[from_key + ${j}u * 8u * STRIDE + q];
        s$j += vec4<f32>(dot(a0, b$j), dot(a1, b$j), dot(a2, b$j), dot(a3, b$j));
//! end
      }
      workgroupBarrier();
    }

    let key0 = first + local.x * 4u;
//! each j 4
    s$j = select(vec4<f32>(-1e30), s$j * params.scale, vec4<u32>(key0 + ${j}u) < visible);
//! end
    shares[index] = max(max(s0, s1), max(s2, s3));
    stage_values(key_at, first, index);
    workgroupBarrier();
    var highest = most;
//! each t 8
    highest = max(highest, shares[local.y * 8u + ${t}u]);
//! end
    let shrink = exp2(max(most - highest, vec4<f32>(-126.0)));
    most = highest;
//! each j 4
    s$j = exp2(max(s$j - highest, vec4<f32>(-126.0)));
//! end
    sum = sum * shrink + ((s0 + s1) + (s2 + s3));
//! each c PAIRS
    even$c *= shrink;
    odd$c *= shrink;
//! end
//! each i 4
    weights[(local.y * 4u + ${i}u) * WEIGHT_STRIDE + local.x] = vec4<f32>(s0[$i], s1[$i], s2[$i], s3[$i]);
//! end
    workgroupBarrier();
    for (var half = 0u; half < 2u; half++) {
      if (half == 1u) {
        stage_values(key_at, first + 16u, index);
        workgroupBarrier();
      }
      for (var q = 0u; q < 4u; q++) {
//! each i 4
        let w$i = weights[(local.y * 4u + ${i}u) * WEIGHT_STRIDE + half * 4u + q];
//! end
//! each c PAIRS
        let even_value$c = tiles[min(${c}u * 8u + local.x, 2u * QUADS - 1u) * VALUE_STRIDE + q];
        let odd_value$c = tiles[(2u * QUADS + min(${c}u * 8u + local.x, 2u * QUADS - 1u)) * VALUE_STRIDE + q];
        even$c += vec4<f32>(dot(w0, even_value$c), dot(w1, even_value$c), dot(w2, even_value$c), dot(w3, even_value$c));
        odd$c += vec4<f32>(dot(w0, odd_value$c), dot(w1, odd_value$c), dot(w2, odd_value$c), dot(w3, odd_value$c));
//! end
      }
      workgroupBarrier();
    }
  }

  shares[index] = sum;
  workgroupBarrier();
  sum = vec4<f32>();
//! each t 8
  sum += shares[local.y * 8u + ${t}u];
//! end
  let factor = vec4<f32>(1.0) / max(sum, vec4<f32>(1e-30));
//! each c PAIRS
  {
    let pair = ${c}u * 8u + local.x;
//! each i 4
    if (rows[$i] < params.queries && pair < 2u * QUADS) {
      output[2u * (query_at + rows[$i] * params.row_quads) + pair] = to_${OUT_NAME}(vec2<f32>(even$c[$i], odd$c[$i]) * factor[$i]);
    }
//! end
  }
//! end
}

// Sixteen keys' values to workgroup memory, four keys in one vec4 for each channel; zeros past the last key.
fn stage_values(key_at: u32, first: u32, index: u32) {
  for (var block = index; block < 4u * QUADS; block += 64u) {
    let key_quad = block / QUADS;
    let quad = block % QUADS;
    let number = first + key_quad * 4u;
//! each i 4
    let x$i = select(
      vec4<f32>(),
      from_${IN_NAME}(value[key_at + min(number + ${i}u, params.keys - 1u) * params.row_quads + quad]),
      number + ${i}u < params.keys,
    );
//! end
    let to_even = quad * 2u * VALUE_STRIDE + key_quad;
    let to_odd = to_even + 2u * QUADS * VALUE_STRIDE;
    tiles[to_even] = vec4<f32>(x0.x, x1.x, x2.x, x3.x);
    tiles[to_odd] = vec4<f32>(x0.y, x1.y, x2.y, x3.y);
    tiles[to_even + VALUE_STRIDE] = vec4<f32>(x0.z, x1.z, x2.z, x3.z);
    tiles[to_odd + VALUE_STRIDE] = vec4<f32>(x0.w, x1.w, x2.w, x3.w);
  }
}
