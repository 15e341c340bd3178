//! Noise schedules and the steps along them: plain numbers, no tensors of an engine.
//!
//! Names, configs and float32 arithmetic are diffusers' (0.42), so that a picture can be held against the same picture made there.
//! Where diffusers indexes past its tables, or uses a stride that is not the one of its own list of timesteps, this module does not:
//! - `leading` with an offset that would pass the last training timestep (1000 steps, offset 1) uses the largest offset that fits;
//! - `trailing` gives exactly the steps asked for (diffusers' float range gives one more for 62 of the counts, such as 61);
//! - PNDM and DDIM step to the next entry of the list, not to `t - num_train_timesteps / steps`;
//!   the two differ only for `linspace`, for `trailing` with counts that do not divide, and in Runge-Kutta half steps of an odd stride;
//! - after the last entry comes the final alpha, always.

mod config;
mod ddim;
mod euler_discrete;
mod keys;
mod noise_schedule;
mod pndm;

use std::fmt;
use std::str::FromStr;

pub use config::SchedulerConfig;
pub use ddim::DdimScheduler;
pub use euler_discrete::EulerDiscreteScheduler;
pub use pndm::PndmScheduler;

use crate::{Error, Result};

/// The schedulers that are built here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchedulerKind {
    /// Pseudo numerical methods (PLMS, after Runge-Kutta steps unless `skip_prk_steps`).
    Pndm,
    /// Denoising diffusion implicit models, with eta 0.
    Ddim,
    /// Euler's method over sigmas, without churn.
    Euler,
}

impl SchedulerKind {
    /// Every kind, in the order in which a page offers them.
    pub const ALL: [Self; 3] = [Self::Pndm, Self::Ddim, Self::Euler];

    /// The short name, as a page and the command line spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pndm => "pndm",
            Self::Ddim => "ddim",
            Self::Euler => "euler",
        }
    }

    /// The class in diffusers, as `_class_name` spells it.
    #[must_use]
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Pndm => "PNDMScheduler",
            Self::Ddim => "DDIMScheduler",
            Self::Euler => "EulerDiscreteScheduler",
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SchedulerKind {
    type Err = Error;

    /// Reads the short name or diffusers' class name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| name == kind.as_str() || name == kind.class_name())
            .ok_or_else(|| Error::invalid("scheduler", "must be pndm, ddim or euler"))
    }
}

/// One run along a noise schedule. The run's state (PLMS keeps past model outputs) lives inside.
///
/// For each index `i` of [`timesteps`](Self::timesteps): scale a copy of the sample, ask the model, then step.
pub trait Scheduler: fmt::Debug {
    /// The timestep of each model call, falling. One entry per call, so PLMS has its second entry twice.
    ///
    /// `f32` because Euler's can be fractional; rounding them to half floats first would move them.
    fn timesteps(&self) -> &[f32];

    /// What the first, standard normal sample is multiplied by.
    fn init_noise_sigma(&self) -> f32;

    /// Scales `sample` in place to what the model expects at this step.
    /// An index past the last call leaves it as it is; [`step`](Self::step) refuses such an index.
    fn scale_model_input(&self, sample: &mut [f32], step_index: usize);

    /// The previous (less noisy) sample, from the model's output and the *unscaled* sample of this step.
    ///
    /// `noise_pred` is what the model gave (after guidance), whatever its prediction type. `step_index` counts model calls from 0;
    /// 0 starts a new run. The other indices follow in order where the method has a memory (PNDM).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the lengths differ, or the index is not one that can come now.
    fn step(&mut self, noise_pred: &[f32], step_index: usize, sample: &[f32]) -> Result<Vec<f32>>;
}

/// The scheduler of that kind, as diffusers' `from_config(config)` and `set_timesteps(num_inference_steps)` make it.
///
/// Keys of the config that the class does not know are ignored; keys that are missing have the class's own default.
///
/// # Errors
/// [`Error::InvalidArgument`] for a number of steps outside `1..=num_train_timesteps` (with Runge-Kutta steps: `4..`),
/// [`Error::Config`] for a config that asks the class for something that is not built here.
pub fn create(
    kind: SchedulerKind,
    config: &SchedulerConfig,
    num_inference_steps: usize,
) -> Result<Box<dyn Scheduler>> {
    Ok(match kind {
        SchedulerKind::Pndm => Box::new(PndmScheduler::new(config, num_inference_steps)?),
        SchedulerKind::Ddim => Box::new(DdimScheduler::new(config, num_inference_steps)?),
        SchedulerKind::Euler => Box::new(EulerDiscreteScheduler::new(config, num_inference_steps)?),
    })
}

/// What every scheduler asks of a step before it computes.
fn check_step(calls: usize, noise_pred: &[f32], step_index: usize, sample: &[f32]) -> Result<()> {
    if step_index >= calls {
        return Err(Error::invalid(
            "step_index",
            format!("must be below {calls}, the number of model calls, and is {step_index}"),
        ));
    }
    if noise_pred.len() != sample.len() {
        return Err(Error::invalid(
            "noise_pred",
            format!(
                "must have as many values as the sample ({}), and has {}",
                sample.len(),
                noise_pred.len()
            ),
        ));
    }
    Ok(())
}
