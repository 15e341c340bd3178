//! `scheduler_config.json`, with diffusers' defaults for the keys it lacks.

use serde_json::Value;

use super::SchedulerKind;
use super::keys::Keys;
use crate::{Error, Result};

/// The file, relative to the model's folder.
pub(super) const FILE: &str = "scheduler/scheduler_config.json";

// A damaged file must not make us allocate without bound; published models have 1000.
const MAX_TRAIN_TIMESTEPS: u64 = 100_000;

/// An enum whose variants are the values that a string key may have.
macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            const NAMES: &'static [(&'static str, Self)] = &[$(($text, Self::$variant),)+];
        }
    };
}

choice! {
    /// `beta_schedule`: how the betas run from `beta_start` to `beta_end`.
    BetaSchedule {
        /// Evenly.
        Linear = "linear",
        /// Evenly in their square roots (Stable Diffusion).
        ScaledLinear = "scaled_linear",
        /// From a cosine alpha-bar, each at most 0.999; start and end are not used.
        SquaredcosCapV2 = "squaredcos_cap_v2",
    }
}

choice! {
    /// `prediction_type`: what the model's output stands for.
    PredictionType {
        /// The noise.
        Epsilon = "epsilon",
        /// The velocity: `sqrt(alpha_bar) * noise - sqrt(1 - alpha_bar) * x0`.
        VPrediction = "v_prediction",
        /// The clean sample.
        Sample = "sample",
    }
}

choice! {
    /// `timestep_spacing`: which training timesteps a run visits (Table 2 of <https://arxiv.org/abs/2305.08891>).
    TimestepSpacing {
        /// Multiples of the stride, plus `steps_offset`.
        Leading = "leading",
        /// From the last timestep down in equal strides.
        Trailing = "trailing",
        /// Evenly from the last to the first, both included.
        Linspace = "linspace",
    }
}

choice! {
    /// `final_sigmas_type` of Euler: what follows the last sigma.
    FinalSigmasType {
        /// 0.
        Zero = "zero",
        /// The smallest sigma of training.
        SigmaMin = "sigma_min",
    }
}

choice! {
    /// `interpolation_type` of Euler: how sigmas are read off the training table.
    InterpolationType {
        /// Linearly at the timesteps.
        Linear = "linear",
        /// Evenly in their logarithms, whatever the timesteps.
        LogLinear = "log_linear",
    }
}

choice! {
    /// `timestep_type` of Euler: what the model is told.
    TimestepType {
        /// The training timestep.
        Discrete = "discrete",
        /// `0.25 ln(sigma)` for `v_prediction`; the training timestep otherwise.
        Continuous = "continuous",
    }
}

/// The keys of `scheduler_config.json` that the schedulers here read. `None` is a key whose default depends on the class.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerConfig {
    /// `_class_name` as the file spells it; empty when it does not say.
    pub class_name: String,
    /// `num_train_timesteps`, 1000 by default.
    pub(super) num_train_timesteps: usize,
    /// `beta_start`, 0.0001 by default.
    pub(super) beta_start: f64,
    /// `beta_end`, 0.02 by default.
    pub(super) beta_end: f64,
    /// `beta_schedule`, linear by default.
    pub(super) beta_schedule: BetaSchedule,
    /// `trained_betas`: the betas themselves, one per training timestep, instead of a schedule.
    pub(super) trained_betas: Option<Vec<f32>>,
    /// `prediction_type`, epsilon by default.
    pub(super) prediction_type: PredictionType,
    /// `timestep_spacing`: leading by default for PNDM and DDIM, linspace for Euler.
    pub(super) timestep_spacing: Option<TimestepSpacing>,
    /// `steps_offset`, 0 by default; `leading` only.
    pub(super) steps_offset: usize,
    /// `skip_prk_steps` of PNDM, false by default.
    pub(super) skip_prk_steps: bool,
    /// `set_alpha_to_one`: whether the alpha-bar after the last step is 1 or the first of training.
    /// False by default for PNDM, true for DDIM.
    pub(super) set_alpha_to_one: Option<bool>,
    /// `clip_sample` of DDIM, true by default. Latents are not to be clipped: see [`Self::for_stable_diffusion`].
    pub(super) clip_sample: bool,
    /// `clip_sample_range` of DDIM, 1 by default.
    pub(super) clip_sample_range: f32,
    /// `thresholding` of DDIM (for pixels, not for latents); not built here, so true is refused.
    pub(super) thresholding: bool,
    /// `rescale_betas_zero_snr` of DDIM and Euler, false by default.
    pub(super) rescale_betas_zero_snr: bool,
    /// `use_karras_sigmas` of Euler, false by default.
    pub(super) use_karras_sigmas: bool,
    /// `use_exponential_sigmas` of Euler, false by default.
    pub(super) use_exponential_sigmas: bool,
    /// `use_beta_sigmas` of Euler; not built here, so true is refused.
    pub(super) use_beta_sigmas: bool,
    /// `sigma_min` for Karras and exponential sigmas; the last sigma of the spacing when absent.
    pub(super) sigma_min: Option<f64>,
    /// `sigma_max` for Karras and exponential sigmas; the first sigma of the spacing when absent.
    pub(super) sigma_max: Option<f64>,
    /// `interpolation_type` of Euler, linear by default.
    pub(super) interpolation_type: InterpolationType,
    /// `timestep_type` of Euler, discrete by default.
    pub(super) timestep_type: TimestepType,
    /// `final_sigmas_type` of Euler, zero by default.
    pub(super) final_sigmas_type: FinalSigmasType,
}

