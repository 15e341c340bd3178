//! `StableDiffusionPipeline`: prompt to picture. The only denoising loop of the project.

#[cfg(feature = "plan")]
mod ahead;
mod eager;
pub mod folder;
mod load;
#[cfg(feature = "plan")]
mod planned;
pub mod stages;

#[cfg(feature = "plan")]
pub use ahead::{MemoryAhead, PictureWishes, plan_ahead};
pub use eager::EagerStages;
pub use load::load;
#[cfg(feature = "plan")]
pub use planned::{PlanEngine, PlanStages};

use std::rc::Rc;

use crate::{
    Error, Result,
    engine::check_finite,
    image::Image,
    models::plan::ModelConfigs,
    observer::{Event, Observer, checkpoint},
    rng::TorchCpuGenerator,
    schedulers::{self, SchedulerConfig, SchedulerKind},
    tokenizer::{ClipTokenizer, Encoding},
};
use stages::{Drawing, Stages};

/// Longest side of a picture: the models of this family draw nothing sensible beyond it. What fits is for the engine to say.
pub const MAX_SIDE_PX: usize = 1024;

/// Largest number of steps: the schedules have 1000 training timesteps.
pub const MAX_STEPS: usize = 1000;

/// Largest weight of the prompt. Pictures burn out at a few dozen already; numbers near the end of float32 would overflow within the
/// decoder's norms and come out as an even grey that looks like a picture.
pub const MAX_GUIDANCE_SCALE: f32 = 1000.0;

/// diffusers' default of the guidance scale.
const GUIDANCE_SCALE: f32 = 7.5;

/// A loaded model on an engine.
pub struct StableDiffusionPipeline<S: Stages> {
    stages: S,
    name: String,
    tokenizer: Rc<ClipTokenizer>,
    configs: ModelConfigs,
    scheduler_config: SchedulerConfig,
    guidance_scale: f32,
}

/// What to draw. Field names are diffusers'.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// What the picture shows; must not be blank.
    pub prompt: String,
    /// What it does not show; may be empty.
    pub negative_prompt: String,
    /// Seed of torch's CPU generator: the same seed gives diffusers' picture.
    pub seed: u32,
    /// Denoising steps, 1..=1000.
    pub num_inference_steps: usize,
    /// Weight of the prompt; 1 and less leave guidance out; at most [`MAX_GUIDANCE_SCALE`].
    pub guidance_scale: f32,
    /// Width in pixels, a multiple of [`StableDiffusionPipeline::size_multiple`].
    pub width: usize,
    /// Height in pixels, a multiple of [`StableDiffusionPipeline::size_multiple`].
    pub height: usize,
    /// The sampler; the model's own where none is given.
    pub scheduler: Option<SchedulerKind>,
}

/// A picture and what it was made from.
#[derive(Debug, Clone)]
pub struct Generated {
    /// The picture.
    pub image: Image,
    /// The prompt's tokens, and what was cut off.
    pub prompt_encoding: Encoding,
    /// The last latents, `[channels, height / f, width / f]`.
    pub latents: Vec<f32>,
    /// The picture's settings as text, as in the PNG.
    pub parameters: String,
}

impl<S: Stages> StableDiffusionPipeline<S> {
    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The networks on their engine.
    pub fn stages(&self) -> &S {
        &self.stages
    }

    /// The networks, to be asked for more than a picture.
    pub fn stages_mut(&mut self) -> &mut S {
        &mut self.stages
    }

    /// Pixels of which width and height are multiples.
    pub fn size_multiple(&self) -> usize {
        self.configs.vae.scale_factor()
    }

    /// Side in pixels the model was trained for.
    pub fn default_size(&self) -> usize {
        self.configs.default_size()
    }

    /// The guidance scale that suits the model.
    pub fn default_guidance_scale(&self) -> f32 {
        self.guidance_scale
    }

    /// The sampler the model asks for, where this program has it.
    pub fn default_scheduler(&self) -> Option<SchedulerKind> {
        self.scheduler_config.kind().ok()
    }

