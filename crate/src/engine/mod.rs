//! The operations a model is made of. A model is written once, generic over [`Engine`].
//!
//! An activation is channels-last: `[batch, height, width, channels]`. A sequence of tokens is an image of height 1,
//! `[batch, 1, tokens, channels]`, so an image becomes a token matrix with [`Engine::tokens`] and no transpose.

#[cfg(feature = "burn")]
pub mod burn;
#[cfg(feature = "burn-wgpu")]
pub mod burn_wgpu;
pub mod plan;

use weights_loader::TensorInfo;

use crate::{Error, Result};

/// `[batch, height, width, channels]` of an activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Pictures, or prompts.
    pub batch: usize,
    /// Rows; 1 for tokens.
    pub height: usize,
    /// Columns, or tokens.
    pub width: usize,
    /// Channels, contiguous.
    pub channels: usize,
}

impl Shape {
    /// The shape of an image.
    #[must_use]
    pub const fn image(batch: usize, height: usize, width: usize, channels: usize) -> Self {
        Self {
            batch,
            height,
            width,
            channels,
        }
    }

    /// The shape of a token matrix.
    #[must_use]
    pub const fn tokens(batch: usize, tokens: usize, channels: usize) -> Self {
        Self {
            batch,
            height: 1,
            width: tokens,
            channels,
        }
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.batch * self.height * self.width * self.channels
    }

    /// Whether there is no value at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which keys a query may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionMask {
    /// All of them.
    None,
    /// Those up to its own position: the text encoder.
    Causal,
}

/// What a weight is to the operation that reads it; an engine may store each role in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightRole {
    /// `[out, in]`, or `[out, in, 1, 1]`, used by [`Engine::linear`].
    Linear,
    /// `[out, in, kernel, kernel]`, used by [`Engine::conv2d`].
    Conv2d,
    /// `[channels]`: a bias, or a norm's scale or shift.
    Vector,
    /// `[rows, channels]`, used by [`Engine::embedding`].
    Embedding,
}

/// The operations of a model. Calls only order work; nothing waits.
///
/// Shapes are the caller's duty: a wrong one is a fault of the model code, not of a user's input.
pub trait Engine {
    /// A handle to an activation; a clone shares the values.
    type Tensor: Clone;
    /// A handle to token ids.
    type Ids: Clone;
    /// A handle to a weight that may not have arrived yet; a clone shares the weight.
    type Weight: Clone;

    /// Declares the weight `name` in the checkpoint's own shape. Its values come later.
    fn declare(&self, name: &str, role: WeightRole, shape: &[usize]) -> Self::Weight;

    /// The shape of an activation.
    fn shape(&self, x: &Self::Tensor) -> Shape;

    /// Rows of `table` for each id: `[batch, 1, tokens, channels]`.
    fn embedding(&self, table: &Self::Weight, ids: &Self::Ids) -> Self::Tensor;

    /// The first `tokens` rows of a table of positions, added to every picture of `x`.
    fn add_positions(&self, x: &Self::Tensor, table: &Self::Weight) -> Self::Tensor;

    /// `x W^T + b` over the channels.
    fn linear(
        &self,
        x: &Self::Tensor,
        weight: &Self::Weight,
        bias: Option<&Self::Weight>,
    ) -> Self::Tensor;

    /// Square convolution, `padding` zeros on every side.
    fn conv2d(
        &self,
        x: &Self::Tensor,
        weight: &Self::Weight,
        bias: &Self::Weight,
        stride: usize,
        padding: usize,
    ) -> Self::Tensor;

    /// Group norm over positions and the channels of each group.
    fn group_norm(
        &self,
        x: &Self::Tensor,
        scale: &Self::Weight,
        shift: &Self::Weight,
        groups: usize,
        eps: f64,
    ) -> Self::Tensor;

    /// Layer norm over the channels.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        scale: &Self::Weight,
        shift: &Self::Weight,
        eps: f64,
    ) -> Self::Tensor;

    /// Softmax(q k^T / sqrt(head_dim)) v for each head; heads are slices of the channels.
    fn attention(
        &self,
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        num_heads: usize,
        mask: AttentionMask,
    ) -> Self::Tensor;

    /// `x * sigmoid(x)`.
    fn silu(&self, x: &Self::Tensor) -> Self::Tensor;

    /// `x * sigmoid(1.702 x)`.
    fn quick_gelu(&self, x: &Self::Tensor) -> Self::Tensor;

    /// Exact GELU, with erf.
    fn gelu(&self, x: &Self::Tensor) -> Self::Tensor;

    /// First half of the channels times the exact GELU of the second half.
    fn geglu(&self, x: &Self::Tensor) -> Self::Tensor;

    /// Sum of two activations of one shape.
    fn add(&self, a: &Self::Tensor, b: &Self::Tensor) -> Self::Tensor;

    /// Adds `[batch, 1, 1, channels]` at every position.
    fn add_channels(&self, x: &Self::Tensor, channels: &Self::Tensor) -> Self::Tensor;

    /// Channels of `a`, then channels of `b`.
    fn concat_channels(&self, a: &Self::Tensor, b: &Self::Tensor) -> Self::Tensor;

    /// Doubles height and width by repetition, then cuts to `height` x `width` (an odd level's size is one less than the double).
    fn upsample_nearest2d(&self, x: &Self::Tensor, height: usize, width: usize) -> Self::Tensor;

    /// The same values as a token matrix, `[batch, 1, height * width, channels]`.
    fn tokens(&self, x: &Self::Tensor) -> Self::Tensor;

    /// A token matrix as an image of `height` x `width`.
    fn image(&self, x: &Self::Tensor, height: usize, width: usize) -> Self::Tensor;
}

/// An engine that computes as it is called, with values going in and out.
pub trait Eager: Engine {
    /// Name for reports: `burn-flex`, `burn-wgpu`.
    fn name(&self) -> &'static str;

    /// Fills a declared weight with the bytes of `tensor`, row-major, little-endian.
    ///
    /// # Errors
    /// [`Error::Load`] when the format is not one of F16, BF16 and F32.
    fn upload(&self, weight: &Self::Weight, tensor: &TensorInfo, bytes: &[u8]) -> Result<()>;

    /// Bytes this engine needs to keep `elements` weight values.
    fn weight_bytes(&self, elements: u64) -> u64;

    /// An activation from values on the CPU, in `shape`'s order.
    fn input(&self, shape: Shape, values: &[f32]) -> Self::Tensor;

    /// Token ids of `batch` prompts of one length, one after another.
    fn ids(&self, ids: &[u32], batch: usize) -> Self::Ids;

    /// The values of an activation, in its shape's order.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] when the GPU went away.
    #[allow(async_fn_in_trait)]
    async fn read(&self, x: Self::Tensor) -> Result<Vec<f32>>;
}

/// Refuses values that are not finite: a NaN must never become a picture.
///
/// # Errors
/// [`Error::NotFinite`] with the module's name.
pub fn check_finite(module: &str, values: &[f32]) -> Result<()> {
    if values.iter().all(|value| value.is_finite()) {
        Ok(())
    } else {
        Err(Error::NotFinite {
            module: module.to_owned(),
        })
    }
}
