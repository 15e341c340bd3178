//! The normal random numbers of `torch.randn` on a CPU, bit for bit: the same seed gives the same first latents as diffusers.
//!
//! torch has two roads for float32 (`aten/src/ATen/native/cpu/DistributionTemplates.h`):
//! - 16 values or more: the tensor is filled with uniforms, then every run of 16 becomes 8 cosines and 8 sines of a Box-Muller pair.
//!   When the count is no multiple of 16, the last 16 places are drawn once more from 16 fresh uniforms.
//!   So a short draw is not the beginning of a longer one.
//! - fewer than 16: one value at a time in float64, where the sine of each pair is kept for the next value, even across calls.
//!
//! The first road has two sets of bits in torch 2.9.1. The kernel for AVX2 is also the one that runs on AVX-512 machines, so it is
//! what practically every x86 desktop computes (`torch.backends.cpu.get_cpu_capability()` is `AVX2` or `AVX512`), and it is what this
//! module does. `ATEN_CPU_CAPABILITY=default` (and CPUs without AVX2) call the C library's `logf`, `cosf` and `sinf` instead,
//! which differ in the last bits; no picture shows the difference. The second road is the same everywhere.
//!
//! Nothing here calls the platform's mathematics: additions, products, square roots and fused multiply-adds are exact by IEEE 754,
//! and the float64 functions come from the `libm` crate, so native code and WebAssembly agree.
//!
//! Half-precision latents: draw in f32 here, then convert. (torch's own half-precision draw is another sequence of numbers.)

use std::f64::consts::PI;

const STATE: usize = 624;
const SHIFT: usize = 397;

/// mt19937 of Matsumoto and Nishimura, seeded as `at::mt19937` (`aten/src/ATen/core/MT19937RNGEngine.h`) seeds it.
#[derive(Debug, Clone)]
struct Mt19937 {
    state: [u32; STATE],
    next: usize,
}

impl Mt19937 {
    fn new(seed: u32) -> Self {
        let mut state = [0_u32; STATE];
        let mut previous = seed;
        for (index, word) in state.iter_mut().enumerate() {
            if index > 0 {
                previous = 1_812_433_253_u32
                    .wrapping_mul(previous ^ (previous >> 30))
                    .wrapping_add(index as u32);
            }
            *word = previous;
        }
        Self { state, next: STATE }
    }

    fn refill(&mut self) {
        for index in 0..STATE {
            let following = self.state[(index + 1) % STATE];
            let mixed = (self.state[index] & 0x8000_0000) | (following & 0x7fff_ffff);
            let twist = if following & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[index] = self.state[(index + SHIFT) % STATE] ^ (mixed >> 1) ^ twist;
        }
        self.next = 0;
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == STATE {
            self.refill();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }
}

/// `torch.Generator(device="cpu")` after `manual_seed(seed)`.
#[derive(Debug, Clone)]
pub struct TorchCpuGenerator {
    engine: Mt19937,
    kept_normal: Option<f64>,
}

impl TorchCpuGenerator {
    /// A generator in the state that `torch.Generator().manual_seed(seed)` leaves. As in torch, only the low 32 bits count on a CPU.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            engine: Mt19937::new(seed as u32),
            kept_normal: None,
        }
    }

    /// The next `count` values as `torch.randn(count, generator=self, dtype=torch.float32)` gives them.
    ///
    /// For a tensor, `count` is the product of its sizes and the values come in row-major order of the shape that torch was asked for
    /// (diffusers asks for `[batch, channels, height / 8, width / 8]`).
    pub fn randn(&mut self, count: usize) -> Vec<f32> {
        if count < RUN {
            return (0..count).map(|_| self.next_normal() as f32).collect();
        }
        let mut values: Vec<f32> = (0..count).map(|_| self.next_uniform()).collect();
        let (runs, rest) = values.as_chunks_mut::<RUN>();
        runs.iter_mut().for_each(normal_run);
        if !rest.is_empty() {
            let mut last = [0.0; RUN];
            last.fill_with(|| self.next_uniform());
            normal_run(&mut last);
            values[count - RUN..].copy_from_slice(&last);
        }
        values
    }

    /// 24 random bits in [0, 1).
    fn next_uniform(&mut self) -> f32 {
        (self.engine.next_u32() & 0x00ff_ffff) as f32 * (1.0 / 16_777_216.0)
    }

    /// 53 random bits in [0, 1).
    fn next_uniform_f64(&mut self) -> f64 {
        let high = u64::from(self.engine.next_u32());
        let low = u64::from(self.engine.next_u32());
        ((high << 32 | low) & ((1 << 53) - 1)) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// `at::normal_distribution<double>` (`aten/src/ATen/core/DistributionsHelper.h`).
    fn next_normal(&mut self) -> f64 {
        if let Some(kept) = self.kept_normal.take() {
            return kept;
        }
        let u1 = self.next_uniform_f64();
        let u2 = self.next_uniform_f64();
        let radius = (-2.0 * libm::log1p(-u2)).sqrt();
        let theta = 2.0 * PI * u1;
        self.kept_normal = Some(radius * libm::sin(theta));
        radius * libm::cos(theta)
    }
}

