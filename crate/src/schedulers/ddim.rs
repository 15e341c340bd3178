//! DDIM: denoising diffusion implicit models, deterministic (eta 0). <https://arxiv.org/abs/2010.02502>, formula (12).

use super::config::{PredictionType, SchedulerConfig, TimestepSpacing};
use super::noise_schedule::{Jump, alphas_cumprod, spaced_indices};
use super::{Scheduler, SchedulerKind, check_step};
use crate::Result;

/// diffusers' `DDIMScheduler` after `set_timesteps`, with eta 0.
#[derive(Debug, Clone)]
pub struct DdimScheduler {
    timesteps: Vec<f32>,
    jumps: Vec<Jump>,
    prediction_type: PredictionType,
    clip: Option<f32>,
}

impl DdimScheduler {
    /// A run of `num_inference_steps` steps.
    ///
    /// # Errors
    /// As [`create`](super::create).
    pub fn new(config: &SchedulerConfig, num_inference_steps: usize) -> Result<Self> {
        config.check(SchedulerKind::Ddim)?;
        config.check_steps(num_inference_steps, 1)?;
        let alphas = alphas_cumprod(config, config.rescale_betas_zero_snr);
        let final_alpha = if config.set_alpha_to_one.unwrap_or(true) {
            1.0
        } else {
            alphas[0]
        };
        let spacing = config.timestep_spacing.unwrap_or(TimestepSpacing::Leading);
        let indices = spaced_indices(spacing, num_inference_steps, config);
        let jumps = (0..indices.len())
            .map(|i| Jump {
                alpha_prod_t: alphas[indices[i]],
                alpha_prod_t_prev: indices.get(i + 1).map_or(final_alpha, |&t| alphas[t]),
            })
            .collect();
        Ok(Self {
            timesteps: indices.iter().map(|&t| t as f32).collect(),
            jumps,
            prediction_type: config.prediction_type,
            clip: config.clip_sample.then_some(config.clip_sample_range),
        })
    }
}

impl Scheduler for DdimScheduler {
    fn timesteps(&self) -> &[f32] {
        &self.timesteps
    }

    fn init_noise_sigma(&self) -> f32 {
        1.0
    }

    fn scale_model_input(&self, _sample: &mut [f32], _step_index: usize) {}

    fn step(&mut self, noise_pred: &[f32], step_index: usize, sample: &[f32]) -> Result<Vec<f32>> {
        check_step(self.jumps.len(), noise_pred, step_index, sample)?;
        let Jump {
            alpha_prod_t,
            alpha_prod_t_prev,
        } = self.jumps[step_index];
        let (alpha, sigma) = (alpha_prod_t.sqrt(), (1.0 - alpha_prod_t).sqrt());
        let (alpha_prev, sigma_prev) = (alpha_prod_t_prev.sqrt(), (1.0 - alpha_prod_t_prev).sqrt());
        let prev_sample = noise_pred.iter().zip(sample).map(|(&output, &x)| {
            let (x0, epsilon) = match self.prediction_type {
                PredictionType::Epsilon => ((x - sigma * output) / alpha, output),
                PredictionType::Sample => (output, (x - alpha * output) / sigma),
                PredictionType::VPrediction => {
                    (alpha * x - sigma * output, alpha * output + sigma * x)
                }
            };
            let x0 = self.clip.map_or(x0, |range| x0.clamp(-range, range));
            alpha_prev * x0 + sigma_prev * epsilon
        });
        Ok(prev_sample.collect())
    }
}
