// The activation functions, on $V: one, two or four values.
// exp overflows past 88, and WGSL need not know infinity.
fn sigmoid(x: $V) -> $V { return $V(1.0) / ($V(1.0) + exp(-clamp(x, $V(-80.0), $V(80.0)))); }
fn silu(x: $V) -> $V { return x * sigmoid(x); }
fn quick_gelu(x: $V) -> $V { return x * sigmoid(1.702 * x); }
// exp(-z^2) times a Chebyshev fit (Press et al., Numerical Recipes, erfcc): within 1.2e-7 of erfc(z) itself for every z >= 0,
// so the tail of GELU keeps its digits, which 1 + erf would lose.
fn erfc(z: $V) -> $V {
  let t = $V(1.0) / ($V(1.0) + 0.5 * z);
  var p = t * 0.17087277 + -0.82215223;
  p = p * t + 1.48851587;
  p = p * t + -1.13520398;
  p = p * t + 0.27886807;
  p = p * t + -0.18628806;
  p = p * t + 0.09678418;
  p = p * t + 0.37409196;
  p = p * t + 1.00002368;
  p = p * t + -1.26551223;
  return t * exp(p - z * z);
}
fn gelu(x: $V) -> $V {
  // past 12 what is missing to 0 or to x is less than float32 can say
  let tail = 0.5 * x * erfc(min(abs(x), $V(12.0)) * 0.7071067811865476);
  return select(tail, x - tail, x > $V(0.0));
}
fn identity(x: $V) -> $V { return x; }