const RUN: usize = 16;

/// `normal_fill_16_AVX2`: uniforms in, normals out. The first 8 uniforms give the radius, the last 8 the angle.
fn normal_run(run: &mut [f32; RUN]) {
    let (first, second) = run.split_at_mut(RUN / 2);
    for (a, b) in first.iter_mut().zip(second) {
        let radius = (-2.0 * ln(1.0 - *a)).sqrt();
        let (sin, cos) = sin_cos((2.0 * PI) as f32 * *b);
        // torch ends with fma(value, std = 1, mean = 0), which turns -0.0 into 0.0
        *a = radius * cos + 0.0;
        *b = radius * sin + 0.0;
    }
}

// The two functions below are one lane of `log256_ps` and `sincos256_ps` of avx_mathfun.h (G. Garberoglio, after J. Pommier's
// sse_mathfun.h; the polynomials are those of S. Moshier's Cephes library), with the multiply-adds fused exactly where the compiler
// that builds torch's wheels fuses them. The fixtures hold that to the bit.

/// Natural logarithm of a positive normal number.
#[allow(
    clippy::excessive_precision,
    reason = "the constants as they are published"
)]
fn ln(x: f32) -> f32 {
    const SQRT_HALF: f32 = f32::from_bits(0x3f35_04f3);
    const POLYNOMIAL: [f32; 8] = [
        -1.151_461_031_0E-1,
        1.167_699_874_0E-1,
        -1.242_014_084_6E-1,
        1.424_932_278_7E-1,
        -1.666_805_766_5E-1,
        2.000_071_476_5E-1,
        -2.499_999_399_3E-1,
        3.333_333_117_4E-1,
    ];
    // ln 2 in two parts
    const Q1: f32 = -2.121_944_40e-4;
    const Q2: f32 = 0.693_359_375;

    let bits = x.to_bits();
    let mut exponent = ((bits >> 23) as i32 - 0x7f) as f32 + 1.0;
    let mantissa = f32::from_bits((bits & 0x007f_ffff) | 0.5_f32.to_bits());
    let mut x = mantissa - 1.0;
    if mantissa < SQRT_HALF {
        exponent -= 1.0;
        x += mantissa;
    }
    let z = x * x;
    let y = POLYNOMIAL
        .into_iter()
        .fold(7.037_683_629_2E-2_f32, |y, p| y.mul_add(x, p))
        * x;
    let y = y.mul_add(z, exponent * Q1);
    let y = z.mul_add(-0.5, y);
    exponent.mul_add(Q2, x + y)
}

/// Sine and cosine of an angle in [0, 8192).
#[allow(
    clippy::excessive_precision,
    reason = "the constants as they are published"
)]
fn sin_cos(angle: f32) -> (f32, f32) {
    // pi / 4 in three parts
    const DP1: f32 = -0.785_156_25;
    const DP2: f32 = -2.418_756_484_985_351_562_5e-4;
    const DP3: f32 = -3.774_894_977_445_941_08e-8;
    const FOUR_OVER_PI: f32 = 1.273_239_544_735_16;

    let octant = ((angle * FOUR_OVER_PI) as i32 + 1) & !1;
    let j = octant as f32;
    let x = j.mul_add(DP3, j.mul_add(DP2, j.mul_add(DP1, angle)));
    let z = x * x;

    let cos = 2.443_315_711_809_948E-5_f32
        .mul_add(z, -1.388_731_625_493_765E-3)
        .mul_add(z, 4.166_664_568_298_827E-2)
        * z;
    let cos = cos.mul_add(z, -(z * 0.5)) + 1.0;

    let sin = (-1.951_529_589_1E-4_f32)
        .mul_add(z, 8.332_160_873_6E-3)
        .mul_add(z, -1.666_665_461_1E-1)
        * z;
    let sin = sin.mul_add(x, x);

    let (sin, cos) = if octant & 2 == 0 {
        (sin, cos)
    } else {
        (cos, sin)
    };
    (
        if octant & 4 == 0 { sin } else { -sin },
        if (octant - 2) & 4 == 0 { -cos } else { cos },
    )
}
