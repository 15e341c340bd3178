//! What a recording is: the operations of a network in the order they were called, over values that have only a shape.

use crate::engine::{AttentionMask, Shape, WeightRole};

/// An activation of a [`Graph`], by index into [`Graph::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// A weight of a [`Graph`], by index into [`Graph::weights`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub usize);

/// How often a value changes while one picture is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Once a picture: the text.
    Image,
    /// Once a step, but known for all steps beforehand: the timesteps.
    Schedule,
    /// Once a step: the latents.
    Step,
}

impl Rate {
    /// The rate of what is computed from values of both rates.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        if self == other { self } else { Self::Step }
    }
}

/// One operation of the trait [`crate::engine::Engine`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// Inputs: ids. Weights: the table.
    Embedding,
    /// Inputs: x. Weights: the table.
    AddPositions,
    /// Inputs: x. Weights: the matrix, and a bias or none.
    Linear,
    /// Inputs: x. Weights: kernel and bias.
    Conv2d {
        /// 1 or 2.
        stride: usize,
        /// Zeros on every side.
        padding: usize,
    },
    /// Inputs: x. Weights: scale and shift.
    GroupNorm {
        /// Groups of channels.
        groups: usize,
        /// Added to the variance.
        eps: f64,
    },
    /// Inputs: x. Weights: scale and shift.
    LayerNorm {
        /// Added to the variance.
        eps: f64,
    },
    /// Inputs: queries, keys, values.
    Attention {
        /// Heads.
        num_heads: usize,
        /// Which keys a query sees.
        mask: AttentionMask,
    },
    /// Inputs: x.
    Silu,
    /// Inputs: x.
    QuickGelu,
    /// Inputs: x.
    Gelu,
    /// Inputs: x with twice the channels.
    Geglu,
    /// Inputs: both terms.
    Add,
    /// Inputs: x, and a row per picture or one for all.
    AddChannels,
    /// Inputs: both parts.
    ConcatChannels,
    /// Inputs: x.
    UpsampleNearest2d,
}

impl Op {
    /// Name for messages and reports, as in the trait.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::AddPositions => "add_positions",
            Self::Linear => "linear",
            Self::Conv2d { .. } => "conv2d",
            Self::GroupNorm { .. } => "group_norm",
            Self::LayerNorm { .. } => "layer_norm",
            Self::Attention { .. } => "attention",
            Self::Silu => "silu",
            Self::QuickGelu => "quick_gelu",
            Self::Gelu => "gelu",
            Self::Geglu => "geglu",
            Self::Add => "add",
            Self::AddChannels => "add_channels",
            Self::ConcatChannels => "concat_channels",
            Self::UpsampleNearest2d => "upsample_nearest2d",
        }
    }
}

/// One recorded operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// What it reads, in the order that [`Op`] tells.
    pub inputs: Vec<ValueId>,
    /// Its weights, in the order that [`Op`] tells.
    pub weights: Vec<WeightId>,
    /// What it writes.
    pub output: ValueId,
    /// Checkpoint name of the module: of its weights, or what the modules of its inputs have in common.
    pub module: String,
}

/// A value: an input or the output of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The shape it was made with; a token matrix and the image of the same values are one value.
    pub shape: Shape,
    /// Whether it holds token ids rather than activations.
    pub ids: bool,
    /// How often it changes.
    pub rate: Rate,
    /// The node that makes it; none for an input.
    pub producer: Option<usize>,
}

/// A named input of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedValue {
    /// diffusers' name: `sample`, `timestep_sinusoid`, `encoder_hidden_states`, `input_ids`, `latents`.
    pub name: &'static str,
    /// The value.
    pub value: ValueId,
}

/// A declared weight, in the checkpoint's own shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightInfo {
    /// The module's name for it.
    pub name: String,
    /// What reads it.
    pub role: WeightRole,
    /// Shape in the checkpoint.
    pub shape: Vec<usize>,
}

impl WeightInfo {
    /// Number of values.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&n| n as u64).product()
    }
}

/// A recorded network.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// `text_encoder`, `unet`, `vae_decoder`.
    pub name: &'static str,
    /// Inputs, in the order they were made.
    pub inputs: Vec<NamedValue>,
    /// Outputs.
    pub outputs: Vec<NamedValue>,
    /// All weights, in the order they were declared.
    pub weights: Vec<WeightInfo>,
    /// All values.
    pub values: Vec<Value>,
    /// All operations, in the order they were called.
    pub nodes: Vec<Node>,
}

impl Graph {
    /// A value by its id.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0]
    }

    /// Whether an id is an output of the network.
    #[must_use]
    pub fn is_output(&self, id: ValueId) -> bool {
        self.outputs.iter().any(|output| output.value == id)
    }

    /// Number of weight values: the network's parameters.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.weights.iter().map(WeightInfo::elements).sum()
    }

    /// The nodes that read each value.
    #[must_use]
    pub fn consumers(&self) -> Vec<Vec<usize>> {
        let mut consumers = vec![Vec::new(); self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for input in &node.inputs {
                consumers[input.0].push(index);
            }
        }
        consumers
    }
}
