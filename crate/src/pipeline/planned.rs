//! The stages on the plan engine: each is a network in GPU memory that was planned for the picture before it was drawn.
//!
//! Weights stay between pictures where all of them fit; else a stage's weights go before the next stage's come, and come again with the
//! next picture. Activations are there for their stage only.

use std::sync::Arc;

use weights_loader::ProgressSum;

use super::{
    folder::{Files, ModelFolder},
    stages::{Drawing, LoadStages, Stages},
};
use crate::{
    Error, Result,
    engine::plan::{
        CallRow, Gpu, MemoryPlan, Network, NetworkWeights, Part, Plan, ReplayOptions, Residency,
    },
    models::{
        choose::{PlanSubject, PlanWishes, choose_plan},
        names::Component,
        network_sink::NetworkSink,
        plan::{ModelConfigs, ModelPlan},
        unet_2d_condition::unet_sinusoid,
        vae_tiling::Blend,
    },
    observer::{Event, Observer, checkpoint},
};

/// Most time that the tiles of one network are measured for, in milliseconds; the class that is begun is finished.
const AUTOTUNE_MS: f64 = 1500.0;

/// The plan engine on a GPU.
#[derive(Debug, Clone)]
pub struct PlanEngine {
    gpu: Arc<Gpu>,
    wishes: PlanWishes,
    is_tuned: bool,
}

impl PlanEngine {
    /// The engine on `gpu`, which plans as `wishes` ask.
    #[must_use]
    pub fn new(gpu: Arc<Gpu>, wishes: PlanWishes) -> Self {
        Self {
            gpu,
            wishes,
            is_tuned: false,
        }
    }

    /// Takes the tiles that were measured on this GPU at an earlier time, as [`crate::kernels::Tuning::text`] wrote them; a text of another release is
    /// left alone, and they are measured anew.
    #[must_use]
    pub fn tuned(mut self, text: &str) -> Self {
        if let Some(tuning) = self.gpu.tuning().read(text).filter(|_| !text.is_empty()) {
            self.gpu.set_tuning(tuning);
            self.is_tuned = true;
        }
        self
    }
}

/// A model's networks on a GPU, with their weights or with the way to them.
#[derive(Debug)]
pub struct PlanStages<F> {
    gpu: Arc<Gpu>,
    wishes: PlanWishes,
    files: Files<F>,
    configs: ModelConfigs,
    weights: [Option<Arc<NetworkWeights>>; 3],
    weight_bytes: u64,
    /// Networks whose tiles are still to be measured.
    untuned: Vec<Component>,
    picture: Option<Picture>,
}

/// The picture that is being drawn, or was drawn last.
#[derive(Debug)]
struct Picture {
    height: usize,
    width: usize,
    prompts: usize,
    timesteps: Vec<f32>,
    plan: ModelPlan,
    residency: Residency,
    unet: Option<Network>,
}

impl Picture {
    fn is(&self, drawing: &Drawing<'_>) -> bool {
        let size = (self.height, self.width, self.prompts);
        size == (drawing.height, drawing.width, drawing.prompts)
            && self.timesteps.len() == drawing.timesteps.len()
    }

    fn plan(&self, component: Component) -> &Plan {
        match component {
            Component::TextEncoder => &self.plan.text_encoder,
            Component::UNet => &self.plan.unet,
            Component::Vae => &self.plan.vae_decoder,
        }
    }
}

fn out_of_order() -> Error {
    Error::invalid("stage", "must come after the ones before it")
}

impl<F: ModelFolder> PlanStages<F> {
    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Every kernel call of the picture that was drawn last, with its time where the adapter can tell: the prologue of the first pass, and
    /// one step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] before the first picture; faults of the GPU.
    pub async fn time_calls(&mut self, observer: &mut impl Observer) -> Result<Vec<CallRow>> {
        self.picture()?.unet = None;
        let mut rows = Vec::new();
        for component in Component::ALL {
            let mut network = self.network(component, observer).await?;
            for part in Part::ALL {
                rows.extend(network.time_calls(part, 0, 0).await?);
            }
        }
        Ok(rows)
    }

    fn picture(&mut self) -> Result<&mut Picture> {
        self.picture.as_mut().ok_or_else(out_of_order)
    }

