// The end of a matrix product: bias, GEGLU or activation, value per channel, residual; $QUAD columns of one row at a time.
//
// With GEGLU the tile's columns are two values and their two gates in turn, so $QUAD is 2, else 4; they are stored in units of
// $UNIT columns, the largest that divides n.

//! if BIAS
@group(0) @binding($B_BIAS) var<storage, read> bias: array<$V>;                      // [n] or, with GEGLU, [2 n]
//! end
//! if CHANNEL_ADD
@group(0) @binding($B_CHANNEL_ADD) var<storage, read_write> channel_add: array<$V>;  // [rows, n]
//! end
//! if CHANNEL_ADD_STEP
@group(0) @binding($B_STEP) var<uniform> step: vec4<u32>;                            // x: row of channel_add
//! end
//! if RESIDUAL
@group(0) @binding($B_RESIDUAL) var<storage, read_write> residual: array<$OUT>;      // [m, n]
//! end
@group(0) @binding($B_OUTPUT) var<storage, read_write> output: array<$OUT>;          // [m, n]

//! if UNIT1
fn part(x: vec4<f32>, at: u32) -> f32 { return x[at]; }
//! end
//! if UNIT2
fn part(x: vec4<f32>, at: u32) -> vec2<f32> { return select(x.zw, x.xy, at == 0u); }
//! end
//! if UNIT4
fn part(x: vec4<f32>, at: u32) -> vec4<f32> { return x; }
//! end

fn epilogue(row: u32, quad: u32, sum: vec4<f32>) {
//! each i PIECES
  {
    let column = quad * ${QUAD}u + ${i}u * ${UNIT}u;
    if (row < params.m && column < params.n) {
      let at = (row * params.n + column) / ${UNIT}u;
      var x = part(sum, ${i}u);
//! if BIAS
      x += bias[column / ${UNIT}u];
//! end
//! if GEGLU
      var gate = part(sum, ${i}u + 2u / ${UNIT}u);
//! if BIAS
      gate += bias[(params.n + column) / ${UNIT}u];
//! end
      x *= gelu(gate);
//! else
      x = $ACTIVATION(x);
//! end
//! if CHANNEL_ADD
//! if CHANNEL_ADD_STEP
      let channel_row = step.x;
//! end
//! if CHANNEL_ADD_PICTURE
      let channel_row = row / params.positions;
//! end
//! if CHANNEL_ADD_ONE
      let channel_row = 0u;
//! end
      x += channel_add[(channel_row * params.n + column) / ${UNIT}u];
//! end
//! if RESIDUAL
      x += from_${OUT_NAME}(residual[at]);
//! end
//! if RESIDUAL_IN_PLACE
      x += from_${OUT_NAME}(output[at]);
//! end
      output[at] = to_${OUT_NAME}(x);
    }
  }
//! end
}
