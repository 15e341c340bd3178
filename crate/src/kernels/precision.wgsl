// One, two or four neighbouring channels of an activation, as they are stored and as they are computed with.
fn from_f32x1(x: f32) -> f32 { return x; }
fn from_f32x2(x: vec2<f32>) -> vec2<f32> { return x; }
fn from_f32x4(x: vec4<f32>) -> vec4<f32> { return x; }
fn from_f16x2(x: u32) -> vec2<f32> { return unpack2x16float(x); }
fn from_f16x4(x: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(x.x), unpack2x16float(x.y)); }
fn to_f32x1(x: f32) -> f32 { return x; }
fn to_f32x2(x: vec2<f32>) -> vec2<f32> { return x; }
fn to_f32x4(x: vec4<f32>) -> vec4<f32> { return x; }
// beyond float16's range pack2x16float may give anything
fn to_f16x2(x: vec2<f32>) -> u32 { return pack2x16float(clamp(x, vec2<f32>(-65504.0), vec2<f32>(65504.0))); }
fn to_f16x4(x: vec4<f32>) -> vec2<u32> { return vec2<u32>(to_f16x2(x.xy), to_f16x2(x.zw)); }
