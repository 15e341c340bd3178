//! PNDM: pseudo numerical methods, the multistep part (PLMS) with or without Runge-Kutta steps before it.
//! <https://arxiv.org/abs/2202.09778>, formulas (9), (12), (13) and Algorithm 2.

use super::config::{PredictionType, SchedulerConfig, TimestepSpacing};
use super::noise_schedule::{Jump, alphas_cumprod, spaced_indices};
use super::{Scheduler, SchedulerKind, check_step};
use crate::{Error, Result};

/// The Runge-Kutta phase covers this many timesteps, with three moves of four model calls between them.
const ORDER: usize = 4;
const CALLS_PER_MOVE: usize = 4;

/// diffusers' `PNDMScheduler` after `set_timesteps`.
#[derive(Debug, Clone)]
pub struct PndmScheduler {
    timesteps: Vec<f32>,
    jumps: Vec<Jump>,
    prk_calls: usize,
    v_prediction: bool,
    counter: usize,
    /// Up to four past model outputs, the newest last.
    ets: Vec<Vec<f32>>,
    cur_sample: Vec<f32>,
    cur_model_output: Vec<f32>,
}

impl PndmScheduler {
    /// A run of `num_inference_steps` steps: one model call more than that for PLMS (but 1 for 1 step), 9 more with Runge-Kutta.
    ///
    /// # Errors
    /// As [`create`](super::create).
    pub fn new(config: &SchedulerConfig, num_inference_steps: usize) -> Result<Self> {
        config.check(SchedulerKind::Pndm)?;
        config.check_steps(
            num_inference_steps,
            if config.skip_prk_steps { 1 } else { ORDER },
        )?;
        let alphas = alphas_cumprod(config, false);
        let final_alpha = if config.set_alpha_to_one.unwrap_or(false) {
            1.0
        } else {
            alphas[0]
        };
        let spacing = config.timestep_spacing.unwrap_or(TimestepSpacing::Leading);
        let mut calls = spaced_indices(spacing, num_inference_steps, config);
        let prk_calls = if config.skip_prk_steps {
            if let Some(&second) = calls.get(1) {
                calls.insert(2, second);
            }
            0
        } else {
            let half = config.num_train_timesteps / num_inference_steps / 2;
            let prk = prk_calls(&calls[..ORDER], half);
            let count = prk.len();
            calls.splice(..ORDER - 1, prk);
            count
        };
        let jump = |i: usize| {
            let (from, to) = if i < prk_calls {
                let from = calls[i / CALLS_PER_MOVE * CALLS_PER_MOVE];
                (from, Some(calls[i + (i + 1) % 2]))
            } else if i == 1 && prk_calls == 0 {
                // the second PLMS call makes the first move again
                (calls[0], Some(calls[1]))
            } else {
                (calls[i], calls.get(i + 1).copied())
            };
            Jump {
                alpha_prod_t: alphas[from],
                alpha_prod_t_prev: to.map_or(final_alpha, |t| alphas[t]),
            }
        };
        Ok(Self {
            timesteps: calls.iter().map(|&t| t as f32).collect(),
            jumps: (0..calls.len()).map(jump).collect(),
            prk_calls,
            v_prediction: config.prediction_type == PredictionType::VPrediction,
            counter: 0,
            ets: Vec::with_capacity(ORDER),
            cur_sample: Vec::new(),
            cur_model_output: Vec::new(),
        })
    }

    /// Runge-Kutta: four slopes, all applied to the sample of the first, weighted 1/6, 1/3, 1/3, 1/6 by the last.
    fn step_prk(&mut self, noise_pred: &[f32], sample: &[f32]) -> Vec<f32> {
        let mut model_output = noise_pred.to_vec();
        match self.counter % CALLS_PER_MOVE {
            0 => {
                self.cur_model_output = scaled(noise_pred, 1.0 / 6.0);
                self.remember(noise_pred);
                self.cur_sample = sample.to_vec();
            }
            1 | 2 => {
                for (sum, output) in self.cur_model_output.iter_mut().zip(noise_pred) {
                    *sum += THIRD * output;
                }
            }
            _ => {
                for (output, sum) in model_output.iter_mut().zip(&self.cur_model_output) {
                    *output = sum + SIXTH * *output;
                }
            }
        }
        self.prev_sample(&self.cur_sample, &model_output)
    }

