//! The eager engine on burn tensors: burn-flex on the CPU, burn-wgpu on the GPU. All arithmetic is float32.
//!
//! It is the reference that every other engine is held against, and the path for browsers without WebGPU.

use std::{cell::OnceCell, rc::Rc};

use burn::tensor::{
    Device, Int, Tensor, TensorData, activation,
    module::{conv2d, embedding},
    ops::ConvOptions,
};
use weights_loader::{TensorInfo, decode_f32};

use super::{AttentionMask, Eager, Engine, Shape, WeightRole};
use crate::{Error, Result};

/// Bytes of attention scores held at once. Queries are taken in slices so that the score matrix never exceeds this,
/// whatever the picture's size: all heads of a 64x64 latent would take 512 MiB.
const SCORE_BYTES: usize = 32 << 20;

/// Scores of keys that a query may not see. Not infinity: WGSL may assume there is none.
const MASKED: f32 = -1e30;

/// The engine on burn tensors. Cloning shares the device.
#[derive(Debug, Clone)]
pub struct BurnEngine {
    device: Device,
    name: &'static str,
}

impl BurnEngine {
    /// The CPU engine (burn-flex); works everywhere.
    #[must_use]
    pub fn cpu() -> Self {
        Self {
            device: Device::flex(),
            name: "burn-flex",
        }
    }

    /// The GPU engine on a device that burn already knows.
    #[cfg(feature = "burn-wgpu")]
    #[must_use]
    pub fn wgpu(device: Device) -> Self {
        Self {
            device,
            name: "burn-wgpu",
        }
    }

    fn vector(&self, weight: &BurnWeight) -> Tensor<1> {
        match weight.values() {
            Values::Vector(tensor) => tensor.clone(),
            _ => unreachable!("role {:?} is used as a vector", weight.role),
        }
    }

    fn matrix(&self, weight: &BurnWeight) -> Tensor<2> {
        match weight.values() {
            Values::Matrix(tensor) => tensor.clone(),
            _ => unreachable!("role {:?} is used as a matrix", weight.role),
        }
    }
}

/// A weight's place: its shape is known from the start, its values arrive while the file streams in.
#[derive(Debug, Clone)]
pub struct BurnWeight {
    role: WeightRole,
    shape: Vec<usize>,
    values: Rc<OnceCell<Values>>,
}

#[derive(Debug)]
enum Values {
    Vector(Tensor<1>),
    /// `[in, out]` for linear layers, `[rows, channels]` for embeddings.
    Matrix(Tensor<2>),
    Kernel(Tensor<4>),
}

impl BurnWeight {
    fn values(&self) -> &Values {
        match self.values.get() {
            Some(values) => values,
            None => unreachable!(
                "a weight is used before it was loaded; the loader checks that none is missing"
            ),
        }
    }
}

impl Engine for BurnEngine {
    type Tensor = Tensor<4>;
    type Ids = Tensor<2, Int>;
    type Weight = BurnWeight;

    fn declare(&self, _name: &str, role: WeightRole, shape: &[usize]) -> BurnWeight {
        BurnWeight {
            role,
            shape: shape.to_vec(),
            values: Rc::default(),
        }
    }

    fn shape(&self, x: &Tensor<4>) -> Shape {
        let [batch, height, width, channels] = x.dims();
        Shape {
            batch,
            height,
            width,
            channels,
        }
    }

    fn embedding(&self, table: &BurnWeight, ids: &Tensor<2, Int>) -> Tensor<4> {
        let rows = embedding(self.matrix(table), ids.clone());
        let [batch, tokens, channels] = rows.dims();
        rows.reshape([batch, 1, tokens, channels])
    }

    fn add_positions(&self, x: &Tensor<4>, table: &BurnWeight) -> Tensor<4> {
        let [_, _, tokens, channels] = x.dims();
        x.clone()
            + self
                .matrix(table)
                .narrow(0, 0, tokens)
                .reshape([1, 1, tokens, channels])
    }

    fn linear(&self, x: &Tensor<4>, weight: &BurnWeight, bias: Option<&BurnWeight>) -> Tensor<4> {
        let [batch, height, width, channels] = x.dims();
        let weight = self.matrix(weight);
        let out = weight.dims()[1];
        let mut y = x
            .clone()
            .reshape([batch * height * width, channels])
            .matmul(weight);
        if let Some(bias) = bias {
            y = y + self.vector(bias).reshape([1, out]);
        }
        y.reshape([batch, height, width, out])
    }

