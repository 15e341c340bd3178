// 3x3 convolution without a tile, for few channels (conv_in, conv_out) and odd ones: a thread makes four channels of one place.
struct Params {
  m: u32,              // output places of all pictures
  n: u32,              // channels_out
  units: u32,          // channels_in / $IN_UNIT
  first_row: u32,      // of the output that is made
  weight_stride: u32,  // of a row of weight, in values
  stages: u32,
  positions: u32,      // output places of a picture that are made
  slices: u32,
  height: u32,         // of the input that the kernel sees
  width: u32,
  stored_height: u32,  // of a picture of the input in memory; with UPSAMPLE about half
  stored_width: u32,
  out_width: u32,
  stride: u32,
  padding: u32,        // above and left
  stored_first: u32,   // first row of the input in memory
}
@group(0) @binding($B_INPUT) var<storage, read_write> input: array<$IN>;  // [batch, stored_height, stored_width, units]
//! if IN_UNIT4
@group(0) @binding($B_WEIGHT) var<storage, read> weight: array<vec2<u32>>;  // [n, weight_stride / 4] four float16
//! else
@group(0) @binding($B_WEIGHT) var<storage, read> weight: array<u32>;      // [n, weight_stride / 2] two float16
//! end
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

//! if IN_UNIT4
fn weight_at(at: u32) -> vec4<f32> { return from_f16x4(weight[at / 4u]); }
fn product(a: vec4<f32>, b: vec4<f32>) -> f32 { return dot(a, b); }
//! end
//! if IN_UNIT2
fn weight_at(at: u32) -> vec2<f32> { return from_f16x2(weight[at / 2u]); }
fn product(a: vec2<f32>, b: vec2<f32>) -> f32 { return dot(a, b); }
//! end
//! if IN_UNIT1
fn weight_at(at: u32) -> f32 {
  let pair = from_f16x2(weight[at / 2u]);
  return select(pair.x, pair.y, at % 2u == 1u);
}
fn product(a: f32, b: f32) -> f32 { return a * b; }
//! end

@compute @workgroup_size(64)
fn conv2d_direct(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let quads = (params.n + 3u) / 4u;
  let thread = (group.y * groups.x + group.x) * 64u + index;
  let row = thread / quads;
  let quad = thread % quads;
  if (row < params.m) {
    let place = row % params.positions;
    let first_y = i32((params.first_row + place / params.out_width) * params.stride) - i32(params.padding);
    let first_x = i32(place % params.out_width * params.stride) - i32(params.padding);
    let picture = row / params.positions * params.stored_height * params.stored_width;
    // a channel past the last reads the last; its sum is not stored
//! each j 4
    let weight$j = min(quad * 4u + ${j}u, params.n - 1u) * params.weight_stride;
//! end
    var sum = vec4<f32>();
    for (var tap = 0u; tap < 9u; tap++) {
      let y = first_y + i32(tap / 3u);
      let x = first_x + i32(tap % 3u);
      if (y >= 0 && x >= 0 && y < i32(params.height) && x < i32(params.width)) {
//! if UPSAMPLE
        let origin = (picture + (u32(y / 2) - params.stored_first) * params.stored_width + u32(x / 2)) * params.units;
//! else
        let origin = (picture + (u32(y) - params.stored_first) * params.stored_width + u32(x)) * params.units;
//! end
        let first_k = tap * params.units * ${IN_UNIT}u;
        for (var c = 0u; c < params.units; c++) {
          let a = from_${IN_NAME}(input[origin + c]);
          let k = first_k + c * ${IN_UNIT}u;
          sum += vec4<f32>(
            product(a, weight_at(weight0 + k)),
            product(a, weight_at(weight1 + k)),
            product(a, weight_at(weight2 + k)),
            product(a, weight_at(weight3 + k)),
          );
        }
      }
    }
    epilogue(row, quad, sum);
  }
}