    /// Adams-Bashforth over the past outputs, as many as there are, up to four.
    fn step_plms(&mut self, noise_pred: &[f32], sample: &[f32]) -> Vec<f32> {
        if self.counter == 1 {
            let first = &self.ets[0];
            let pairs = noise_pred.iter().zip(first);
            let mean: Vec<f32> = pairs.map(|(now, before)| (now + before) / 2.0).collect();
            let prev_sample = self.prev_sample(&self.cur_sample, &mean);
            self.cur_sample.clear();
            return prev_sample;
        }
        self.remember(noise_pred);
        if self.counter == 0 {
            self.cur_sample = sample.to_vec();
        }
        let model_output: Vec<f32> = match self.ets.as_slice() {
            [e2, e1] => (0..e1.len()).map(|i| (3.0 * e1[i] - e2[i]) / 2.0).collect(),
            [e3, e2, e1] => (0..e1.len())
                .map(|i| (23.0 * e1[i] - 16.0 * e2[i] + 5.0 * e3[i]) / 12.0)
                .collect(),
            [e4, e3, e2, e1] => (0..e1.len())
                .map(|i| (1.0 / 24.0) * (55.0 * e1[i] - 59.0 * e2[i] + 37.0 * e3[i] - 9.0 * e4[i]))
                .collect(),
            _ => noise_pred.to_vec(),
        };
        self.prev_sample(sample, &model_output)
    }

    fn remember(&mut self, noise_pred: &[f32]) {
        if self.ets.len() == ORDER {
            self.ets.remove(0);
        }
        self.ets.push(noise_pred.to_vec());
    }

    /// Formula (9), over the move of the present call.
    fn prev_sample(&self, sample: &[f32], model_output: &[f32]) -> Vec<f32> {
        let Jump {
            alpha_prod_t: alpha,
            alpha_prod_t_prev: alpha_prev,
        } = self.jumps[self.counter];
        let (beta, beta_prev) = (1.0 - alpha, 1.0 - alpha_prev);
        let sample_coeff = (alpha_prev / alpha).sqrt();
        let denominator = alpha * beta_prev.sqrt() + (alpha * beta * alpha_prev).sqrt();
        let pairs = sample.iter().zip(model_output);
        pairs
            .map(|(&x, &output)| {
                let epsilon = if self.v_prediction {
                    alpha.sqrt() * output + beta.sqrt() * x
                } else {
                    output
                };
                sample_coeff * x - (alpha_prev - alpha) * epsilon / denominator
            })
            .collect()
    }
}

const THIRD: f32 = 1.0 / 3.0;
const SIXTH: f32 = 1.0 / 6.0;

fn scaled(values: &[f32], factor: f32) -> Vec<f32> {
    values.iter().map(|value| factor * value).collect()
}

/// The timesteps of the Runge-Kutta calls between the four given: start, middle, middle, end of each move.
fn prk_calls(timesteps: &[usize], half: usize) -> Vec<usize> {
    timesteps
        .windows(2)
        .flat_map(|pair| {
            let middle = pair[1] + half;
            [pair[0], middle, middle, pair[1]]
        })
        .collect()
}

impl Scheduler for PndmScheduler {
    fn timesteps(&self) -> &[f32] {
        &self.timesteps
    }

    fn init_noise_sigma(&self) -> f32 {
        1.0
    }

    fn scale_model_input(&self, _sample: &mut [f32], _step_index: usize) {}

    fn step(&mut self, noise_pred: &[f32], step_index: usize, sample: &[f32]) -> Result<Vec<f32>> {
        check_step(self.jumps.len(), noise_pred, step_index, sample)?;
        if step_index == 0 {
            self.counter = 0;
            self.ets.clear();
        }
        if step_index != self.counter {
            return Err(Error::invalid(
                "step_index",
                format!(
                    "must be 0 or {}, as each step needs those before it, and is {step_index}",
                    self.counter
                ),
            ));
        }
        if step_index > 0 && self.ets.iter().any(|output| output.len() != sample.len()) {
            return Err(Error::invalid("sample", "must keep its size during a run"));
        }
        let prev_sample = if self.counter < self.prk_calls {
            self.step_prk(noise_pred, sample)
        } else {
            self.step_plms(noise_pred, sample)
        };
        self.counter += 1;
        Ok(prev_sample)
    }
}