impl SchedulerConfig {
    /// Reads the text of `scheduler_config.json`. Keys that no scheduler here knows are ignored.
    ///
    /// # Errors
    /// [`Error::Config`] that names the key: a value of the wrong type, out of range, or unknown;
    /// and what the file's own class would need but is not built here (see [`create`](super::create)).
    pub fn from_json(text: &str) -> Result<Self> {
        let root: Value = serde_json::from_str(text)
            .map_err(|error| Error::config(FILE, format!("is not JSON: {error}")))?;
        let Value::Object(map) = root else {
            return Err(Error::config(FILE, "must be a JSON object"));
        };
        let keys = Keys::new(&map);
        let num_train_timesteps =
            keys.integer("num_train_timesteps", 1000, 2, MAX_TRAIN_TIMESTEPS)?;
        let config = Self {
            class_name: keys.text("_class_name")?.unwrap_or_default().to_owned(),
            num_train_timesteps,
            beta_start: keys.beta("beta_start", 0.0001)?,
            beta_end: keys.beta("beta_end", 0.02)?,
            beta_schedule: keys
                .choice("beta_schedule", BetaSchedule::NAMES)?
                .unwrap_or(BetaSchedule::Linear),
            trained_betas: keys.betas("trained_betas", num_train_timesteps)?,
            prediction_type: keys
                .choice("prediction_type", PredictionType::NAMES)?
                .unwrap_or(PredictionType::Epsilon),
            timestep_spacing: keys.choice("timestep_spacing", TimestepSpacing::NAMES)?,
            steps_offset: keys.integer("steps_offset", 0, 0, MAX_TRAIN_TIMESTEPS)?,
            skip_prk_steps: keys.flag("skip_prk_steps")?.unwrap_or(false),
            set_alpha_to_one: keys.flag("set_alpha_to_one")?,
            clip_sample: keys.flag("clip_sample")?.unwrap_or(true),
            clip_sample_range: keys.positive("clip_sample_range")?.unwrap_or(1.0) as f32,
            thresholding: keys.flag("thresholding")?.unwrap_or(false),
            rescale_betas_zero_snr: keys.flag("rescale_betas_zero_snr")?.unwrap_or(false),
            use_karras_sigmas: keys.flag("use_karras_sigmas")?.unwrap_or(false),
            use_exponential_sigmas: keys.flag("use_exponential_sigmas")?.unwrap_or(false),
            use_beta_sigmas: keys.flag("use_beta_sigmas")?.unwrap_or(false),
            sigma_min: keys.positive("sigma_min")?,
            sigma_max: keys.positive("sigma_max")?,
            interpolation_type: keys
                .choice("interpolation_type", InterpolationType::NAMES)?
                .unwrap_or(InterpolationType::Linear),
            timestep_type: keys
                .choice("timestep_type", TimestepType::NAMES)?
                .unwrap_or(TimestepType::Discrete),
            final_sigmas_type: keys
                .choice("final_sigmas_type", FinalSigmasType::NAMES)?
                .unwrap_or(FinalSigmasType::Zero),
        };
        if let Ok(kind) = config.class_name.parse() {
            config.check(kind)?;
        }
        Ok(config)
    }

    /// The kind that the file asks for.
    ///
    /// # Errors
    /// [`Error::Config`] when `_class_name` is missing or names a class that is not built here.
    pub fn kind(&self) -> Result<SchedulerKind> {
        self.class_name.parse().map_err(|_| {
            Error::config(
                FILE,
                format!(
                    "_class_name is {:?}, which is not built here; choose pndm, ddim or euler",
                    self.class_name
                ),
            )
        })
    }

    /// The corrections that diffusers' `StableDiffusionPipeline` makes to old configs: `steps_offset` 1 and no `clip_sample`.
    #[must_use]
    pub fn for_stable_diffusion(mut self) -> Self {
        self.steps_offset = 1;
        self.clip_sample = false;
        self
    }

    /// Refuses what `kind` would need but is not built here.
    pub(super) fn check(&self, kind: SchedulerKind) -> Result<()> {
        let why = match kind {
            SchedulerKind::Pndm if self.prediction_type == PredictionType::Sample => {
                "prediction_type \"sample\" does not go with PNDMScheduler"
            }
            SchedulerKind::Ddim if self.thresholding => "thresholding is not supported",
            SchedulerKind::Ddim
                if self.rescale_betas_zero_snr
                    && self.prediction_type == PredictionType::Epsilon =>
            {
                "rescale_betas_zero_snr does not go with prediction_type \"epsilon\": at zero signal the noise says nothing about the picture"
            }
            SchedulerKind::Euler if self.use_beta_sigmas => "use_beta_sigmas is not supported",
            SchedulerKind::Euler if self.use_karras_sigmas && self.use_exponential_sigmas => {
                "only one of use_karras_sigmas and use_exponential_sigmas can be true"
            }
            _ => return Ok(()),
        };
        Err(Error::config(FILE, why))
    }

    /// Refuses numbers of steps that the training schedule has no room for.
    pub(super) fn check_steps(&self, steps: usize, fewest: usize) -> Result<()> {
        if (fewest..=self.num_train_timesteps).contains(&steps) {
            return Ok(());
        }
        Err(Error::invalid(
            "steps",
            format!(
                "must be a whole number from {fewest} to {}, and is {steps}",
                self.num_train_timesteps
            ),
        ))
    }
}
