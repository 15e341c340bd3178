//! Weights as they are in a checkpoint to the layout of the kernels: written as they are where both are the same bytes, else some rows at a
//! time into the part of the arena that is overwritten in each run, and from there by a kernel to their place.

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
}

impl Network {
    /// Fills a weight with the bytes of `tensor`, row-major, little-endian. The GPU does the work some time before the next run.
    ///
    /// # Errors
    /// [`Error::Load`] when the shape or the number format is not what the network asks for; [`Error::Plan`] when no row fits the arena.
    pub fn upload(&mut self, weight: WeightId, tensor: &TensorInfo, bytes: &[u8]) -> Result<()> {
        let info = &self.plan.graph.weights[weight.0];
        let source = source_type(tensor)?;
        let args = RepackArgs {
            layout: layout(info),
            source,
            all_rows: info.shape.first().copied().unwrap_or(0),
            first_row: 0,
            rows: info.shape.first().copied().unwrap_or(0),
        };
        let row_bytes = args.k() * source.bytes();
        if bytes.len() != args.rows * row_bytes {
            return Err(Error::Load(LoadError::ShapeMismatch {
                name: tensor.name.clone(),
                expected: info.shape.clone(),
                got: tensor.shape.clone(),
            }));
        }
        if args.is_copy() {
            let (place, _) = self.plan.weights.place(weight);
            let buffer = &self.buffers.weights[place.buffer];
            self.gpu.write(buffer, place.offset, bytes);
        } else {
            self.repack(weight, args, bytes, row_bytes)?;
        }
        self.uploaded[weight.0] = true;
        Ok(())
    }

    fn repack(
        &mut self,
        weight: WeightId,
        args: RepackArgs,
        bytes: &[u8],
        row_bytes: usize,
    ) -> Result<()> {
        let alignment = self.gpu.limits().offset_alignment_bytes;
        let mut first_row = 0;
        while first_row < args.rows {
            let free = (self.uploads.region_bytes - self.uploads.used_bytes)
                .saturating_sub(alignment)
                / alignment
                * alignment;
            let rows = (free as usize / row_bytes).min(args.rows - first_row);
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
                first_row,
                rows,
                ..args
            };
            let launch = chunk.launch(self.gpu.limits())?;
            let params = self.uploads.used_bytes;
            let source = params + alignment;
            let words: Vec<u8> = launch.params.iter().flat_map(|w| w.to_le_bytes()).collect();
            let buffer = &self.buffers.arena[self.uploads.buffer];
            self.gpu.write(buffer, params, &words);
            let range = first_row * row_bytes..(first_row + rows) * row_bytes;
            let rows_bytes = range.len() as u64;
            self.gpu.write(buffer, source, &bytes[range]);
            self.uploads.used_bytes = (source + rows_bytes).next_multiple_of(alignment);
            self.uploads.waiting.push(Waiting {
                launch,
                weight,
                source,
                params,
            });
            first_row += rows;
        }
        Ok(())
    }

    /// Lets the GPU repack what waits.
    fn flush_uploads(&mut self) {
        let waiting = std::mem::take(&mut self.uploads.waiting);
        self.uploads.used_bytes = 0;
        if waiting.is_empty() {
            return;
        }
        let staging = &self.buffers.arena[self.uploads.buffer];
        let mut encoder = self.gpu.encoder("upload");
        {
            let descriptor = wgpu::ComputePassDescriptor::default();
            let mut compute = encoder.begin_compute_pass(&descriptor);
            for Waiting {
                launch,
                weight,
                source,
                params,
            } in &waiting
            {
                let (place, _) = self.plan.weights.place(*weight);
                let resources = launch.bindings.iter().map(|binding| match binding.operand {
                    0 => staging.range(*source, binding.bytes),
                    _ => self.buffers.weights[place.buffer].range(place.offset, binding.bytes),
                });
                let words = 4 * launch.params.len() as u64;
                let resources = resources.chain([staging.range(*params, words)]).collect();
                let storages = [Storage::Weight, Storage::Arena];
                let pipeline = self.gpu.pipeline(launch, &storages);
                let group = self
                    .gpu
                    .bind_group(launch.label, &pipeline.layout, resources);
                compute.set_pipeline(&pipeline.pipeline);
                compute.set_bind_group(0, &group, &[]);
                let [x, y, z] = launch.workgroups;
                compute.dispatch_workgroups(x, y, z);
            }
        }
        self.gpu.submit_now(encoder);
    }

    /// Names of weights that have no values yet.
    pub fn missing_weights(&self) -> impl Iterator<Item = &str> {
        let weights = self.plan.graph.weights.iter().zip(&self.uploaded);
        weights
            .filter(|(_, uploaded)| !**uploaded)
            .map(|(weight, _)| weight.name.as_str())
    }

    /// Whether all weights are there; sends those that wait.
    pub(super) fn ready(&mut self) -> Result<()> {
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
