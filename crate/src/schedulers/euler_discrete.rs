//! Euler's method along the sigmas. Algorithm 2 of Karras et al. (<https://arxiv.org/abs/2206.00364>) without churn.

use super::config::{
    FinalSigmasType, InterpolationType, PredictionType, SchedulerConfig, TimestepSpacing,
    TimestepType,
};
use super::noise_schedule::{alphas_cumprod, linspace_f32, linspace_f64, spaced_timesteps};
use super::{Scheduler, SchedulerKind, check_step};
use crate::Result;

/// The exponent of the Karras ramp; the paper's value.
const RHO: f64 = 7.0;

/// Stands for the alpha-bar 0 of a schedule without signal at its end, whose sigma would be infinite. diffusers' value.
const SMALLEST_ALPHA: f32 = 1.0 / 16_777_216.0;

/// diffusers' `EulerDiscreteScheduler` after `set_timesteps`.
#[derive(Debug, Clone)]
pub struct EulerDiscreteScheduler {
    timesteps: Vec<f32>,
    sigmas: Vec<f32>,
    init_noise_sigma: f32,
    prediction_type: PredictionType,
}

impl EulerDiscreteScheduler {
    /// A run of `num_inference_steps` steps.
    ///
    /// With Karras or exponential sigmas and `linspace`, the ramp starts at the largest sigma of training for one step, too
    /// (diffusers starts a single step at the smallest, which leaves the noise as it is).
    ///
    /// # Errors
    /// As [`create`](super::create).
    pub fn new(config: &SchedulerConfig, num_inference_steps: usize) -> Result<Self> {
        config.check(SchedulerKind::Euler)?;
        config.check_steps(num_inference_steps, 1)?;
        let spacing = config.timestep_spacing.unwrap_or(TimestepSpacing::Linspace);
        let table = training_sigmas(config);
        // float32 before they are looked up, as in diffusers
        let mut timesteps: Vec<f32> = spaced_timesteps(spacing, num_inference_steps, config)
            .iter()
            .map(|&t| t as f32)
            .collect();
        let mut sigmas = match config.interpolation_type {
            InterpolationType::Linear => timesteps
                .iter()
                .map(|&t| interpolate(&table, f64::from(t)))
                .collect(),
            InterpolationType::LogLinear => log_linear(&table, num_inference_steps),
        };
        if config.use_karras_sigmas || config.use_exponential_sigmas {
            let first = match (spacing, config.interpolation_type) {
                (TimestepSpacing::Linspace, InterpolationType::Linear) => {
                    table.last().copied().map(f64::from)
                }
                _ => sigmas.first().copied(),
            };
            let last = sigmas.last().copied();
            let sigma_max = config.sigma_max.or(first).unwrap_or_default();
            let sigma_min = config.sigma_min.or(last).unwrap_or_default();
            sigmas = if config.use_karras_sigmas {
                karras(sigma_min, sigma_max, num_inference_steps)
            } else {
                exponential(sigma_min, sigma_max, num_inference_steps)
            };
            let log_table: Vec<f64> = table
                .iter()
                .map(|&sigma| f64::from(f64::from(sigma).ln() as f32))
                .collect();
            timesteps = sigmas
                .iter()
                .map(|&sigma| sigma_to_t(sigma, &log_table) as f32)
                .collect();
        }
        let sigma_last = match config.final_sigmas_type {
            FinalSigmasType::Zero => 0.0,
            FinalSigmasType::SigmaMin => table[0],
        };
        let mut sigmas: Vec<f32> = sigmas.iter().map(|&sigma| sigma as f32).collect();
        sigmas.push(sigma_last);
        if config.timestep_type == TimestepType::Continuous
            && config.prediction_type == PredictionType::VPrediction
        {
            // `log_linear` has one sigma more than there are steps; the model is called once a step
            let called = sigmas.iter().take(num_inference_steps);
            timesteps = called.map(|sigma| 0.25 * sigma.ln()).collect();
        }
        let largest = sigmas.iter().copied().fold(0.0, f32::max);
        let init_noise_sigma = match spacing {
            TimestepSpacing::Linspace | TimestepSpacing::Trailing => largest,
            TimestepSpacing::Leading => (largest * largest + 1.0).sqrt(),
        };
        Ok(Self {
            timesteps,
            sigmas,
            init_noise_sigma,
            prediction_type: config.prediction_type,
        })
    }