    /// Plans a picture, or takes the last plan again where it is the same.
    fn plan(&mut self, drawing: &Drawing<'_>) -> Result<()> {
        if let Some(picture) = &mut self.picture
            && picture.is(drawing)
        {
            picture.unet = None;
            drawing.timesteps.clone_into(&mut picture.timesteps);
            return Ok(());
        }
        self.picture = None;
        let factor = self.configs.vae.scale_factor();
        let subject = PlanSubject {
            width: drawing.width * factor,
            height: drawing.height * factor,
            guided: drawing.prompts > 1,
            steps: drawing.timesteps.len(),
        };
        let limits = self.gpu.limits();
        let (plan, verdict) = choose_plan(&self.configs, &subject, &self.wishes, limits)?;
        let Some(residency) = verdict.residency else {
            return Err(Error::DoesNotFit {
                reason: verdict.reason,
                remedy: verdict.remedy,
            });
        };
        self.weight_bytes = plan
            .memory
            .stages
            .iter()
            .map(|stage| stage.weights_bytes)
            .sum();
        self.picture = Some(Picture {
            height: drawing.height,
            width: drawing.width,
            prompts: drawing.prompts,
            timesteps: drawing.timesteps.to_vec(),
            plan,
            residency,
            unet: None,
        });
        Ok(())
    }

    /// A stage's network with its weights, which are fetched where they are not there.
    async fn network(
        &mut self,
        component: Component,
        observer: &mut impl Observer,
    ) -> Result<Network> {
        if self.picture()?.residency == Residency::StageByStage {
            for (weights, other) in self.weights.iter_mut().zip(Component::ALL) {
                if other != component {
                    *weights = None;
                }
            }
        }
        if let Some(weights) = self.weights[component as usize].clone() {
            return self.network_over(component, weights).await;
        }
        let mut sum = self.files.progress(&[component]).await?;
        self.fetch(component, &mut sum, observer).await
    }

    /// A stage's network over weights that are there.
    async fn network_over(
        &mut self,
        component: Component,
        weights: Arc<NetworkWeights>,
    ) -> Result<Network> {
        let plan = self.picture()?.plan(component).clone();
        let options = ReplayOptions::new(&self.gpu);
        Network::with_weights(&self.gpu, plan, weights, options).await
    }

    /// A stage's network with weights that are fetched for it.
    async fn fetch(
        &mut self,
        component: Component,
        sum: &mut ProgressSum,
        observer: &mut impl Observer,
    ) -> Result<Network> {
        let plan = self.picture()?.plan(component).clone();
        let options = ReplayOptions::new(&self.gpu);
        let mut network = Network::new(&self.gpu, plan, options).await?;
        let mut sink = NetworkSink::new(&mut network, component, component.weights_file());
        self.files
            .stream(component, &mut sink, sum, observer)
            .await?;
        let weights = network.weights();
        self.weights[component as usize] = Some(Arc::clone(&weights));
        if !self.untuned.contains(&component) {
            return Ok(network);
        }
        self.untuned.retain(|&untuned| untuned != component);
        let (tuning, _) = network.autotune(self.gpu.tuning(), AUTOTUNE_MS).await?;
        self.gpu.set_tuning(tuning);
        self.network_over(component, weights).await
    }
}

