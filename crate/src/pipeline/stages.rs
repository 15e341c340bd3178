//! What the pipeline asks of an engine: the three networks of a model, one after another.
//!
//! Values go in and out as float32 on the CPU, channels last. They are small: a text, latents, one picture.

use crate::{
    Result,
    engine::plan::{MemoryPlan, Residency},
    models::plan::ModelConfigs,
    observer::Observer,
};

use super::folder::{Files, ModelFolder};

/// What is the same for all steps of one picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawing<'a> {
    /// Rows of the latents.
    pub height: usize,
    /// Columns of the latents.
    pub width: usize,
    /// Predictions a step: 2 with guidance, the negative prompt's first; 1 without.
    pub prompts: usize,
    /// The timestep of each model call.
    pub timesteps: &'a [f32],
}

/// A model's networks on an engine, with their weights. Calls come in the order of the methods; [`Self::predict`] once a step.
///
/// A stage may have to fetch its weights first, so it may be observed and cancelled.
#[allow(async_fn_in_trait)]
pub trait Stages {
    /// The engine's name for reports.
    fn engine(&self) -> &'static str;

    /// Bytes of all weights, as the engine keeps them.
    fn weight_bytes(&self) -> u64;

    /// What was measured on the GPU to choose by, to be kept for the next time: see [`crate::kernels::Tuning::text`].
    fn tuning(&self) -> Option<String>;

    /// The promise for the picture that was made ready last, where the engine plans.
    fn memory_plan(&self) -> Option<&MemoryPlan>;

    /// What is in GPU memory at the same time while that picture is drawn, where the engine plans.
    fn residency(&self) -> Option<Residency>;

    /// Makes ready for a picture.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotFit`] when it cannot be drawn within what there is; faults of the engine.
    async fn prepare(&mut self, drawing: &Drawing<'_>, observer: &mut impl Observer) -> Result<()>;

    /// Token ids of all prompts, one after another, to `encoder_hidden_states` `[prompts, tokens, cross_attention_dim]`.
    ///
    /// # Errors
    /// Faults of the engine; [`crate::Error::Cancelled`].
    async fn encode(&mut self, input_ids: &[u32], observer: &mut impl Observer)
    -> Result<Vec<f32>>;

    /// Gives the UNet what [`Self::encode`] brought, for all steps.
    ///
    /// # Errors
    /// As [`Self::encode`].
    async fn condition(
        &mut self,
        encoder_hidden_states: &[f32],
        observer: &mut impl Observer,
    ) -> Result<()>;

    /// `sample` `[height, width, in_channels]` to one prediction for each prompt, `[prompts, height, width, out_channels]`.
    ///
    /// # Errors
    /// Faults of the engine.
    async fn predict(&mut self, step: usize, sample: &[f32]) -> Result<Vec<f32>>;

    /// `latents` `[height, width, latent_channels]`, already divided by the scaling factor, to a picture in -1..1,
    /// `[height * f, width * f, 3]`.
    ///
    /// # Errors
    /// As [`Self::encode`].
    async fn decode(&mut self, latents: &[f32], observer: &mut impl Observer) -> Result<Vec<f32>>;

    /// Lets go of what is there for the picture alone, which is done or given up.
    fn rest(&mut self);
}

/// An engine that can load a model from an `F`.
#[allow(async_fn_in_trait)]
pub trait LoadStages<F: ModelFolder> {
    /// The loaded networks.
    type Stages: Stages;

    /// Loads the networks that `configs` describe.
    ///
    /// # Errors
    /// [`crate::Error::Load`] names the file; [`crate::Error::OutOfMemory`] or [`crate::Error::DoesNotFit`] before any weight is fetched
    /// when the model is too large; [`crate::Error::Cancelled`].
    async fn load(
        self,
        files: Files<F>,
        configs: &ModelConfigs,
        observer: &mut impl Observer,
    ) -> Result<Self::Stages>;
}
