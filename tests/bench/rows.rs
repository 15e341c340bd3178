//! What is measured. Sizes are those of Stable Diffusion 1.5 on 32x32 and 64x64 latents; networks are the tiny model of the tests and the
//! bundled one.

use half::f16;
use latent_canvas::{
    Error, Result,
    config::{UNetConfig, VaeConfig},
    engine::{
        Shape,
        plan::{Graph, LowerOptions, Rate, lower, program::macs},
    },
    kernels::Precision,
    models::{embeddings::timestep_sinusoid, names::Component},
};

use crate::model::{record, record_loader};

/// Tokens of a prompt.
const TOKENS: usize = 77;
/// The timestep of every prediction.
pub const TIMESTEP: f32 = 981.0;

/// What a row computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// A 3x3 convolution with bias.
    Conv2d {
        /// Height and width.
        side: usize,
        /// In and out.
        channels: usize,
    },
    /// A matrix product with bias, `[rows, k]` by `[n, k]` transposed.
    Linear {
        /// Rows.
        rows: usize,
        /// Channels in.
        k: usize,
        /// Channels out.
        n: usize,
    },
    /// Attention of tokens on each other, without the projections around it.
    Attention {
        /// Queries and keys.
        tokens: usize,
        /// Heads.
        num_heads: usize,
        /// Channels of a head.
        head_dim: usize,
    },
    /// One prediction of a UNet.
    UNet {
        /// Predictions at once: two are one step with guidance.
        batch: usize,
        /// Height and width of the latents.
        side: usize,
    },
    /// The decoder of a VAE, latents to picture.
    Vae {
        /// Pictures at once.
        batch: usize,
        /// Height and width of the latents.
        side: usize,
    },
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name on a command line and in the names of files.
    pub name: &'static str,
    /// Its name in the table.
    pub title: &'static str,
    /// The work.
    pub task: Task,
    /// The network's folder, from the root of the repository: `config.json` and the weights. `None` for a single operation.
    pub folder: Option<&'static str>,
}

/// All rows.
pub const ROWS: [Row; 7] = [
    Row {
        name: "conv",
        title: "conv 3x3, 320 to 320, 32x32",
        task: Task::Conv2d {
            side: 32,
            channels: 320,
        },
        folder: None,
    },
    Row {
        name: "matmul",
        title: "matmul 1024x320x1280",
        task: Task::Linear {
            rows: 1024,
            k: 320,
            n: 1280,
        },
        folder: None,
    },
    Row {
        name: "attention-1024",
        title: "attention 8x40, 1024 tokens",
        task: Task::Attention {
            tokens: 1024,
            num_heads: 8,
            head_dim: 40,
        },
        folder: None,
    },
    Row {
        name: "attention-4096",
        title: "attention 8x40, 4096 tokens",
        task: Task::Attention {
            tokens: 4096,
            num_heads: 8,
            head_dim: 40,
        },
        folder: None,
    },
    Row {
        name: "tiny-unet",
        title: "tiny UNet, 32x32",
        task: Task::UNet { batch: 1, side: 32 },
        folder: Some("tests/golden/tiny-model/unet"),
    },
    Row {
        name: "emoji-step",
        title: "bundled model, step of two at 16x16",
        task: Task::UNet { batch: 2, side: 16 },
        folder: Some("www/models/emoji/unet"),
    },
    Row {
        name: "emoji-decode",
        title: "bundled model, decode 16x16",
        task: Task::Vae { batch: 1, side: 16 },
        folder: Some("www/models/emoji/vae"),
    },
];

/// The row of that name.
///
/// # Errors
/// [`Error::InvalidArgument`] when there is none.
pub fn row(name: &str) -> Result<Row> {
    let known = ROWS.map(|row| row.name).join(", ");
    ROWS.into_iter()
        .find(|row| row.name == name)
        .ok_or_else(|| unknown("row", name, &known))
}

pub(crate) fn unknown(what: &str, name: &str, known: &str) -> Error {
    Error::InvalidArgument {
        name: what.to_owned(),
        rule: format!("must be one of {known}, and is {name}"),
    }
}

impl Row {
    /// File of the weights in [`Self::folder`].
    pub const WEIGHTS_FILE: &'static str = "diffusion_pytorch_model.safetensors";

    /// What is needed to run it: `config` is the text of the network's `config.json`, empty for a single operation.
    ///
    /// # Errors
    /// [`Error::Config`] for a config that cannot be read.
    pub fn job(&self, config: &str) -> Result<Job> {
        let config = match self.task {
            Task::UNet { .. } => Config::UNet(UNetConfig::from_json(config)?),
            Task::Vae { .. } => Config::Vae(VaeConfig::from_json(config)?),
            _ => Config::None,
        };
        Ok(Job {
            row: *self,
            task: self.task,
            config,
        })
    }

    /// The weights of a single operation as a safetensors file; empty where there are none.
    #[must_use]
    pub fn made_weights(&self) -> Vec<u8> {
        match self.task {
            Task::Conv2d { channels, .. } => {
                weights_file(&[channels, channels, 3, 3], 9 * channels)
            }
            Task::Linear { k, n, .. } => weights_file(&[n, k], k),
            _ => Vec::new(),
        }
    }
}

/// The network's config.
#[derive(Debug, Clone)]
pub enum Config {
    /// A single operation has none.
    None,
    /// Of a UNet.
    UNet(UNetConfig),
    /// Of a VAE.
    Vae(VaeConfig),
}

