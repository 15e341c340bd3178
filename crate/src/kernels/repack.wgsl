// Rows of a checkpoint's tensor to the layout of the kernels: float16 rows, padded, a convolution's channels fastest; or a float32 vector.
struct Params {
  first_row: u32,    // of the destination that is written
  rows: u32,         // that are written
  k: u32,            // values of a row
  padded: u32,       // values of a row of the destination
  channels: u32,     // of a convolution's input; else k
  places: u32,       // of its kernel; else 1
}
@group(0) @binding($B_INPUT) var<storage, read> source: array<u32>;               // [rows, k], of a convolution [rows, channels, places]
//! if VECTOR
@group(0) @binding($B_OUTPUT) var<storage, read_write> destination: array<f32>;  // [all rows]
//! else
@group(0) @binding($B_OUTPUT) var<storage, read_write> destination: array<u32>;  // [all rows, padded / 2] two float16
//! end
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

fn element(at: u32) -> f32 {
//! if SOURCE_F32
  return bitcast<f32>(source[at]);
//! else
  let word = source[at / 2u];
//! if SOURCE_F16
  let pair = unpack2x16float(word);
  return select(pair.x, pair.y, at % 2u == 1u);
//! else
  return bitcast<f32>(select(word << 16u, word & 0xffff0000u, at % 2u == 1u));
//! end
//! end
}
fn value(row: u32, at: u32) -> f32 {
  let inside = at < params.k;
  let origin = row * params.k + at % params.channels * params.places + at / params.channels;
  return select(0.0, element(select(0u, origin, inside)), inside);
}

@compute @workgroup_size(64)
fn repack(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let thread = (group.y * groups.x + group.x) * 64u + index;
//! if VECTOR
  if (thread < params.rows) { destination[params.first_row + thread] = element(thread); }
//! else
  let words = params.padded / 2u;
  let row = thread / words;
  let at = thread % words * 2u;
  if (row < params.rows) {
    // past float16's range pack2x16float may give anything
    let pair = vec2<f32>(value(row, at), value(row, at + 1u));
    let halves = pack2x16float(clamp(pair, vec2<f32>(-65504.0), vec2<f32>(65504.0)));
    // what is not finite stays so: a clamped one would be a weight like others, and the picture wrong without a word
    let no_number = (bitcast<vec2<u32>>(pair) & vec2<u32>(0x7f800000u)) == vec2<u32>(0x7f800000u);
    let nans = select(vec2<u32>(), vec2<u32>(0x7e00u, 0x7e000000u), no_number);
    destination[(params.first_row + row) * words + at / 2u] = halves | nans.x | nans.y;
  }
//! end
}