    /// The tokenizer, for the page's counter: it counts while a picture is drawn.
    pub fn tokenizer(&self) -> &Rc<ClipTokenizer> {
        &self.tokenizer
    }

    fn validate(&self, options: &GenerateOptions) -> Result<SchedulerKind> {
        if options.prompt.trim().is_empty() {
            return Err(Error::invalid(
                "prompt",
                "must not be empty: type what the picture should show",
            ));
        }
        if !(1..=MAX_STEPS).contains(&options.num_inference_steps) {
            return Err(Error::invalid(
                "steps",
                format!(
                    "must be a whole number from 1 to {MAX_STEPS}, and is {}",
                    options.num_inference_steps
                ),
            ));
        }
        if !(0.0..=MAX_GUIDANCE_SCALE).contains(&options.guidance_scale) {
            return Err(Error::invalid(
                "guidance-scale",
                format!(
                    "must be a number from 0 to {MAX_GUIDANCE_SCALE}, and is {}",
                    options.guidance_scale
                ),
            ));
        }
        let multiple = self.size_multiple();
        for (name, side) in [("width", options.width), ("height", options.height)] {
            if side == 0 || side % multiple != 0 || side > MAX_SIDE_PX {
                return Err(Error::invalid(
                    name,
                    format!(
                        "must be a multiple of {multiple} from {multiple} to {MAX_SIDE_PX}, and is {side}"
                    ),
                ));
            }
        }
        match options.scheduler {
            Some(kind) => Ok(kind),
            None => self.scheduler_config.kind(),
        }
    }

    /// Draws one picture.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] names the setting and its rule; [`Error::DoesNotFit`] when the engine cannot draw at this size;
    /// [`Error::Cancelled`] within one step of a cancel; [`Error::NotFinite`] instead of a black picture; [`Error::DeviceLost`] when
    /// the GPU went away.
    pub async fn generate(
        &mut self,
        options: &GenerateOptions,
        observer: &mut impl Observer,
    ) -> Result<Generated> {
        let generated = self.draw(options, observer).await;
        self.stages.rest();
        generated
    }

    async fn draw(
        &mut self,
        options: &GenerateOptions,
        observer: &mut impl Observer,
    ) -> Result<Generated> {
        let kind = self.validate(options)?;
        let mut scheduler =
            schedulers::create(kind, &self.scheduler_config, options.num_inference_steps)?;
        let guided = options.guidance_scale > 1.0;
        let timesteps = scheduler.timesteps().to_vec();
        let factor = self.size_multiple();
        let drawing = Drawing {
            height: options.height / factor,
            width: options.width / factor,
            prompts: if guided { 2 } else { 1 },
            timesteps: &timesteps,
        };
        self.stages.prepare(&drawing, observer).await?;

        checkpoint(observer, Event::Encode).await?;
        let prompt_encoding = self.tokenizer.encode(&options.prompt);
        let mut input_ids = Vec::new();
        if guided {
            input_ids.extend(self.tokenizer.encode(&options.negative_prompt).input_ids);
        }
        input_ids.extend_from_slice(&prompt_encoding.input_ids);
        let encoder_hidden_states = self.stages.encode(&input_ids, observer).await?;
        check_finite("text_encoder", &encoder_hidden_states)?;
        self.stages
            .condition(&encoder_hidden_states, observer)
            .await?;

        let channels = self.configs.unet.in_channels;
        let mut latents = TorchCpuGenerator::new(u64::from(options.seed))
            .randn(channels * drawing.height * drawing.width);
        let init_noise_sigma = scheduler.init_noise_sigma();
        latents
            .iter_mut()
            .for_each(|value| *value *= init_noise_sigma);
        let steps = timesteps.len();
        let started = Event::Denoise {
            step: 0,
            steps,
            latents: &latents,
        };
        checkpoint(observer, started).await?;
        for step in 0..steps {
            let mut scaled = latents.clone();
            scheduler.scale_model_input(&mut scaled, step);
            let sample = to_channels_last(&scaled, channels);
            let prediction = self.stages.predict(step, &sample).await?;
            check_finite("unet", &prediction)?;
            let noise_pred = guide(
                &to_channels_first(&prediction, channels, drawing.prompts),
                options.guidance_scale,
                guided,
            );
            latents = scheduler.step(&noise_pred, step, &latents)?;
            let done = Event::Denoise {
                step: step + 1,
                steps,
                latents: &latents,
            };
            checkpoint(observer, done).await?;
        }

        checkpoint(observer, Event::Decode).await?;
        let vae = &self.configs.vae;
        let (scale, shift) = (vae.scaling_factor as f32, vae.shift_factor as f32);
        let unscaled: Vec<f32> = to_channels_last(&latents, vae.latent_channels)
            .iter()
            .map(|value| value / scale + shift)
            .collect();
        let picture = self.stages.decode(&unscaled, observer).await?;
        let image = Image::from_decoder(options.width, options.height, &picture)?;
        let parameters = self.parameters(options, kind);
        Ok(Generated {
            image,
            prompt_encoding,
            latents,
            parameters,
        })
    }

