// Sum or maximum over the $THREADS threads of a workgroup, in an order that never changes. First $PARTS threads take a part each, then every
// thread takes all parts: three barriers. A tree has one at each of its levels, and barriers are what a small workgroup spends its time on.
var<workgroup> lanes: array<f32, $THREADS>;

fn sum_of_all(value: f32, index: u32) -> f32 {
  lanes[index] = value;
  workgroupBarrier();
  if (index < ${PARTS}u) {
    var part = value;
    for (var at = index + ${PARTS}u; at < ${THREADS}u; at += ${PARTS}u) { part += lanes[at]; }
    lanes[index] = part;
  }
  workgroupBarrier();
  var sum = lanes[0];
  for (var at = 1u; at < ${PARTS}u; at++) { sum += lanes[at]; }
  workgroupBarrier();
  return sum;
}
//! if MAXIMUM
fn max_of_all(value: f32, index: u32) -> f32 {
  lanes[index] = value;
  workgroupBarrier();
  if (index < ${PARTS}u) {
    var part = value;
    for (var at = index + ${PARTS}u; at < ${THREADS}u; at += ${PARTS}u) { part = max(part, lanes[at]); }
    lanes[index] = part;
  }
  workgroupBarrier();
  var most = lanes[0];
  for (var at = 1u; at < ${PARTS}u; at++) { most = max(most, lanes[at]); }
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
