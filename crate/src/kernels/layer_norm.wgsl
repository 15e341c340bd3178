// Layer norm: one workgroup a row, the mean first, then the variance about it.
struct Params {
  rows: u32,
  units: u32,  // channels / $UNIT
  eps: f32,
}
//! if INPUT
@group(0) @binding($B_INPUT) var<storage, read_write> input: array<$IN>;     // [rows, units]
//! end
@group(0) @binding($B_SCALE) var<storage, read> scale: array<$V>;            // [channels]
@group(0) @binding($B_SHIFT) var<storage, read> shift: array<$V>;            // [channels]
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$OUT>;  // [rows, units]; in place the input too
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

@compute @workgroup_size($THREADS)
fn layer_norm(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let row = group.y * groups.x + group.x;
  // a workgroup past the last row goes along with it, for the barriers, and stores nothing
  let first = min(row, params.rows - 1u) * params.units;
  let count = f32(params.units * ${UNIT}u);
  var sum = $V();
  for (var c = index; c < params.units; c += ${THREADS}u) { sum += from_${IN_NAME}($FIRST[first + c]); }
  let mean = sum_of_all(total(sum), index) / count;
  var squares = $V();
  for (var c = index; c < params.units; c += ${THREADS}u) {
    let distance = from_${IN_NAME}($FIRST[first + c]) - mean;
    squares += distance * distance;
  }
  let factor = 1.0 / sqrt(sum_of_all(total(squares), index) / count + params.eps);
  if (row < params.rows) {
    for (var c = index; c < params.units; c += ${THREADS}u) {
      output[first + c] = to_${OUT_NAME}((from_${IN_NAME}($FIRST[first + c]) - mean) * factor * scale[c] + shift[c]);
    }
  }
}
