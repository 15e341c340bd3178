//! The stages on an engine that computes as it is called.

use super::{
    folder::{Files, ModelFolder},
    stages::{Drawing, LoadStages, Stages},
};
use crate::{
    Error, Result,
    engine::{
        Eager, Shape,
        plan::{MemoryPlan, Residency},
    },
    models::{
        autoencoder_kl::AutoencoderKlDecoder,
        clip_text::ClipTextModel,
        names::Component,
        plan::ModelConfigs,
        unet_2d_condition::{UNet2DConditionModel, unet_sinusoid},
        weights::Weights,
    },
    observer::Observer,
};

/// Most memory that weights may take where addresses have 32 bits: the rest of the 4 GiB is for activations.
const MAX_WEIGHT_BYTES: Option<u64> = if cfg!(target_pointer_width = "32") {
    Some(3 << 30)
} else {
    None
};

/// The networks on an engine `E`.
pub struct EagerStages<E: Eager> {
    engine: E,
    text_encoder: ClipTextModel<E>,
    unet: UNet2DConditionModel<E>,
    vae: AutoencoderKlDecoder<E>,
    configs: ModelConfigs,
    weight_bytes: u64,
    picture: Option<Picture<E>>,
}

/// The picture that is being drawn.
struct Picture<E: Eager> {
    height: usize,
    width: usize,
    prompts: usize,
    timesteps: Vec<f32>,
    encoder_hidden_states: Option<E::Tensor>,
}

impl<E: Eager> EagerStages<E> {
    fn picture(&self) -> Result<&Picture<E>> {
        self.picture.as_ref().ok_or_else(out_of_order)
    }
}

fn out_of_order() -> Error {
    Error::invalid("stage", "must come after the ones before it")
}

impl<E: Eager> Stages for EagerStages<E> {
    fn engine(&self) -> &'static str {
        self.engine.name()
    }

    fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    fn tuning(&self) -> Option<String> {
        None
    }

    fn memory_plan(&self) -> Option<&MemoryPlan> {
        None
    }

    fn residency(&self) -> Option<Residency> {
        None
    }

    async fn prepare(
        &mut self,
        drawing: &Drawing<'_>,
        _observer: &mut impl Observer,
    ) -> Result<()> {
        self.picture = Some(Picture {
            height: drawing.height,
            width: drawing.width,
            prompts: drawing.prompts,
            timesteps: drawing.timesteps.to_vec(),
            encoder_hidden_states: None,
        });
        Ok(())
    }

    async fn encode(
        &mut self,
        input_ids: &[u32],
        _observer: &mut impl Observer,
    ) -> Result<Vec<f32>> {
        let ids = self.engine.ids(input_ids, self.picture()?.prompts);
        self.engine
            .read(self.text_encoder.forward(&self.engine, &ids))
            .await
    }

    async fn condition(
        &mut self,
        encoder_hidden_states: &[f32],
        _observer: &mut impl Observer,
    ) -> Result<()> {
        let channels = self.configs.unet.cross_attention_dim;
        let prompts = self.picture()?.prompts;
        let tokens = encoder_hidden_states.len() / prompts / channels;
        let hidden = self.engine.input(
            Shape::tokens(prompts, tokens, channels),
            encoder_hidden_states,
        );
        if let Some(picture) = &mut self.picture {
            picture.encoder_hidden_states = Some(hidden);
        }
        Ok(())
    }

    async fn predict(&mut self, step: usize, sample: &[f32]) -> Result<Vec<f32>> {
        let picture = self.picture()?;
        let hidden = picture.encoder_hidden_states.as_ref();
        let (Some(hidden), Some(&timestep)) = (hidden, picture.timesteps.get(step)) else {
            return Err(out_of_order());
        };
        let shape = Shape::image(
            picture.prompts,
            picture.height,
            picture.width,
            self.configs.unet.in_channels,
        );
        let sample = self.engine.input(shape, &sample.repeat(picture.prompts));
        let sinusoid = unet_sinusoid(&self.configs.unet, timestep);
        let sinusoid = self
            .engine
            .input(Shape::image(1, 1, 1, sinusoid.len()), &sinusoid);
        let prediction = self.unet.forward(&self.engine, &sample, &sinusoid, hidden);
        self.engine.read(prediction).await
    }

    async fn decode(&mut self, latents: &[f32], _observer: &mut impl Observer) -> Result<Vec<f32>> {
        let picture = self.picture()?;
        let channels = self.configs.vae.latent_channels;
        let shape = Shape::image(1, picture.height, picture.width, channels);
        let latents = self.engine.input(shape, latents);
        self.engine
            .read(self.vae.forward(&self.engine, &latents))
            .await
    }

    fn rest(&mut self) {
        self.picture = None;
    }
}

impl<E: Eager, F: ModelFolder> LoadStages<F> for E {
    type Stages = EagerStages<E>;

    async fn load(
        self,
        files: Files<F>,
        configs: &ModelConfigs,
        observer: &mut impl Observer,
    ) -> Result<EagerStages<E>> {
        let engine = self;
        let (text_weights, unet_weights, vae_weights) = (
            Weights::new(&engine),
            Weights::new(&engine),
            Weights::new(&engine),
        );
        let text_encoder = ClipTextModel::new(&text_weights, &configs.text_encoder);
        let unet = UNet2DConditionModel::new(&unet_weights, &configs.unet);
        let vae = AutoencoderKlDecoder::new(&vae_weights, &configs.vae);
        let weight_bytes = engine.weight_bytes(
            text_weights.elements() + unet_weights.elements() + vae_weights.elements(),
        );
        if let Some(budget_bytes) = MAX_WEIGHT_BYTES
            && weight_bytes > budget_bytes
        {
            return Err(Error::OutOfMemory {
                needed_bytes: weight_bytes,
                budget_bytes,
            });
        }
        let mut sum = files.progress(&Component::ALL).await?;
        for (component, weights) in
            Component::ALL
                .into_iter()
                .zip([text_weights, unet_weights, vae_weights])
        {
            let mut sink = weights.into_sink(component, component.weights_file());
            files
                .stream(component, &mut sink, &mut sum, observer)
                .await?;
        }
        Ok(EagerStages {
            engine,
            text_encoder,
            unet,
            vae,
            configs: configs.clone(),
            weight_bytes,
            picture: None,
        })
    }
}
