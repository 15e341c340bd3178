//! All stages of a model planned for one size: from the three configs to the memory they will take.

use super::{
    record::{record_text_encoder, record_unet},
    vae_plan::VaePlanner,
    vae_tiling::TileGrid,
};
use crate::{
    Error, Result,
    config::{ClipTextConfig, UNetConfig, VaeConfig},
    engine::plan::{Guidance, LowerOptions, MemoryPlan, Plan, StageMemory, VaeMethod},
    kernels::{Limits, Precision},
};

/// Longest side that is planned, px: far beyond what a picture may have, and little enough to count everything in.
const MAX_SIDE_PX: usize = 4096;
/// Most calls of the UNet that are planned; a schedule of 1000 steps has some more.
const MAX_CALLS: usize = 4096;

/// The configs of a model's networks.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfigs {
    /// `text_encoder/config.json`
    pub text_encoder: ClipTextConfig,
    /// `unet/config.json`
    pub unet: UNetConfig,
    /// `vae/config.json`
    pub vae: VaeConfig,
}

impl ModelConfigs {
    /// Side in pixels the model was trained for.
    #[must_use]
    pub fn default_size(&self) -> usize {
        self.unet.sample_size.unwrap_or(64) * self.vae.scale_factor()
    }
}

/// What is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanRequest {
    /// Picture width, px, a multiple of the VAE's scale factor.
    pub width: usize,
    /// Picture height, px, likewise.
    pub height: usize,
    /// How guidance runs.
    pub guidance: Guidance,
    /// How the networks are lowered; the VAE with float32 activations where its config has `force_upcast`.
    pub options: LowerOptions,
    /// What the GPU allows.
    pub limits: Limits,
    /// How the VAE decodes.
    pub vae: VaeMethod,
    /// Most bytes of GPU memory, where there is a limit: for the choice of how the VAE decodes.
    pub budget_bytes: Option<u64>,
}

/// The plans of all stages.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelPlan {
    /// Prompts to `encoder_hidden_states`.
    pub text_encoder: Plan,
    /// One prediction.
    pub unet: Plan,
    /// Latents to a picture, or one tile of it.
    pub vae_decoder: Plan,
    /// The tiles: one, but for blended decoding.
    pub vae_grid: TileGrid,
    /// The memory of all.
    pub memory: MemoryPlan,
}

impl ModelPlan {
    /// Plans a model.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a size that is no multiple of the scale factor, and for more than can be planned; [`Error::Config`] when the configs contradict
    /// each other; [`Error::Plan`] for a bug of the planner.
    pub fn new(configs: &ModelConfigs, request: &PlanRequest) -> Result<Self> {
        let PlanRequest {
            guidance,
            options,
            limits,
            ..
        } = request;
        let scale = configs.vae.scale_factor();
        for (name, side) in [("width", request.width), ("height", request.height)] {
            if side == 0 || side > MAX_SIDE_PX || !side.is_multiple_of(scale) {
                return Err(Error::invalid(
                    name,
                    format!(
                        "must be a multiple of {scale} from {scale} to {MAX_SIDE_PX}, and is {side}"
                    ),
                ));
            }
        }
        if let Some(calls) = options.hoist_schedule.filter(|&calls| calls > MAX_CALLS) {
            let rule = format!("must be at most {MAX_CALLS} calls of the UNet, and are {calls}");
            return Err(Error::invalid("steps", rule));
        }
        let (height, width) = (request.height / scale, request.width / scale);
        let tokens = configs.text_encoder.max_position_embeddings;
        let text = record_text_encoder(&configs.text_encoder, guidance.prompts())?;
        let unet = record_unet(&configs.unet, guidance.batch(), height, width, tokens)?;
        let text_encoder = Plan::new(text, options, 1, limits)?;
        let unet = Plan::new(unet, options, guidance.passes(), limits)?;
        let mut stages: Vec<StageMemory> = [&text_encoder, &unet]
            .map(|plan| StageMemory::new(plan, limits))
            .to_vec();
        let mut vae_options = *options;
        if configs.vae.force_upcast {
            vae_options.activations = Precision::F32;
        }
        let planner = VaePlanner {
            config: &configs.vae,
            size: [height, width],
            options: &vae_options,
            limits,
        };
        let allowed = match request.budget_bytes {
            Some(budget) => {
                let others: u64 = stages.iter().map(|stage| stage.weights_bytes).sum();
                let all = others + planner.weights_bytes()?;
                let peaks = stages
                    .iter()
                    .map(|stage| all + stage.peak_bytes - stage.weights_bytes);
                // beside the weights of the other stages, where those can stay; or alone
                let beside = budget.checked_sub(others);
                let beside = beside.filter(|_| peaks.max().is_none_or(|peak| peak <= budget));
                beside.into_iter().chain([budget]).collect()
            }
            None => Vec::new(),
        };
        let vae = planner.choose(request.vae, &allowed)?;
        stages.push(vae.memory);
        let memory = MemoryPlan::new(*guidance, options.activations, stages);
        Ok(Self {
            memory: memory.with_vae(vae.tiling),
            text_encoder,
            unet,
            vae_decoder: vae.plan,
            vae_grid: vae.grid,
        })
    }
}
