// The tile of every matrix product here: gemm, conv2d, both products of sliced attention.
//
// A workgroup makes $TILE x $TILE outputs, a thread $ROWS x $ROWS of them in named vec4. The part before this one gives
//   Row, begin_row(row)            what a thread remembers of the row of A it copies
//   Column, begin_column(column)   the same for B
//   K, begin_k(slice, quad), next_k(k)   where the thread is in the sum: its four values of k; one stage is 16 values
//   a4(row, k), b4(column, k.quad) the four values of A and of B there, zero outside
//   stages(slice)                  stages of this slice of the sum
// and the part after it finish(row, quad, sum, slice), with four neighbouring columns in `sum`.
// Sums run over k in ascending order in every tile, so all give the same bits.
//
// The tiles lie row by row along k with one vec4 of padding, and column 4 q + j of B lies at j * QUADS + q: then neighbouring
// threads read neighbouring rows, and no two of them one bank.

const SIDE = ${SIDE}u;                                  // threads a side
const QUADS = ${TILE}u / 4u;                            // quads of columns; a thread has every SIDE-th
const STRIDE = 5u;                                      // vec4 a row: 16 values of k and the padding
const ROWS_PER_PASS = ${ROWS_PER_PASS}u;                // rows that all threads copy at once, four threads a row
var<workgroup> tile_a: array<vec4<f32>, $TILE_WORDS>;   // [$TILE][STRIDE]
var<workgroup> tile_b: array<vec4<f32>, $TILE_WORDS>;   // [$TILE][STRIDE]

@compute @workgroup_size($SIDE, $SIDE)
fn $ENTRY(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let first_row = group.y * ${TILE}u;
  let first_column = group.x * ${TILE}u;
  let quad = index % 4u;
  let lane = index / 4u;
  var k = begin_k(group.z, quad);
//! each i PASSES
  let lane$i = lane + ${i}u * ROWS_PER_PASS;
  let row$i = begin_row(first_row + lane$i);
  let column$i = begin_column(first_column + lane$i);
  let to_a$i = lane$i * STRIDE + quad;
  let to_b$i = ((lane$i % 4u) * QUADS + lane$i / 4u) * STRIDE + quad;
//! end
  let from_a = local.y * ${ROWS}u * STRIDE;
  let from_b = local.x * STRIDE;
//! each h COLUMN_QUADS
//! each i ROWS
  var sum${i}_$h = vec4<f32>();
//! end
//! end
  let count = stages(group.z);
  for (var stage = 0u; stage < count; stage++) {
//! each i PASSES
    tile_a[to_a$i] = a4(row$i, k);
    tile_b[to_b$i] = b4(column$i, k.quad);
//! end
    k = next_k(k);
    workgroupBarrier();
    for (var q = 0u; q < 4u; q++) {
//! each h COLUMN_QUADS
//! each j 4
      let b${j}_$h = tile_b[from_b + (${j}u * QUADS + ${h}u * SIDE) * STRIDE + q];
//! end
//! end
//! each i ROWS
      let a$i = tile_a[from_a + ${i}u * STRIDE + q];
//! each h COLUMN_QUADS
      sum${i}_$h += vec4<f32>(dot(a$i, b0_$h), dot(a$i, b1_$h), dot(a$i, b2_$h), dot(a$i, b3_$h));
//! end
//! end
    }
    workgroupBarrier();
  }
//! each h COLUMN_QUADS
//! each i ROWS
  finish(first_row + local.y * ${ROWS}u + ${i}u, group.x * QUADS + local.x + ${h}u * SIDE, sum${i}_$h, group.z);
//! end
//! end
}