    fn conv2d(
        &self,
        x: &Tensor<4>,
        weight: &BurnWeight,
        bias: &BurnWeight,
        stride: usize,
        padding: usize,
    ) -> Tensor<4> {
        let Values::Kernel(kernel) = weight.values() else {
            unreachable!("role {:?} is used as a kernel", weight.role)
        };
        let options = ConvOptions::new([stride; 2], [padding; 2], [1; 2], 1);
        conv2d(
            x.clone().permute([0, 3, 1, 2]),
            kernel.clone(),
            Some(self.vector(bias)),
            options,
        )
        .permute([0, 2, 3, 1])
    }

    fn group_norm(
        &self,
        x: &Tensor<4>,
        scale: &BurnWeight,
        shift: &BurnWeight,
        groups: usize,
        eps: f64,
    ) -> Tensor<4> {
        let [batch, height, width, channels] = x.dims();
        let (positions, per_group) = (height * width, channels / groups);
        let x = x
            .clone()
            .reshape([batch, positions, groups, per_group])
            .permute([0, 2, 1, 3])
            .reshape([batch, groups, positions * per_group]);
        let x = normalize(x, eps)
            .reshape([batch, groups, positions, per_group])
            .permute([0, 2, 1, 3]);
        self.scale_shift(x.reshape([batch, height, width, channels]), scale, shift)
    }

    fn layer_norm(
        &self,
        x: &Tensor<4>,
        scale: &BurnWeight,
        shift: &BurnWeight,
        eps: f64,
    ) -> Tensor<4> {
        self.scale_shift(normalize(x.clone(), eps), scale, shift)
    }

    fn attention(
        &self,
        q: &Tensor<4>,
        k: &Tensor<4>,
        v: &Tensor<4>,
        num_heads: usize,
        mask: AttentionMask,
    ) -> Tensor<4> {
        let [batch, _, queries, channels] = q.dims();
        let keys = k.dims()[2];
        let head_dim = channels / num_heads;
        let heads = |x: &Tensor<4>, tokens| {
            x.clone()
                .reshape([batch, tokens, num_heads, head_dim])
                .permute([0, 2, 1, 3])
        };
        let q = heads(q, queries) * (head_dim as f64).powf(-0.5);
        let (k, v) = (heads(k, keys).swap_dims(2, 3), heads(v, keys));
        let rows = (SCORE_BYTES / (4 * batch * num_heads * keys)).clamp(1, queries);
        let slices = (0..queries)
            .step_by(rows)
            .map(|start| {
                let end = (start + rows).min(queries);
                let mut scores = q
                    .clone()
                    .slice([0..batch, 0..num_heads, start..end])
                    .matmul(k.clone());
                if mask == AttentionMask::Causal {
                    scores = scores + self.causal_mask(start, end, keys);
                }
                activation::softmax(scores, 3).matmul(v.clone())
            })
            .collect();
        Tensor::cat(slices, 2)
            .permute([0, 2, 1, 3])
            .reshape([batch, 1, queries, channels])
    }

    fn silu(&self, x: &Tensor<4>) -> Tensor<4> {
        activation::silu(x.clone())
    }

    fn quick_gelu(&self, x: &Tensor<4>) -> Tensor<4> {
        x.clone() * activation::sigmoid(x.clone() * 1.702)
    }

    fn gelu(&self, x: &Tensor<4>) -> Tensor<4> {
        activation::gelu(x.clone())
    }

    fn geglu(&self, x: &Tensor<4>) -> Tensor<4> {
        let half = x.dims()[3] / 2;
        x.clone().narrow(3, 0, half) * activation::gelu(x.clone().narrow(3, half, half))
    }

    fn add(&self, a: &Tensor<4>, b: &Tensor<4>) -> Tensor<4> {
        a.clone() + b.clone()
    }

    fn add_channels(&self, x: &Tensor<4>, channels: &Tensor<4>) -> Tensor<4> {
        x.clone() + channels.clone()
    }

    fn concat_channels(&self, a: &Tensor<4>, b: &Tensor<4>) -> Tensor<4> {
        Tensor::cat(vec![a.clone(), b.clone()], 3)
    }

