//! Betas, their cumulative alphas, and the timesteps that a run visits, in the float widths of diffusers on torch and numpy.

use std::f64::consts::FRAC_PI_2;

use super::config::{BetaSchedule, SchedulerConfig, TimestepSpacing};

/// `alphas_cumprod`: what is left of the picture's variance at each training timestep, length `num_train_timesteps`.
///
/// `zero_snr`: rescaled so that nothing is left at the last one (Algorithm 1 of <https://arxiv.org/abs/2305.08891>).
pub(super) fn alphas_cumprod(config: &SchedulerConfig, zero_snr: bool) -> Vec<f32> {
    let mut betas = betas(config);
    if zero_snr {
        rescale_zero_terminal_snr(&mut betas);
    }
    cumprod(&betas)
}

fn betas(config: &SchedulerConfig) -> Vec<f32> {
    if let Some(betas) = &config.trained_betas {
        return betas.clone();
    }
    let count = config.num_train_timesteps;
    match config.beta_schedule {
        BetaSchedule::Linear => {
            linspace_f32(config.beta_start as f32, config.beta_end as f32, count)
        }
        BetaSchedule::ScaledLinear => {
            let (start, end) = (config.beta_start.sqrt(), config.beta_end.sqrt());
            let roots = linspace_f32(start as f32, end as f32, count);
            roots.iter().map(|root| root * root).collect()
        }
        BetaSchedule::SquaredcosCapV2 => {
            let alpha_bar = |t: f64| ((t + 0.008) / 1.008 * FRAC_PI_2).cos().powi(2);
            (0..count)
                .map(|i| {
                    let (t1, t2) = (i as f64 / count as f64, (i + 1) as f64 / count as f64);
                    (1.0 - alpha_bar(t2) / alpha_bar(t1)).min(0.999) as f32
                })
                .collect()
        }
    }
}

/// `torch.linspace` in float32: each half is counted from its own end.
pub(super) fn linspace_f32(start: f32, end: f32, count: usize) -> Vec<f32> {
    if count < 2 {
        return vec![start; count];
    }
    let step = (end - start) / (count - 1) as f32;
    (0..count)
        .map(|i| {
            if i < count / 2 {
                start + step * i as f32
            } else {
                end - step * (count - i - 1) as f32
            }
        })
        .collect()
}

/// `numpy.linspace` in float64, both ends included.
pub(super) fn linspace_f64(start: f64, end: f64, count: usize) -> Vec<f64> {
    let step = (end - start) / count.saturating_sub(1).max(1) as f64;
    (0..count)
        .map(|i| {
            if i > 0 && i + 1 == count {
                end
            } else {
                i as f64 * step + start
            }
        })
        .collect()
}

/// `torch.cumprod(1 - betas)`; torch keeps the running product of float32 values in float64.
fn cumprod(betas: &[f32]) -> Vec<f32> {
    let mut product = 1.0_f64;
    betas
        .iter()
        .map(|beta| {
            product *= f64::from(1.0 - beta);
            product as f32
        })
        .collect()
}

fn rescale_zero_terminal_snr(betas: &mut [f32]) {
    let mut roots: Vec<f32> = cumprod(betas).iter().map(|alpha| alpha.sqrt()).collect();
    let (Some(&first), Some(&last)) = (roots.first(), roots.last()) else {
        return;
    };
    let stretch = first / (first - last);
    for root in &mut roots {
        *root = (*root - last) * stretch;
    }
    let mut before = 1.0;
    for (beta, root) in betas.iter_mut().zip(&roots) {
        let alpha_bar = root * root;
        *beta = 1.0 - alpha_bar / before;
        before = alpha_bar;
    }
}

/// The timesteps of a run of `steps` (1 to `num_train_timesteps`), falling, all within the training table.
/// Whole numbers, except that `linspace` is left unrounded.
pub(super) fn spaced_timesteps(
    spacing: TimestepSpacing,
    steps: usize,
    config: &SchedulerConfig,
) -> Vec<f64> {
    let train = config.num_train_timesteps;
    match spacing {
        TimestepSpacing::Leading => {
            let ratio = train / steps;
            let room = train - 1 - (steps - 1) * ratio;
            let offset = config.steps_offset.min(room);
            (0..steps)
                .rev()
                .map(|i| (i * ratio + offset) as f64)
                .collect()
        }
        TimestepSpacing::Trailing => {
            // numpy's float range: the stride is the difference of its first two entries
            let start = train as f64;
            let stride = (start - start / steps as f64) - start;
            (0..steps)
                .map(|i| (start + i as f64 * stride).round_ties_even() - 1.0)
                .collect()
        }
        TimestepSpacing::Linspace => {
            let mut timesteps = linspace_f64(0.0, (train - 1) as f64, steps);
            timesteps.reverse();
            timesteps
        }
    }
}

/// The same as indices into the training table.
pub(super) fn spaced_indices(
    spacing: TimestepSpacing,
    steps: usize,
    config: &SchedulerConfig,
) -> Vec<usize> {
    spaced_timesteps(spacing, steps, config)
        .iter()
        .map(|t| t.round_ties_even() as usize)
        .collect()
}

/// The cumulative alphas before and after one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Jump {
    /// At the step's own timestep.
    pub(super) alpha_prod_t: f32,
    /// At the timestep that follows, or the final one.
    pub(super) alpha_prod_t_prev: f32,
}
