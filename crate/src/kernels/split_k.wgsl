// What follows a product whose sum over k was cut: each slice writes its part, then split_k adds them in ascending order.

//! if PARTIAL
@group(0) @binding($B_SCRATCH) var<storage, read_write> partial: array<f32>;  // [slices, m, n or 2 n]

fn finish(row: u32, quad: u32, sum: vec4<f32>, slice: u32) {
//! if GEGLU
  let width = 2u * params.n;
//! else
  let width = params.n;
//! end
//! each i 4
  {
//! if GEGLU
    let value = quad * 2u + ${i}u % 2u;
    let column = value + select(0u, params.n, ${i}u >= 2u);
//! else
    let value = quad * 4u + ${i}u;
    let column = value;
//! end
    if (row < params.m && value < params.n) { partial[(slice * params.m + row) * width + column] = sum[$i]; }
  }
//! end
}
//! end
//! if WHOLE
fn finish(row: u32, quad: u32, sum: vec4<f32>, slice: u32) { epilogue(row, quad, sum); }
//! end
//! if REDUCE
struct Params { m: u32, n: u32, k1: u32, k2: u32, weight_stride: u32, stages: u32, positions: u32, slices: u32 }
@group(0) @binding($B_SCRATCH) var<storage, read_write> partial: array<f32>;  // [slices, m, n or 2 n]
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

@compute @workgroup_size(64)
fn split_k(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let quads = (params.n + ${QUAD}u - 1u) / ${QUAD}u;
  let thread = (group.y * groups.x + group.x) * 64u + index;
  let row = thread / quads;
  let quad = thread % quads;
//! if GEGLU
  let width = 2u * params.n;
//! else
  let width = params.n;
//! end
  var sum = vec4<f32>();
  if (row < params.m) {
    for (var slice = 0u; slice < params.slices; slice++) {
      let at = (slice * params.m + row) * width;
//! each i 4
//! if GEGLU
      let value$i = min(quad * 2u + ${i}u % 2u, params.n - 1u);
      sum[$i] += partial[at + value$i + select(0u, params.n, ${i}u >= 2u)];
//! else
      sum[$i] += partial[at + min(quad * 4u + ${i}u, params.n - 1u)];
//! end
//! end
    }
    epilogue(row, quad, sum);
  }
}
//! end
