//! Weights as they are in a checkpoint to the layout of the kernels: written as they are where both are the same bytes, else some rows at a
//! time into the part of the arena that is overwritten in each run, and from there by a kernel to their place.

use std::sync::Arc;

use weights_loader::{Dtype, LoadError, TensorInfo};

use super::{Network, Plan};
use crate::{
    Error, Result,
    engine::{
        WeightRole,
        plan::{WeightId, WeightInfo},
    },
    kernels::{Launch, RepackArgs, RepackLayout, SourceType, Storage},
};

/// Bytes of a checkpoint that wait in the arena until they are repacked together.
const REGION_BYTES: u64 = 16 << 20;

/// Rows that lie in the arena and are not repacked yet.
#[derive(Debug)]
pub(super) struct Uploads {
    /// The arena's buffer.
    buffer: usize,
    /// How much of it may be used.
    region_bytes: u64,
    used_bytes: u64,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    launch: Launch,
    weight: WeightId,
    rows: usize,
    source: u64,
    params: u64,
}

impl Uploads {
    pub(super) fn new(plan: &Plan) -> Self {
        let transient = &plan.arena.buffers[..plan.arena.transient_buffers];
        let largest = transient.iter().zip(0..).max();
        let (bytes, buffer) = largest.map_or((0, 0), |(&bytes, buffer)| (bytes, buffer));
        Self {
            buffer,
            region_bytes: bytes.min(REGION_BYTES),
            used_bytes: 0,
            waiting: Vec::new(),
        }
    }

    fn rows(&self, weight: WeightId) -> usize {
        let waiting = self.waiting.iter();
        waiting
            .filter(|waiting| waiting.weight == weight)
            .map(|waiting| waiting.rows)
            .sum()
    }
}

impl Network {
    /// Fills a weight with the bytes of `tensor`, row-major, little-endian. The GPU does the work some time before the next run.
    ///
    /// # Errors
    /// [`Error::Load`] when the size or the number format is not what the network asks for; [`Error::Plan`] when no row fits the arena.
    pub fn upload(&mut self, weight: WeightId, tensor: &TensorInfo, bytes: &[u8]) -> Result<()> {
        let rows = self.rows(weight);
        if bytes.len() != rows * self.row_bytes(weight, tensor)? {
            return Err(Error::Load(LoadError::ShapeMismatch {
                name: tensor.name.clone(),
                expected: self.plan.graph.weights[weight.0].shape.clone(),
                got: tensor.shape.clone(),
            }));
        }
        self.uploads
            .waiting
            .retain(|waiting| waiting.weight != weight);
        self.buffers.weights.set_rows(weight, 0);
        self.upload_rows(weight, tensor, bytes)
    }

    /// Rows of a weight: the extent of its first axis.
    #[must_use]
    pub fn rows(&self, weight: WeightId) -> usize {
        let shape = &self.plan.graph.weights[weight.0].shape;
        shape.first().copied().unwrap_or(1)
    }

    /// Bytes of a row as `tensor` stores it.
    ///
    /// # Errors
    /// [`Error::Load`] for a number format other than float32, float16 and bfloat16.
    pub fn row_bytes(&self, weight: WeightId, tensor: &TensorInfo) -> Result<usize> {
        let shape = &self.plan.graph.weights[weight.0].shape;
        let row: usize = shape.iter().skip(1).product();
        Ok(row * source_type(tensor)?.bytes())
    }

    /// Fills the next rows of a weight, after those of the calls before; `bytes` are whole rows.
    ///
    /// # Errors
    /// As [`Self::upload`]; [`Error::Plan`] when they are no whole rows, or more than there are.
    pub fn upload_rows(
        &mut self,
        weight: WeightId,
        tensor: &TensorInfo,
        bytes: &[u8],
    ) -> Result<()> {
        let row_bytes = self.row_bytes(weight, tensor)?;
        let (first_row, all_rows) = (self.arrived(weight), self.rows(weight));
        let rows = bytes.len() / row_bytes.max(1);
        if rows * row_bytes != bytes.len() || first_row + rows > all_rows {
            return Err(self.fault(format!(
                "{} bytes are no rows of {} from row {first_row} on",
                bytes.len(),
                tensor.name
            )));
        }
        let args = RepackArgs {
            layout: layout(&self.plan.graph.weights[weight.0]),
            source: source_type(tensor)?,
            all_rows,
            first_row,
            rows,
        };
        if args.is_copy() {
            let (place, _) = self.plan.weights.place(weight);
            let buffer = &self.buffers.weights.buffers[place.buffer];
            // rows of such a layout are whole words
            let offset = place.offset + (first_row * row_bytes) as u64;
            self.gpu.write(buffer, offset, bytes);
            self.buffers.weights.set_rows(weight, first_row + rows);
            Ok(())
        } else {
            self.repack(weight, args, bytes, row_bytes)
        }
    }

    /// Rows of a weight that were handed over: those that are there, and those that wait.
    fn arrived(&self, weight: WeightId) -> usize {
        self.buffers.weights.rows(weight) + self.uploads.rows(weight)
    }

