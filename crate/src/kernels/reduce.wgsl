// Sum or maximum over the $THREADS threads of a workgroup, in an order that never changes.
var<workgroup> lanes: array<f32, $THREADS>;

fn sum_of_all(value: f32, index: u32) -> f32 {
  lanes[index] = value;
  workgroupBarrier();
  for (var half = ${THREADS}u / 2u; half > 0u; half /= 2u) {
    if (index < half) { lanes[index] += lanes[index + half]; }
    workgroupBarrier();
  }
  let sum = lanes[0];
  workgroupBarrier();
  return sum;
}
//! if MAXIMUM
fn max_of_all(value: f32, index: u32) -> f32 {
  lanes[index] = value;
  workgroupBarrier();
  for (var half = ${THREADS}u / 2u; half > 0u; half /= 2u) {
    if (index < half) { lanes[index] = max(lanes[index], lanes[index + half]); }
    workgroupBarrier();
  }
  let most = lanes[0];
  workgroupBarrier();
  return most;
}
//! end
fn total(x: $IN_V) -> f32 {
//! if IN_UNIT4
  return (x.x + x.y) + (x.z + x.w);
//! end
//! if IN_UNIT2
  return x.x + x.y;
//! end
//! if IN_UNIT1
  return x;
//! end
}