impl<F: ModelFolder> Stages for PlanStages<F> {
    fn engine(&self) -> &'static str {
        "plan"
    }

    fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    fn tuning(&self) -> Option<String> {
        Some(self.gpu.tuning().text()).filter(|text| !text.is_empty())
    }

    fn memory_plan(&self) -> Option<&MemoryPlan> {
        self.picture.as_ref().map(|picture| &picture.plan.memory)
    }

    fn residency(&self) -> Option<Residency> {
        self.picture.as_ref().map(|picture| picture.residency)
    }

    async fn prepare(&mut self, drawing: &Drawing<'_>, observer: &mut impl Observer) -> Result<()> {
        checkpoint(observer, Event::Prepare).await?;
        self.plan(drawing)
    }

    async fn encode(
        &mut self,
        input_ids: &[u32],
        observer: &mut impl Observer,
    ) -> Result<Vec<f32>> {
        let mut network = self.network(Component::TextEncoder, observer).await?;
        network.write_ids("input_ids", input_ids)?;
        network.run_step(0, 0).await?;
        network.read_output("encoder_hidden_states").await
    }

    async fn condition(
        &mut self,
        encoder_hidden_states: &[f32],
        observer: &mut impl Observer,
    ) -> Result<()> {
        let mut network = self.network(Component::UNet, observer).await?;
        let config = &self.configs.unet;
        let picture = self.picture.as_mut().ok_or_else(out_of_order)?;
        let sinusoids = picture.timesteps.iter();
        let sinusoids: Vec<f32> = sinusoids
            .flat_map(|&timestep| unet_sinusoid(config, timestep))
            .collect();
        network.write_input("timestep_sinusoid", 0, &sinusoids)?;
        network.run_schedule().await?;
        let passes = picture.plan.memory.guidance.passes();
        let each = encoder_hidden_states.len() / passes;
        for (pass, hidden) in encoder_hidden_states.chunks(each).enumerate() {
            network.write_input("encoder_hidden_states", pass, hidden)?;
            network.run_image(pass).await?;
        }
        picture.unet = Some(network);
        Ok(())
    }

    async fn predict(&mut self, step: usize, sample: &[f32]) -> Result<Vec<f32>> {
        let picture = self.picture()?;
        let guidance = picture.plan.memory.guidance;
        let network = picture.unet.as_mut().ok_or_else(out_of_order)?;
        network.write_input("sample", 0, &sample.repeat(guidance.batch()))?;
        for pass in 0..guidance.passes() {
            network.run_step(pass, step).await?;
        }
        network.read_output("noise_pred").await
    }

    async fn decode(&mut self, latents: &[f32], observer: &mut impl Observer) -> Result<Vec<f32>> {
        const COLOURS: usize = 3;
        let picture = self.picture()?;
        picture.unet = None;
        let grid = picture.plan.vae_grid.clone();
        let mut network = self.network(Component::Vae, observer).await?;
        let channels = self.configs.vae.latent_channels;
        let mut blend = Blend::new(grid.clone(), self.configs.vae.scale_factor(), COLOURS);
        let mut sample = Vec::new();
        for tile in 0..grid.len() {
            // between tiles a cancel can arrive
            checkpoint(observer, Event::Decode).await?;
            network.write_input("latents", 0, &grid.cut(tile, latents, channels)?)?;
            network.run_step(0, 0).await?;
            sample.extend(blend.add(tile, network.read_output("sample").await?)?);
        }
        Ok(sample)
    }

    fn rest(&mut self) {
        if let Some(picture) = &mut self.picture {
            picture.unet = None;
        }
    }
}

impl<F: ModelFolder> LoadStages<F> for PlanEngine {
    type Stages = PlanStages<F>;

    /// Plans for the model's own size with guidance. Where all stages fit together their weights are fetched now, else each with its stage.
    /// A model that is too large at its own size may be small enough at another: it is refused here where no size fits.
    async fn load(
        self,
        files: Files<F>,
        configs: &ModelConfigs,
        observer: &mut impl Observer,
    ) -> Result<PlanStages<F>> {
        let untuned = match self.wishes.autotune {
            Some(false) => Vec::new(),
            None if self.is_tuned || self.gpu.is_software() => Vec::new(),
            Some(true) | None => vec![Component::UNet, Component::Vae],
        };
        let mut stages = PlanStages {
            untuned,
            gpu: self.gpu,
            wishes: self.wishes,
            files,
            configs: configs.clone(),
            weights: [None, None, None],
            weight_bytes: 0,
            picture: None,
        };
        let own = configs.default_size() / configs.vae.scale_factor();
        let square = |side, prompts| Drawing {
            height: side,
            width: side,
            prompts,
            timesteps: &[0.0; 20],
        };
        if let Err(too_large) = stages.plan(&square(own, 2)) {
            stages.plan(&square(1, 1)).map_err(|_| too_large)?;
            stages.picture = None;
        }
        if stages
            .picture
            .as_ref()
            .is_some_and(|picture| picture.residency == Residency::AllStages)
        {
            let mut sum = stages.files.progress(&Component::ALL).await?;
            for component in Component::ALL {
                stages.fetch(component, &mut sum, observer).await?;
            }
        }
        Ok(stages)
    }
}
