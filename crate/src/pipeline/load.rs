//! A diffusers folder to a [`StableDiffusionPipeline`].
//!
//! Order: the small text files, then the networks are built from their configs (which declares every weight and so gives the
//! memory they need), then the weights stream in, one file after another. Nothing large is fetched before the small files are understood.

use std::rc::Rc;

use super::{
    GUIDANCE_SCALE, StableDiffusionPipeline,
    folder::{Files, ModelFolder},
    stages::LoadStages,
};
use crate::{
    Error, Result,
    config::{ClipTextConfig, UNetConfig, VaeConfig, check_model_index},
    models::plan::ModelConfigs,
    observer::{Event, Observer, checkpoint},
    schedulers::SchedulerConfig,
};

/// Loads the model in `folder` onto `engine`: a [`crate::engine::Eager`] engine, or the plan engine's `PlanEngine`.
///
/// # Errors
/// [`Error::Config`] and [`Error::Load`] name the file and say what to do; [`Error::OutOfMemory`] or [`Error::DoesNotFit`] before any
/// weight is fetched when the weights cannot fit; [`Error::Cancelled`].
pub async fn load<F: ModelFolder, L: LoadStages<F>>(
    engine: L,
    folder: F,
    observer: &mut impl Observer,
) -> Result<StableDiffusionPipeline<L::Stages>> {
    let described = Description::read(folder).await?;
    let guidance_scale = described.guidance_scale();
    let Description {
        files,
        configs,
        scheduler_config,
    } = described;
    let tokenizer = files.tokenizer().await?;
    if tokenizer.model_max_length() > configs.text_encoder.max_position_embeddings {
        return Err(Error::config(
            "tokenizer/tokenizer_config.json",
            "model_max_length exceeds the text encoder's positions",
        ));
    }
    if tokenizer.largest_id() as usize >= configs.text_encoder.vocab_size {
        let why = format!(
            "its largest token id is {}, and the text encoder has {} embeddings (vocab_size)",
            tokenizer.largest_id(),
            configs.text_encoder.vocab_size
        );
        return Err(Error::config("tokenizer/vocab.json", why));
    }
    let name = files.name().to_owned();
    let stages = engine.load(files, &configs, observer).await?;
    checkpoint(observer, Event::Prepare).await?;
    Ok(StableDiffusionPipeline {
        stages,
        name,
        tokenizer: Rc::new(tokenizer),
        configs,
        scheduler_config,
        guidance_scale,
    })
}

/// What the small files of a model say of its networks, read and checked.
#[derive(Debug)]
pub(super) struct Description<F> {
    pub(super) files: Files<F>,
    pub(super) configs: ModelConfigs,
    pub(super) scheduler_config: SchedulerConfig,
}

impl<F: ModelFolder> Description<F> {
    pub(super) async fn read(folder: F) -> Result<Self> {
        let files = Files::open(folder).await?;
        check_model_index(&files.text("model_index.json").await?)?;
        let scheduler_config =
            SchedulerConfig::from_json(&files.text("scheduler/scheduler_config.json").await?)?
                .for_stable_diffusion();
        let text_encoder = files.text("text_encoder/config.json").await?;
        let configs = ModelConfigs {
            text_encoder: ClipTextConfig::from_json(&text_encoder)?,
            unet: UNetConfig::from_json(&files.text("unet/config.json").await?)?,
            vae: VaeConfig::from_json(&files.text("vae/config.json").await?)?,
        };
        check_compatible(&configs)?;
        Ok(Self {
            files,
            configs,
            scheduler_config,
        })
    }

    /// The guidance scale that suits the model.
    pub(super) fn guidance_scale(&self) -> f32 {
        self.files.guidance_scale().unwrap_or(GUIDANCE_SCALE)
    }
}

/// The three networks must fit each other.
fn check_compatible(configs: &ModelConfigs) -> Result<()> {
    let ModelConfigs {
        text_encoder: text,
        unet,
        vae,
    } = configs;
    if unet.cross_attention_dim != text.hidden_size {
        let why = format!(
            "cross_attention_dim is {}, and the text encoder's hidden_size is {}",
            unet.cross_attention_dim, text.hidden_size
        );
        return Err(Error::config("unet/config.json", why));
    }
    if unet.in_channels != vae.latent_channels || unet.out_channels != vae.latent_channels {
        let why = format!(
            "in_channels {} and out_channels {} must equal the VAE's {} latent channels; inpainting and image-to-image models are not supported",
            unet.in_channels, unet.out_channels, vae.latent_channels
        );
        return Err(Error::config("unet/config.json", why));
    }
    Ok(())
}
