// What works value by value; a thread makes $UNIT neighbouring channels.
struct Params {
  count: u32,         // batch * positions * units
  units: u32,         // channels / $UNIT of the output
  positions: u32,     // height * width of the output
  width: u32,         // of the output
  input_height: u32,  // of the input that is enlarged
  input_width: u32,
  first: u32,         // channels of input / $UNIT, of a concatenation
}
//! if INPUT
@group(0) @binding($B_INPUT) var<storage, read_write> input: array<$IN>;                // [batch, positions, units]; GEGLU twice the units
//! end
//! if SECOND_INPUT
@group(0) @binding($B_SECOND_INPUT) var<storage, read_write> second_input: array<$IN>;  // [batch, positions, units or units - first]
//! end
//! if CHANNEL_ADD
@group(0) @binding($B_CHANNEL_ADD) var<storage, read_write> channel_add: array<$V>;     // [rows, units]
//! end
//! if CHANNEL_ADD_STEP
@group(0) @binding($B_STEP) var<uniform> step: vec4<u32>;                               // x: row of channel_add
//! end
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$OUT>;             // [batch, positions, units]; in place the input too
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

@compute @workgroup_size(64)
fn elementwise(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let thread = (group.y * groups.x + group.x) * 64u + index;
  if (thread < params.count) {
//! if ADD
    let x = from_${IN_NAME}($FIRST[thread]) + from_${IN_NAME}(second_input[thread]);
//! end
//! if ADD_CHANNELS
    let unit = thread % params.units;
//! if CHANNEL_ADD_STEP
    let row = step.x;
//! end
//! if CHANNEL_ADD_PICTURE
    let row = thread / params.units / params.positions;
//! end
//! if CHANNEL_ADD_ONE
    let row = 0u;
//! end
    let x = from_${IN_NAME}($FIRST[thread]) + channel_add[row * params.units + unit];
//! end
//! if FUNCTION
    let x = $FUNCTION(from_${IN_NAME}($FIRST[thread]));
//! end
//! if GEGLU
    let at = thread / params.units * params.units + thread;
    let x = from_${IN_NAME}(input[at]) * gelu(from_${IN_NAME}(input[at + params.units]));
//! end
//! if CONCAT_CHANNELS
    let row = thread / params.units;
    let unit = thread % params.units;
    let is_second = unit >= params.first;
    let a = from_${IN_NAME}(input[select(row * params.first + unit, 0u, is_second)]);
    let b = from_${IN_NAME}(second_input[select(0u, row * (params.units - params.first) + unit - params.first, is_second)]);
    let x = select(a, b, is_second);
//! end
//! if UPSAMPLE_NEAREST2D
    let row = thread / params.units;
    let place = row % params.positions;
    let y = place / params.width / 2u;
    let origin = (row / params.positions * params.input_height + y) * params.input_width + place % params.width / 2u;
    let x = from_${IN_NAME}(input[origin * params.units + thread % params.units]);
//! end
    output[thread] = to_${OUT_NAME}(x);
  }
}
