//! The work of a row, written once over [`Engine`]: the networks of the crate, and single operations as networks of one layer.

use latent_canvas::{
    Error, Result,
    engine::{
        AttentionMask, Engine, Shape,
        plan::{Graph, Rate, Recorder},
    },
    models::{
        autoencoder_kl::AutoencoderKlDecoder,
        layers::{Conv2d, Linear},
        unet_2d_condition::UNet2DConditionModel,
        weights::Weights,
    },
};

use crate::rows::{Config, Job, Task};

/// The result's name.
pub const OUTPUT: &str = "output";

/// The work of a row on an engine.
pub enum Model<E: Engine> {
    /// A convolution.
    Conv2d(Conv2d<E>),
    /// A matrix product.
    Linear(Linear<E>),
    /// Attention.
    Attention {
        /// Heads.
        num_heads: usize,
    },
    /// A UNet.
    UNet(Box<UNet2DConditionModel<E>>),
    /// A decoder.
    Vae(Box<AutoencoderKlDecoder<E>>),
}

impl<E: Engine> Model<E> {
    /// Declares the weights.
    ///
    /// # Errors
    /// [`Error::Config`] when the config is not the task's.
    pub fn new(weights: &Weights<E>, job: &Job) -> Result<Self> {
        Ok(match (job.task, &job.config) {
            (Task::Conv2d { channels, .. }, _) => {
                Self::Conv2d(Conv2d::new(weights, channels, channels))
            }
            (Task::Linear { k, n, .. }, _) => Self::Linear(Linear::new(weights, k, n)),
            (Task::Attention { num_heads, .. }, _) => Self::Attention { num_heads },
            (Task::UNet { .. }, Config::UNet(config)) => {
                Self::UNet(Box::new(UNet2DConditionModel::new(weights, config)))
            }
            (Task::Vae { .. }, Config::Vae(config)) => {
                Self::Vae(Box::new(AutoencoderKlDecoder::new(weights, config)))
            }
            _ => {
                return Err(Error::Config {
                    file: job.row.name.to_owned(),
                    why: "it is not the config of this task".to_owned(),
                });
            }
        })
    }

    /// `inputs` in the order of [`Job::inputs`].
    pub fn forward(&self, engine: &E, inputs: &[E::Tensor]) -> E::Tensor {
        match self {
            Self::Conv2d(layer) => layer.forward(engine, &inputs[0]),
            Self::Linear(layer) => layer.forward(engine, &inputs[0]),
            Self::Attention { num_heads } => engine.attention(
                &inputs[0],
                &inputs[1],
                &inputs[2],
                *num_heads,
                AttentionMask::None,
            ),
            Self::UNet(model) => model.forward(engine, &inputs[0], &inputs[1], &inputs[2]),
            Self::Vae(model) => model.forward(engine, &inputs[0]),
        }
    }
}

/// Records the work. Inputs that belong to a picture are cut into `passes`, the schedule's are not.
pub(crate) fn record(job: &Job, passes: usize) -> Result<Graph> {
    let recorder = Recorder::new(job.row.name);
    let model = Model::new(&Weights::new(&recorder), job)?;
    let inputs: Vec<_> = job
        .inputs()
        .into_iter()
        .map(|input| {
            let batch = match input.rate {
                Rate::Schedule => input.shape.batch,
                _ => input.shape.batch / passes,
            };
            let shape = Shape {
                batch,
                ..input.shape
            };
            recorder.input(input.name, shape, input.rate)
        })
        .collect();
    let output = model.forward(&recorder, &inputs);
    recorder.finish(&[(OUTPUT, output)])
}

/// Records a single operation with another after it, so that its output is no output of the network.
pub(crate) fn record_loader(job: &Job) -> Result<Graph> {
    let recorder = Recorder::new(job.row.name);
    let model = Model::new(&Weights::new(&recorder), job)?;
    let inputs: Vec<_> = job
        .inputs()
        .into_iter()
        .map(|input| recorder.input(input.name, input.shape, input.rate))
        .collect();
    let output = recorder.silu(&model.forward(&recorder, &inputs));
    recorder.finish(&[(OUTPUT, output)])
}
