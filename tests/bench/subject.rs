//! The engines that are compared, behind one face: made from a job and its weights, run as often as asked, the last result read.

#[cfg(feature = "burn-wgpu")]
mod burn;
#[cfg(feature = "plan")]
mod plan;

use latent_canvas::Result;

use crate::rows::{Job, unknown};

#[cfg(feature = "burn-wgpu")]
pub use self::burn::BurnSubject;
#[cfg(feature = "plan")]
pub use self::plan::{PlanSubject, STEPS, Settings, request};

/// An engine with a row's work, ready to run.
pub enum Subject {
    /// This crate's own.
    #[cfg(feature = "plan")]
    Plan(Box<PlanSubject>),
    /// burn's tensors on its wgpu backend.
    #[cfg(feature = "burn-wgpu")]
    Burn(Box<BurnSubject>),
}

impl Subject {
    /// Names of the engines that are compiled in.
    pub const NAMES: &[&str] = &[
        #[cfg(feature = "plan")]
        "plan",
        #[cfg(feature = "burn-wgpu")]
        "burn-wgpu",
    ];

    /// The engine `name` on a device of its own, with `weights`, a safetensors file, in its memory.
    ///
    /// # Errors
    /// [`latent_canvas::Error::InvalidArgument`] for an engine that is not compiled in; faults of the weights and of the GPU.
    pub async fn new(name: &str, job: &Job, weights: &[u8]) -> Result<Self> {
        match name {
            #[cfg(feature = "plan")]
            "plan" => {
                let gpu = request().await?;
                let subject = PlanSubject::new(&gpu, job, weights, &Settings::exact(&gpu)).await?;
                Ok(Self::Plan(Box::new(subject)))
            }
            #[cfg(feature = "burn-wgpu")]
            "burn-wgpu" => Ok(Self::Burn(Box::new(BurnSubject::new(job, weights).await?))),
            _ => {
                let known = Self::NAMES.join(", ");
                Err(unknown("engine", name, &known))
            }
        }
    }

    /// The adapter's name.
    #[must_use]
    pub fn adapter(&self) -> &str {
        match self {
            #[cfg(feature = "plan")]
            Self::Plan(subject) => subject.adapter(),
            #[cfg(feature = "burn-wgpu")]
            Self::Burn(subject) => subject.adapter(),
        }
    }

    /// Computes what is needed once a picture; nothing, for an engine that computes all of it at each call.
    ///
    /// # Errors
    /// Faults of the GPU.
    pub async fn begin(&mut self) -> Result<()> {
        match self {
            #[cfg(feature = "plan")]
            Self::Plan(subject) => subject.begin().await,
            #[cfg(feature = "burn-wgpu")]
            Self::Burn(_) => Ok(()),
        }
    }

    /// Does the work `times` times and reads the last result, channels last.
    ///
    /// # Errors
    /// Faults of the GPU.
    pub async fn run(&mut self, times: usize) -> Result<Vec<f32>> {
        match self {
            #[cfg(feature = "plan")]
            Self::Plan(subject) => subject.run(times).await,
            #[cfg(feature = "burn-wgpu")]
            Self::Burn(subject) => subject.run(times).await,
        }
    }

    /// The most bytes of GPU buffers that there were, where the engine tells.
    #[must_use]
    pub fn peak_bytes(&self) -> Option<u64> {
        match self {
            #[cfg(feature = "plan")]
            Self::Plan(subject) => Some(subject.peak_bytes()),
            #[cfg(feature = "burn-wgpu")]
            Self::Burn(_) => None,
        }
    }
}
