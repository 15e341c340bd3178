// output[b][t] = token_table[ids[b][t]] + position_table[t]
struct Params {
  tokens: u32,  // of a prompt
  units: u32,   // channels / $UNIT
  stride: u32,  // of a row of a table, in its elements
  rows: u32,    // of the token table
  count: u32,   // batch * tokens * units
}
@group(0) @binding($B_IDS) var<storage, read_write> ids: array<u32>;                            // [batch, tokens]
@group(0) @binding($B_TOKEN_TABLE) var<storage, read> token_table: array<$TABLE>;               // [rows, stride] float16
@group(0) @binding($B_POSITION_TABLE) var<storage, read> position_table: array<$TABLE>;         // [positions, stride] float16
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$OUT>;                     // [batch, tokens, units]
@group(0) @binding($B_PARAMS) var<uniform> params: Params;

//! if UNIT1
fn from_table(word: u32, unit: u32) -> f32 {
  let pair = from_f16x2(word);
  return select(pair.x, pair.y, unit % 2u == 1u);
}
//! else
fn from_table(word: $TABLE, unit: u32) -> $V { return from_f16x${UNIT}(word); }
//! end

@compute @workgroup_size(64)
fn embedding(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let thread = (group.y * groups.x + group.x) * 64u + index;
  if (thread < params.count) {
    let row = thread / params.units;
    let unit = thread % params.units;
    let id = min(ids[row], params.rows - 1u);
    let at = unit / ${TABLE_UNITS}u;
    let token = from_table(token_table[id * params.stride + at], unit);
    let position = from_table(position_table[row % params.tokens * params.stride + at], unit);
    output[thread] = to_${OUT_NAME}(token + position);
  }
}