    /// The settings in the layout of AUTOMATIC1111's `parameters`.
    fn parameters(&self, options: &GenerateOptions, kind: SchedulerKind) -> String {
        let negative = if options.negative_prompt.is_empty() {
            String::new()
        } else {
            format!("\nNegative prompt: {}", options.negative_prompt)
        };
        format!(
            "{}{negative}\nSteps: {}, Sampler: {}, CFG scale: {}, Seed: {}, Size: {}x{}, Model: {}, RNG: CPU, Version: latent-canvas {}",
            options.prompt,
            options.num_inference_steps,
            kind.as_str(),
            options.guidance_scale,
            options.seed,
            options.width,
            options.height,
            quoted(&self.name),
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// A value with a comma, colon or newline is quoted as JSON, as readers of these texts expect.
fn quoted(value: &str) -> String {
    if value.contains([',', ':', '\n', '"']) {
        serde_json::Value::from(value).to_string()
    } else {
        value.to_owned()
    }
}

/// `uncond + g (cond - uncond)` where there are two halves.
fn guide(prediction: &[f32], guidance_scale: f32, guided: bool) -> Vec<f32> {
    if !guided {
        return prediction.to_vec();
    }
    let (uncond, cond) = prediction.split_at(prediction.len() / 2);
    uncond
        .iter()
        .zip(cond)
        .map(|(uncond, cond)| uncond + guidance_scale * (cond - uncond))
        .collect()
}

/// `[channels, positions]` to `[positions, channels]`.
fn to_channels_last(values: &[f32], channels: usize) -> Vec<f32> {
    transpose(values, channels, values.len() / channels)
}

/// `[batch, positions, channels]` to `[batch, channels, positions]`.
fn to_channels_first(values: &[f32], channels: usize, batch: usize) -> Vec<f32> {
    let each = values.len() / batch;
    values
        .chunks_exact(each)
        .flat_map(|picture| transpose(picture, each / channels, channels))
        .collect()
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| values[row * columns + column]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_each_others_inverse() {
        let first: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let last = to_channels_last(&first, 4);
        assert_eq!(last[..5], [0.0, 6.0, 12.0, 18.0, 1.0]);
        assert_eq!(to_channels_first(&last, 4, 1), first);
        let two = [last.clone(), last].concat();
        assert_eq!(
            to_channels_first(&two, 4, 2),
            [first.clone(), first].concat()
        );
    }

    #[test]
    fn guidance_moves_away_from_the_unconditional_half() {
        assert_eq!(guide(&[1.0, 2.0, 3.0, 5.0], 2.0, true), [5.0, 8.0]);
        assert_eq!(guide(&[1.0, 2.0], 1.0, false), [1.0, 2.0]);
    }
}
