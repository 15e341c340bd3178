// Group norm in three launches: statistics of slices, their combination, the norm itself. As one kernel all share the scratch; in parts
// the first two write what the next reads, and some positions may be there at a time.
//
// The variance is taken about the slice's own mean, and slices are merged by the distance of their means: sums of squares
// minus the square of the mean lose every digit where the mean is large.
struct Params {
  positions: u32,       // of a picture
  units: u32,           // channels / unit, of both sources
  first_units: u32,     // channels of input / unit
  group_units: u32,     // channels of a group / unit; statistics only
  groups: u32,          // in parts: rounded up, so that slices are aligned
  slices: u32,
  slice_positions: u32, // positions of a slice, the last may have fewer
  step_positions: u32,  // $THREADS = step_positions * group_units + step_units
  step_units: u32,
  count: u32,           // batch * positions * units
  group_channels: u32,  // channels of a group
  eps: f32,
}
//! if INPUT
@group(0) @binding($B_INPUT) var<storage, read_write> input: array<$IN>;                // [batch, positions, first_units]
//! end
//! if SECOND_INPUT
@group(0) @binding($B_SECOND_INPUT) var<storage, read_write> second_input: array<$IN>;  // [batch, positions, units - first_units]
//! end
@group(0) @binding($B_SCRATCH) var<storage, read_write> scratch: array<vec2<f32>>;      // [batch, slices, groups] mean, squares; [batch, groups] mean, 1/deviation
//! if FINISHED
@group(0) @binding($B_FINISHED) var<storage, read_write> finished: array<vec2<f32>>;    // [groups] mean, 1/deviation
//! end
//! if OUTPUT
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$OUT>;             // [batch, positions, units]; in place the input too
//! end
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

//! if READS
fn value(row: u32, unit: u32) -> $IN_V {
//! if SECOND_INPUT
  let second = unit >= params.first_units;
  let x = read_first(select(row * params.first_units + unit, 0u, second));
  let y = read_second(select(0u, row * (params.units - params.first_units) + unit - params.first_units, second));
  return select(x, y, second);
//! else
  return read_first(row * params.units + unit);
//! end
}
//! if HALVES
// a group of an odd number of float16 channels: single values, two to a word
fn half_of(word: u32, at: u32) -> f32 {
  let pair = unpack2x16float(word);
  return select(pair.x, pair.y, at % 2u == 1u);
}
fn read_first(at: u32) -> f32 { return half_of($FIRST[at / 2u], at); }
//! if SECOND_INPUT
fn read_second(at: u32) -> f32 { return half_of(second_input[at / 2u], at); }
//! end
//! else
fn read_first(at: u32) -> $IN_V { return from_${IN_NAME}($FIRST[at]); }
//! if SECOND_INPUT
fn read_second(at: u32) -> $IN_V { return from_${IN_NAME}(second_input[at]); }
//! end
//! end
//! end

//! if STATISTICS
@compute @workgroup_size($THREADS)
fn group_norm_statistics(
  @builtin(workgroup_id) group: vec3<u32>,  // slice, group, picture
  @builtin(local_invocation_index) index: u32,
) {
  let first = group.x * params.slice_positions;
  let last = min(first + params.slice_positions, params.positions);
  let first_unit = group.y * params.group_units;
  let row = group.z * params.positions;
  let start_position = first + index / params.group_units;
  let start_unit = index % params.group_units;

  var sum = $IN_V();
  var position = start_position;
  var unit = start_unit;
  for (; position < last; ) {
    sum += value(row + position, first_unit + unit);
    unit += params.step_units;
    let wraps = unit >= params.group_units;
    unit -= select(0u, params.group_units, wraps);
    position += params.step_positions + select(0u, 1u, wraps);
  }
  let count = f32(max(last, first + 1u) - first) * f32(params.group_channels);
  let mean = sum_of_all(total(sum), index) / count;

  var squares = $IN_V();
  position = start_position;
  unit = start_unit;
  for (; position < last; ) {
    let distance = value(row + position, first_unit + unit) - mean;
    squares += distance * distance;
    unit += params.step_units;
    let wraps = unit >= params.group_units;
    unit -= select(0u, params.group_units, wraps);
    position += params.step_positions + select(0u, 1u, wraps);
  }
  let all = sum_of_all(total(squares), index);
  if (index == 0u) {
    scratch[(group.z * params.slices + group.x) * params.groups + group.y] = vec2<f32>(mean, all);
  }
}
//! end

//! if COMBINE
@compute @workgroup_size($THREADS)
fn group_norm_combine(
  @builtin(workgroup_id) group: vec3<u32>,  // group, picture
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let first = group.y * params.slices * params.groups + group.x;
  let count = f32(params.positions) * f32(params.group_channels);
  var sum = 0.0;
  for (var slice = index; slice < params.slices; slice += ${THREADS}u) {
    sum += scratch[first + slice * params.groups].x * slice_count(slice);
  }
  let mean = sum_of_all(sum, index) / count;
  var squares = 0.0;
  for (var slice = index; slice < params.slices; slice += ${THREADS}u) {
    let part = scratch[first + slice * params.groups];
    let distance = part.x - mean;
    squares += part.y + distance * distance * slice_count(slice);
  }
  let variance = sum_of_all(squares, index) / count;
  if (index == 0u) {
    let result = vec2<f32>(mean, 1.0 / sqrt(variance + params.eps));
//! if FINISHED
    finished[group.x] = result;
//! else
    scratch[(groups.y * params.slices + group.y) * params.groups + group.x] = result;
//! end
  }
}
fn slice_count(slice: u32) -> f32 {
  let first = min(slice * params.slice_positions, params.positions);
  let last = min(first + params.slice_positions, params.positions);
  return f32(last - first) * f32(params.group_channels);
}
//! end

//! if APPLY
@group(0) @binding($B_SCALE) var<storage, read> scale: array<$V>;  // [channels]
@group(0) @binding($B_SHIFT) var<storage, read> shift: array<$V>;  // [channels]

@compute @workgroup_size(64)
fn group_norm(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let thread = (group.y * groups.x + group.x) * 64u + index;
  if (thread < params.count) {
    let row = thread / params.units;
    let unit = thread % params.units;
    let picture = row / params.positions;
    let pictures = params.count / (params.units * params.positions);
    let finished = (pictures * params.slices + picture) * params.groups;
//! if ONE_GROUP
    let of_group = scratch[finished + unit * ${UNIT}u / params.group_channels];
    let mean = $V(of_group.x);
    let factor = $V(of_group.y);
//! else
    var mean = $V();
    var factor = $V();
//! each i UNIT
    let of_group$i = scratch[finished + (unit * ${UNIT}u + ${i}u) / params.group_channels];
    mean[$i] = of_group$i.x;
    factor[$i] = of_group$i.y;
//! end
//! end
    let x = (value(row, unit) - mean) * factor * scale[unit] + shift[unit];
    output[thread] = to_${OUT_NAME}($ACTIVATION(x));
  }
}
//! end
