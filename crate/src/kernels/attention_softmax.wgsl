// Softmax of each row of scores, in place; one workgroup a row. Keys past the last, or not to be seen, get 0.
struct Params {
  rows: u32,         // queries of this slice, or of all heads
  keys: u32,
  pitch: u32,        // vec4 of a row
  first_query: u32,  // of this slice, in its picture
  queries: u32,      // of a picture
}
@group(0) @binding($B_SCRATCH) var<storage, read_write> scores: array<vec4<f32>>;  // [rows, pitch]
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

@compute @workgroup_size($THREADS)
fn attention_softmax(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let row = group.y * groups.x + group.x;
  let inside = row < params.rows;
  // a workgroup past the last row goes along, for the barriers, and touches nothing
  let pitch = select(0u, params.pitch, inside);
  let first = select(0u, row * params.pitch, inside);
//! if CAUSAL
  let visible = vec4<u32>(min(params.keys, (params.first_query + row) % params.queries + 1u));
//! else
  let visible = vec4<u32>(params.keys);
//! end
  var most = vec4<f32>(-1e30);
  for (var c = index; c < pitch; c += ${THREADS}u) {
    let seen = vec4<u32>(c * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < visible;
    most = max(most, select(vec4<f32>(-1e30), scores[first + c], seen));
  }
  let highest = max_of_all(max(max(most.x, most.y), max(most.z, most.w)), index);
  var sum = vec4<f32>();
  for (var c = index; c < pitch; c += ${THREADS}u) {
    let seen = vec4<u32>(c * 4u) + vec4<u32>(0u, 1u, 2u, 3u) < visible;
    let e = select(vec4<f32>(), exp(max(scores[first + c] - highest, vec4<f32>(-80.0))), seen);
    scores[first + c] = e;
    sum += e;
  }
  let factor = 1.0 / max(sum_of_all((sum.x + sum.y) + (sum.z + sum.w), index), 1e-30);
  for (var c = index; c < pitch; c += ${THREADS}u) { scores[first + c] *= factor; }
}
