//! `Timesteps` and `TimestepEmbedding` of diffusers (`models/embeddings.py`).

use super::{layers::Linear, weights::Weights};
use crate::engine::Engine;

/// The sinusoid of a timestep, `channels` values. Computed in f64 from the f32 timestep, which is never rounded to half width.
#[must_use]
pub fn timestep_sinusoid(
    timestep: f32,
    channels: usize,
    flip_sin_to_cos: bool,
    freq_shift: f64,
) -> Vec<f32> {
    let half = channels / 2;
    let angles = (0..half).map(|i| {
        // diffusers computes the frequencies in float32
        let exponent = (-(10000f64.ln()) as f32) * i as f32 / (half as f64 - freq_shift) as f32;
        f64::from(timestep * f64::from(exponent).exp() as f32)
    });
    let (sines, cosines): (Vec<_>, Vec<_>) = angles
        .map(|angle| (angle.sin() as f32, angle.cos() as f32))
        .unzip();
    let mut values = if flip_sin_to_cos {
        [cosines, sines].concat()
    } else {
        [sines, cosines].concat()
    };
    values.resize(channels, 0.0);
    values
}

/// Two linear layers with SiLU between: `linear_1`, `linear_2`.
pub struct TimestepEmbedding<E: Engine> {
    linear_1: Linear<E>,
    linear_2: Linear<E>,
}

impl<E: Engine> TimestepEmbedding<E> {
    /// Declares the weights.
    pub fn new(vs: &Weights<E>, channels_in: usize, time_channels: usize) -> Self {
        Self {
            linear_1: Linear::new(&vs.pp("linear_1"), channels_in, time_channels),
            linear_2: Linear::new(&vs.pp("linear_2"), time_channels, time_channels),
        }
    }

    /// `[batch, 1, 1, channels_in]` to `[batch, 1, 1, time_channels]`.
    pub fn forward(&self, engine: &E, x: &E::Tensor) -> E::Tensor {
        self.linear_2
            .forward(engine, &engine.silu(&self.linear_1.forward(engine, x)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timestep rounded to half width would give another embedding: cases of public bug reports (937, 950.3046, 999).
    #[test]
    fn fractional_timesteps_are_not_rounded() {
        let whole = timestep_sinusoid(950.5, 320, true, 0.0);
        let fraction = timestep_sinusoid(950.3046, 320, true, 0.0);
        assert!(
            (whole[0] - fraction[0]).abs() > 0.05,
            "cos(950.5) and cos(950.3046) differ"
        );
        for t in [937f32, 999.0, 951.0, 759.0, 499.0, 915.0446] {
            let values = timestep_sinusoid(t, 320, true, 0.0);
            assert!((f64::from(values[0]) - f64::from(t).cos()).abs() < 1e-6);
            assert!((f64::from(values[160]) - f64::from(t).sin()).abs() < 1e-6);
        }
    }

    #[test]
    fn sines_first_without_the_flip_and_odd_widths_are_padded() {
        assert_eq!(
            timestep_sinusoid(0.0, 5, false, 0.0),
            [0.0, 0.0, 1.0, 1.0, 0.0]
        );
        assert_eq!(timestep_sinusoid(0.0, 4, true, 0.0), [1.0, 1.0, 0.0, 0.0]);
    }
}