    /// The noise level before each step, then the final one. Entry `i` goes with timestep `i`.
    #[must_use]
    pub fn sigmas(&self) -> &[f32] {
        &self.sigmas
    }
}

/// `sqrt((1 - alpha_bar) / alpha_bar)` for each training timestep, rising.
fn training_sigmas(config: &SchedulerConfig) -> Vec<f32> {
    let mut alphas = alphas_cumprod(config, config.rescale_betas_zero_snr);
    if let (true, Some(last)) = (config.rescale_betas_zero_snr, alphas.last_mut()) {
        *last = SMALLEST_ALPHA;
    }
    alphas
        .iter()
        .map(|alpha| ((1.0 - alpha) / alpha).sqrt())
        .collect()
}

/// `numpy.interp` over the indices of `table`.
fn interpolate(table: &[f32], t: f64) -> f64 {
    let low = (t.max(0.0) as usize).min(table.len() - 1);
    let value = f64::from(table[low]);
    match table.get(low + 1) {
        Some(&next) => (f64::from(next) - value) * (t - low as f64) + value,
        None => value,
    }
}

/// One value more than there are steps: the last step ends at the table's smallest sigma, and the final sigma is not reached.
fn log_linear(table: &[f32], steps: usize) -> Vec<f64> {
    let log = |sigma: f32| f64::from(sigma).ln() as f32;
    linspace_f32(log(table[table.len() - 1]), log(table[0]), steps + 1)
        .iter()
        .map(|&log_sigma| f64::from(log_sigma.exp()))
        .collect()
}

fn karras(sigma_min: f64, sigma_max: f64, steps: usize) -> Vec<f64> {
    let (min, max) = (sigma_min.powf(1.0 / RHO), sigma_max.powf(1.0 / RHO));
    linspace_f64(0.0, 1.0, steps)
        .iter()
        .map(|ramp| (max + ramp * (min - max)).powf(RHO))
        .collect()
}

fn exponential(sigma_min: f64, sigma_max: f64, steps: usize) -> Vec<f64> {
    linspace_f64(sigma_max.ln(), sigma_min.ln(), steps)
        .iter()
        .map(|log_sigma| log_sigma.exp())
        .collect()
}

/// The fractional timestep of a sigma, linear between the logarithms of the table, held within it.
fn sigma_to_t(sigma: f64, log_table: &[f64]) -> f64 {
    let log_sigma = sigma.max(1e-10).ln();
    let below = log_table.iter().rposition(|&entry| log_sigma >= entry);
    let low = below.unwrap_or(0).min(log_table.len() - 2);
    let (from, to) = (log_table[low], log_table[low + 1]);
    let w = ((from - log_sigma) / (from - to)).clamp(0.0, 1.0);
    (1.0 - w) * low as f64 + w * (low + 1) as f64
}

impl Scheduler for EulerDiscreteScheduler {
    fn timesteps(&self) -> &[f32] {
        &self.timesteps
    }

    fn init_noise_sigma(&self) -> f32 {
        self.init_noise_sigma
    }

    fn scale_model_input(&self, sample: &mut [f32], step_index: usize) {
        if step_index >= self.timesteps.len() {
            return;
        }
        let sigma = self.sigmas[step_index];
        let divisor = (sigma * sigma + 1.0).sqrt();
        for value in sample {
            *value /= divisor;
        }
    }

    fn step(&mut self, noise_pred: &[f32], step_index: usize, sample: &[f32]) -> Result<Vec<f32>> {
        check_step(self.timesteps.len(), noise_pred, step_index, sample)?;
        let sigma = self.sigmas[step_index];
        let dt = self.sigmas[step_index + 1] - sigma;
        let variance = sigma * sigma + 1.0;
        let prev_sample = noise_pred.iter().zip(sample).map(|(&output, &x)| {
            let x0 = match self.prediction_type {
                PredictionType::Epsilon => x - sigma * output,
                PredictionType::VPrediction => output * (-sigma / variance.sqrt()) + x / variance,
                PredictionType::Sample => output,
            };
            x + (x - x0) / sigma * dt
        });
        Ok(prev_sample.collect())
    }
}