    fn repack(
        &mut self,
        weight: WeightId,
        args: RepackArgs,
        bytes: &[u8],
        row_bytes: usize,
    ) -> Result<()> {
        let alignment = self.gpu.limits().offset_alignment_bytes;
        let mut done = 0;
        while done < args.rows {
            let free = (self.uploads.region_bytes - self.uploads.used_bytes)
                .saturating_sub(alignment)
                / alignment
                * alignment;
            let rows = (free as usize / row_bytes).min(args.rows - done);
            if rows == 0 {
                if self.uploads.used_bytes == 0 {
                    return Err(self.fault(format!(
                        "its arena holds no row of {row_bytes} bytes of {}",
                        self.plan.graph.weights[weight.0].name
                    )));
                }
                self.flush_uploads();
                continue;
            }
            let chunk = RepackArgs {
                first_row: args.first_row + done,
                rows,
                ..args
            };
            let launch = chunk.launch(self.gpu.limits())?;
            let params = self.uploads.used_bytes;
            let source = params + alignment;
            let words: Vec<u8> = launch.params.iter().flat_map(|w| w.to_le_bytes()).collect();
            let buffer = &self.buffers.arena[self.uploads.buffer];
            self.gpu.write(buffer, params, &words);
            let range = done * row_bytes..(done + rows) * row_bytes;
            let rows_bytes = range.len() as u64;
            self.gpu.write(buffer, source, &bytes[range]);
            self.uploads.used_bytes = (source + rows_bytes).next_multiple_of(alignment);
            self.uploads.waiting.push(Waiting {
                launch,
                weight,
                rows,
                source,
                params,
            });
            done += rows;
        }
        Ok(())
    }

    /// Lets the GPU repack what waits.
    pub(super) fn flush_uploads(&mut self) {
        let waiting = std::mem::take(&mut self.uploads.waiting);
        self.uploads.used_bytes = 0;
        if waiting.is_empty() {
            return;
        }
        let staging = &self.buffers.arena[self.uploads.buffer];
        let mut calls = Vec::with_capacity(waiting.len());
        for Waiting {
            launch,
            weight,
            rows,
            source,
            params,
        } in &waiting
        {
            let weights = &self.buffers.weights;
            let (place, _) = self.plan.weights.place(*weight);
            let ranges = launch.bindings.iter().map(|binding| match binding.operand {
                0 => staging.range(*source, binding.bytes),
                _ => weights.buffers[place.buffer].range(place.offset, binding.bytes),
            });
            let words = 4 * launch.params.len() as u64;
            let ranges: Vec<_> = ranges.chain([staging.range(*params, words)]).collect();
            let storages = [Storage::Weight, Storage::Arena];
            let pipeline = self.gpu.pipeline_now(launch, &storages);
            calls.push(self.gpu.bound_call(pipeline, &ranges, launch.workgroups));
            weights.set_rows(*weight, weights.rows(*weight) + rows);
        }
        let mut encoder = self.gpu.encoder("upload");
        // a kernel that does not compile is a fault of the device by now
        if encoder.compute(None, &calls).is_ok() {
            self.gpu.submit_now(Some(encoder));
        }
    }

    /// Lets all weights be filled anew, from the first row on.
    pub fn forget_weights(&mut self) {
        self.uploads.waiting.clear();
        self.uploads.used_bytes = 0;
        self.buffers.weights.forget();
    }

    /// Names of weights whose rows are not all there yet.
    pub fn missing_weights(&self) -> impl Iterator<Item = &str> {
        let weights = self.plan.graph.weights.iter().zip((0..).map(WeightId));
        weights
            .filter(|&(_, id)| self.rows(id) > self.arrived(id))
            .map(|(weight, _)| weight.name.as_str())
    }

    /// Whether all weights are there; sends those that wait.
    pub(super) fn all_uploaded(&mut self) -> Result<()> {
        self.flush_uploads();
        let missing: Vec<&str> = self.missing_weights().take(5).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::Load(LoadError::MissingTensor {
            file: self.plan.graph.name.to_owned(),
            names: missing.join(", "),
        }))
    }
}

/// Rows that were handed over come to the weights, where these outlive the network.
impl Drop for Network {
    fn drop(&mut self) {
        if Arc::strong_count(&self.buffers.weights) > 1 {
            self.flush_uploads();
        }
    }
}

fn source_type(tensor: &TensorInfo) -> Result<SourceType> {
    match tensor.dtype {
        Dtype::F32 => Ok(SourceType::F32),
        Dtype::F16 => Ok(SourceType::F16),
        Dtype::BF16 => Ok(SourceType::Bf16),
        _ => Err(Error::Load(LoadError::UnsupportedDtype {
            name: tensor.name.clone(),
            dtype: tensor.dtype.to_string(),
        })),
    }
}

fn layout(weight: &WeightInfo) -> RepackLayout {
    let rest: usize = weight.shape.iter().skip(1).product();
    match weight.role {
        WeightRole::Linear => RepackLayout::Matrix { k: rest },
        WeightRole::Conv2d => RepackLayout::Conv2d {
            channels: weight.shape.get(1).copied().unwrap_or(1),
            kernel: weight.shape.get(2).copied().unwrap_or(1),
        },
        WeightRole::Vector => RepackLayout::Vector,
        WeightRole::Embedding => RepackLayout::Table { channels: rest },
    }
}