    fn upsample_nearest2d(&self, x: &Tensor<4>, height: usize, width: usize) -> Tensor<4> {
        let [batch, h, w, channels] = x.dims();
        let doubled = x
            .clone()
            .reshape([batch * h, 1, w, channels])
            .repeat_dim(1, 2);
        let doubled = doubled
            .reshape([batch * h * 2 * w, 1, 1, channels])
            .repeat_dim(1, 2);
        doubled
            .reshape([batch, h * 2, w * 2, channels])
            .slice([0..batch, 0..height, 0..width])
    }

    fn tokens(&self, x: &Tensor<4>) -> Tensor<4> {
        let [batch, height, width, channels] = x.dims();
        x.clone().reshape([batch, 1, height * width, channels])
    }

    fn image(&self, x: &Tensor<4>, height: usize, width: usize) -> Tensor<4> {
        let [batch, _, _, channels] = x.dims();
        x.clone().reshape([batch, height, width, channels])
    }
}

impl Eager for BurnEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn upload(&self, weight: &BurnWeight, tensor: &TensorInfo, bytes: &[u8]) -> Result<()> {
        let mut floats = Vec::with_capacity(weight.shape.iter().product());
        decode_f32(tensor, bytes, &mut floats)?;
        let shape = &weight.shape;
        let values = match weight.role {
            WeightRole::Vector => Values::Vector(Tensor::from_data(
                TensorData::new(floats, shape.clone()),
                &self.device,
            )),
            WeightRole::Embedding => Values::Matrix(Tensor::from_data(
                TensorData::new(floats, shape.clone()),
                &self.device,
            )),
            WeightRole::Linear => {
                let matrix: Tensor<2> =
                    Tensor::from_data(TensorData::new(floats, [shape[0], shape[1]]), &self.device);
                Values::Matrix(matrix.transpose())
            }
            WeightRole::Conv2d => Values::Kernel(Tensor::from_data(
                TensorData::new(floats, shape.clone()),
                &self.device,
            )),
        };
        // A second copy of a tensor in one file is refused by the index, so the cell is empty.
        let _ = weight.values.set(values);
        Ok(())
    }

    fn weight_bytes(&self, elements: u64) -> u64 {
        elements * 4
    }

    fn input(&self, shape: Shape, values: &[f32]) -> Tensor<4> {
        let data = TensorData::new(
            values.to_vec(),
            [shape.batch, shape.height, shape.width, shape.channels],
        );
        Tensor::from_data(data, &self.device)
    }

    fn ids(&self, ids: &[u32], batch: usize) -> Tensor<2, Int> {
        let tokens = ids.len() / batch;
        let ids: Vec<i32> = ids.iter().map(|&id| id.cast_signed()).collect();
        Tensor::from_data(TensorData::new(ids, [batch, tokens]), &self.device)
    }

    async fn read(&self, x: Tensor<4>) -> Result<Vec<f32>> {
        let data = x.into_data_async().await.map_err(|e| Error::DeviceLost {
            why: format!("{e:?}"),
        })?;
        data.try_into_vec::<f32>().map_err(|e| Error::DeviceLost {
            why: format!("unexpected data: {e:?}"),
        })
    }
}

impl BurnEngine {
    fn scale_shift(&self, x: Tensor<4>, scale: &BurnWeight, shift: &BurnWeight) -> Tensor<4> {
        let channels = x.dims()[3];
        x * self.vector(scale).reshape([1, 1, 1, channels])
            + self.vector(shift).reshape([1, 1, 1, channels])
    }

    /// `[1, 1, end - start, keys]`: zero up to the query's own position, [`MASKED`] after it.
    fn causal_mask(&self, start: usize, end: usize, keys: usize) -> Tensor<4> {
        let values = (start..end)
            .flat_map(|query| (0..keys).map(move |key| if key > query { MASKED } else { 0.0 }))
            .collect::<Vec<f32>>();
        Tensor::from_data(
            TensorData::new(values, [1, 1, end - start, keys]),
            &self.device,
        )
    }
}

/// Zero mean and unit variance over the last dimension. Two passes: `E[x^2] - mean^2` loses its digits where the mean is large.
fn normalize<const D: usize>(x: Tensor<D>, eps: f64) -> Tensor<D> {
    let centred = x.clone() - x.mean_dim(D - 1);
    let variance = centred.clone().square().mean_dim(D - 1);
    centred / (variance + eps).sqrt()
}