/// A row with its config. `task` is the row's, unless someone wants another batch or size.
#[derive(Debug, Clone)]
pub struct Job {
    /// The row.
    pub row: Row,
    /// The work.
    pub task: Task,
    /// The config.
    pub config: Config,
}

/// An input of the work, channels last.
#[derive(Debug, Clone)]
pub struct Input {
    /// diffusers' name.
    pub name: &'static str,
    /// Shape.
    pub shape: Shape,
    /// How often it changes while a picture is made.
    pub rate: Rate,
    /// Values.
    pub values: Vec<f32>,
}

impl Job {
    /// Which exceptions of naming the weights' file has.
    #[must_use]
    pub fn component(&self) -> Component {
        match self.task {
            Task::Vae { .. } => Component::Vae,
            _ => Component::UNet,
        }
    }

    /// The inputs, the same at every call.
    #[must_use]
    pub fn inputs(&self) -> Vec<Input> {
        let one = |name, shape, rate, seed| Input {
            name,
            shape,
            rate,
            values: values(shape.len(), seed),
        };
        match (self.task, &self.config) {
            (Task::UNet { batch, side }, Config::UNet(config)) => {
                let channels = config.levels[0].channels;
                let sinusoid = timestep_sinusoid(
                    TIMESTEP,
                    channels,
                    config.flip_sin_to_cos,
                    config.freq_shift,
                );
                let sample = Shape::image(batch, side, side, config.in_channels);
                let text = Shape::tokens(batch, TOKENS, config.cross_attention_dim);
                vec![
                    one("sample", sample, Rate::Step, 1),
                    Input {
                        name: "timestep_sinusoid",
                        shape: Shape::image(1, 1, 1, channels),
                        rate: Rate::Schedule,
                        values: sinusoid,
                    },
                    one("encoder_hidden_states", text, Rate::Image, 2),
                ]
            }
            (Task::Vae { batch, side }, Config::Vae(config)) => {
                let latents = Shape::image(batch, side, side, config.latent_channels);
                vec![one("latents", latents, Rate::Image, 1)]
            }
            (Task::Conv2d { side, channels }, _) => {
                let shape = Shape::image(1, side, side, channels);
                vec![one("input", shape, Rate::Step, 1)]
            }
            (Task::Linear { rows, k, .. }, _) => {
                vec![one("input", Shape::tokens(1, rows, k), Rate::Step, 1)]
            }
            (
                Task::Attention {
                    tokens,
                    num_heads,
                    head_dim,
                },
                _,
            ) => {
                let shape = Shape::tokens(1, tokens, num_heads * head_dim);
                ["query", "key", "value"]
                    .into_iter()
                    .zip(1..)
                    .map(|(name, seed)| one(name, shape, Rate::Step, seed))
                    .collect()
            }
            // `Row::job` reads the config that belongs to the task
            (Task::UNet { .. } | Task::Vae { .. }, _) => Vec::new(),
        }
    }

    /// The work as a recording, `batch` of the inputs cut into `passes`.
    ///
    /// # Errors
    /// [`Error::Config`] when sizes contradict each other.
    pub fn graph(&self, passes: usize) -> Result<Graph> {
        record(self, passes)
    }

    /// For a single operation, a small network through which its weights are uploaded: they pass through activations that are overwritten
    /// in each run, and an operation alone has none.
    ///
    /// # Errors
    /// As [`Self::graph`].
    pub fn loader_graph(&self) -> Result<Option<Graph>> {
        let task = match self.task {
            Task::Conv2d { channels, .. } => Task::Conv2d { side: 8, channels },
            Task::Linear { k, n, .. } => Task::Linear { rows: 16, k, n },
            _ => return Ok(None),
        };
        let small = Self {
            task,
            ..self.clone()
        };
        record_loader(&small).map(Some)
    }

    /// Multiply-adds of one call, everything in it counted.
    ///
    /// # Errors
    /// As [`Self::graph`].
    pub fn macs(&self) -> Result<u64> {
        let options = LowerOptions {
            hoist_text: false,
            ..LowerOptions::new(Precision::F32)
        };
        Ok(macs(&lower(&self.graph(1)?, &options)?.step))
    }
}

/// Values in [-1, 1) that are multiples of 2^-10, so that float16 holds them: the same for every engine.
fn values(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u64)
        .map(|i| {
            // splitmix64
            let mut z = (i + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 53) as f32 / 1024.0 - 1.0
        })
        .collect()
}

/// `weight` and `bias` in float16. Sums of `fan_in` products stay near 1.
fn weights_file(shape: &[usize], fan_in: usize) -> Vec<u8> {
    let scale = 0.5_f32.powi(fan_in.ilog2() as i32 / 2);
    let tensors = [("weight", shape), ("bias", &shape[..1])];
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for ((name, shape), seed) in tensors.into_iter().zip(100..) {
        let start = data.len();
        let scaled = values(shape.iter().product(), seed).into_iter();
        data.extend(scaled.flat_map(|value| f16::from_f32(value * scale).to_le_bytes()));
        let entry = serde_json::json!({ "dtype": "F16", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.to_owned(), entry);
    }
    let mut header = serde_json::Value::Object(header).to_string();
    // the data of a safetensors file begins at a multiple of eight
    header.extend(std::iter::repeat_n(
        ' ',
        header.len().next_multiple_of(8) - header.len(),
    ));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.extend(data);
    file
}
