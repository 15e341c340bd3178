//! A planned network on a GPU: everything is made once, then a step is one small upload and a few command buffers.
//!
//! Buffers: those of the arena, those of the weights, one of parameters, one that tells the step, one through which results are read.
//! Together they are to the byte what [`super::StageMemory`] promises. Weights on their way into the kernels' layout pass through the arena,
//! which holds nothing between two runs but what is kept in buffers apart.

mod prepare;
mod timing;
mod upload;
mod weights;

use std::sync::Arc;

use super::{
    Place, Plan, Port, StageMemory, WeightId,
    gpu::{Gpu, GpuBuffer},
    program::Keep,
};
use crate::{Error, Result, kernels::Tuning};
use prepare::{Prepared, Ready, Submission};
use upload::Uploads;

pub use weights::NetworkWeights;

/// How a network is replayed. Nothing here changes one bit of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Choices of the launches.
    pub tuning: Tuning,
    /// A submission ends when its work, as multiply-adds and bytes, is more than this: a GPU that is busy for long draws no page.
    pub work_per_submission: u64,
}

impl ReplayOptions {
    /// A few tens of milliseconds of a small GPU.
    pub const WORK_PER_SUBMISSION: u64 = 4_000_000_000;

    /// What suits a GPU.
    #[must_use]
    pub fn new(gpu: &Gpu) -> Self {
        Self {
            tuning: gpu.tuning(),
            work_per_submission: Self::WORK_PER_SUBMISSION,
        }
    }
}

/// A network in GPU memory.
#[derive(Debug)]
pub struct Network {
    gpu: Arc<Gpu>,
    plan: Plan,
    buffers: Buffers,
    schedule: Vec<Submission>,
    /// Of each pass.
    image: Vec<Vec<Submission>>,
    /// Of each pass.
    step: Vec<Vec<Submission>>,
    uploads: Uploads,
}

#[derive(Debug)]
struct Buffers {
    arena: Vec<GpuBuffer>,
    weights: Arc<NetworkWeights>,
    params: GpuBuffer,
    step: Option<GpuBuffer>,
    read_back: GpuBuffer,
}

impl Buffers {
    fn all(&self) -> impl Iterator<Item = &GpuBuffer> {
        self.arena
            .iter()
            .chain(&self.weights.buffers)
            .chain([&self.params, &self.read_back])
            .chain(&self.step)
    }
}

/// The buffers of a network, by what they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedBytes {
    /// Of weights.
    pub weights_bytes: u64,
    /// Of activations.
    pub arena_bytes: u64,
    /// Of parameters, of the step, and to read back.
    pub staging_bytes: u64,
}

impl Network {
    /// Makes all buffers, pipelines and bind groups of a plan. The weights come later, with [`Self::upload`].
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`] and [`Error::OutOfMemory`] before or while memory is taken; [`Error::Plan`] for what the GPU refuses,
    /// which is a bug; [`Error::DeviceLost`].
    pub async fn new(gpu: &Arc<Gpu>, plan: Plan, options: ReplayOptions) -> Result<Self> {
        let weights = NetworkWeights::new(gpu, &plan.graph).await?;
        Self::with_weights(gpu, plan, weights, options).await
    }

    /// The same over weights that are there, be they filled or not: those of [`Self::weights`] of a network of another size, precision
    /// or guidance.
    ///
    /// # Errors
    /// As [`Self::new`]; [`Error::Plan`] when they are the weights of another network.
    pub async fn with_weights(
        gpu: &Arc<Gpu>,
        plan: Plan,
        weights: Arc<NetworkWeights>,
        options: ReplayOptions,
    ) -> Result<Self> {
        weights.check(&plan.graph, &plan.weights)?;
        let prepared = Prepared::new(&plan, gpu.limits(), options.tuning)?;
        let buffers = Self::buffers(gpu, &plan, weights, &prepared).await?;
        let [schedule, image, step] = gpu
            .validated(plan.graph.name, || {
                prepared.submissions(gpu, &plan, &buffers, options.work_per_submission)
            })
            .await?;
        Ok(Self {
            gpu: Arc::clone(gpu),
            buffers,
            schedule: schedule.into_iter().next().unwrap_or_default(),
            image,
            step,
            uploads: Uploads::new(&plan),
            plan,
        })
    }

    async fn buffers(
        gpu: &Gpu,
        plan: &Plan,
        weights: Arc<NetworkWeights>,
        prepared: &Prepared,
    ) -> Result<Buffers> {
        use wgpu::BufferUsages as Usage;
        let copies = Usage::COPY_SRC | Usage::COPY_DST;
        // a uniform for the parameters of repacking, see `upload`
        let arena_usage = Usage::STORAGE | Usage::UNIFORM | copies;
        let mut arena = Vec::new();
        for &bytes in &plan.arena.buffers {
            arena.push(gpu.buffer("arena", bytes, arena_usage).await?);
        }
        let uniform = Usage::UNIFORM | Usage::COPY_DST;
        let params = gpu
            .buffer("params", prepared.params.len() as u64, uniform)
            .await?;
        gpu.write(&params, 0, &prepared.params);
        let alignment = gpu.limits().offset_alignment_bytes;
        let step = match plan.program.reads_step() {
            true => Some(gpu.buffer("step", alignment, uniform).await?),
            false => None,
        };
        let outputs = plan.program.outputs.iter();
        let read_back: u64 = outputs
            .map(|port| plan.program.slot(port.slot).bytes * plan.arena.passes as u64)
            .sum();
        let read_back = gpu
            .buffer(
                "read back",
                read_back.next_multiple_of(alignment),
                Usage::MAP_READ | Usage::COPY_DST,
            )
            .await?;
        Ok(Buffers {
            arena,
            weights,
            params,
            step,
            read_back,
        })
    }

    /// The plan it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the plan promises.
    #[must_use]
    pub fn promised(&self) -> StageMemory {
        StageMemory::new(&self.plan, self.gpu.limits())
    }

    /// What its buffers take.
    #[must_use]
    pub fn counted(&self) -> CountedBytes {
        let all: u64 = self.buffers.all().map(GpuBuffer::bytes).sum();
        let weights_bytes = self.buffers.weights.bytes();
        let arena_bytes: u64 = self.buffers.arena.iter().map(GpuBuffer::bytes).sum();
        CountedBytes {
            weights_bytes,
            arena_bytes,
            staging_bytes: all - weights_bytes - arena_bytes,
        }
    }

    /// Submissions of one run of a step and pass.
    #[must_use]
    pub fn submissions_per_run(&self) -> usize {
        self.step.first().map_or(0, Vec::len)
    }

    /// Its weights, to be kept when it goes. What waits to be uploaded is sent.
    #[must_use]
    pub fn weights(&mut self) -> Arc<NetworkWeights> {
        self.flush_uploads();
        Arc::clone(&self.buffers.weights)
    }

    /// The weight of that name.
    #[must_use]
    pub fn weight(&self, name: &str) -> Option<WeightId> {
        let mut weights = self.plan.graph.weights.iter();
        weights.position(|weight| weight.name == name).map(WeightId)
    }

    /// Writes an input. `pass` picks the text of one pass of guidance; inputs that all passes share do not look at it.
    ///
    /// # Errors
    /// [`Error::Plan`] when there is no such input, or it has another size.
    pub fn write_input(&self, name: &str, pass: usize, values: &[f32]) -> Result<()> {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.write_port(name, pass, &bytes)
    }

    /// Writes token ids.
    ///
    /// # Errors
    /// As [`Self::write_input`].
    pub fn write_ids(&self, name: &str, ids: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.write_port(name, 0, &bytes)
    }

    fn write_port(&self, name: &str, pass: usize, bytes: &[u8]) -> Result<()> {
        let port = port(&self.plan.program.inputs, name)
            .ok_or_else(|| self.fault(format!("it has no input {name}")))?;
        let slot = self.plan.program.slot(port.slot);
        if slot.bytes != bytes.len() as u64 {
            let got = bytes.len();
            return Err(self.fault(format!("{name} has {} bytes, not {got}", slot.bytes)));
        }
        let pass = if slot.keep == Keep::PerPass { pass } else { 0 };
        self.check_pass(pass)?;
        let place = self.plan.arena.place(port.slot, pass);
        let buffer = &self.buffers.arena[place.buffer];
        self.gpu.write(buffer, place.offset, bytes);
        Ok(())
    }

    /// Computes what depends on the schedule alone. Once a picture, when its inputs are written.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] and other faults of the GPU; [`Error::Load`] when a weight is missing.
    pub async fn run_schedule(&mut self) -> Result<()> {
        self.ready()?;
        self.run(&self.schedule).await
    }

    /// Computes what depends on the text of a pass alone. Once a picture.
    ///
    /// # Errors
    /// As [`Self::run_schedule`].
    pub async fn run_image(&mut self, pass: usize) -> Result<()> {
        self.ready()?;
        self.check_pass(pass)?;
        self.run(&self.image[pass]).await
    }

    /// Computes the rest. `step` counts from 0; it matters only where the schedule was computed before.
    ///
    /// # Errors
    /// As [`Self::run_schedule`].
    pub async fn run_step(&mut self, pass: usize, step: usize) -> Result<()> {
        self.begin_step(pass, step)?;
        self.run(&self.step[pass]).await
    }

    fn begin_step(&mut self, pass: usize, step: usize) -> Result<()> {
        self.ready()?;
        self.check_pass(pass)?;
        if let (Some(buffer), Some(steps)) = (&self.buffers.step, self.plan.program.steps) {
            if step >= steps {
                return Err(self.fault(format!("step {step} of {steps}")));
            }
            let words = [step as u32, 0, 0, 0].map(u32::to_le_bytes);
            self.gpu.write(buffer, 0, words.as_flattened());
        }
        Ok(())
    }

    async fn run(&self, submissions: &[Submission]) -> Result<()> {
        for submission in submissions {
            let mut encoder = self.gpu.encoder(self.plan.graph.name);
            {
                let descriptor = wgpu::ComputePassDescriptor::default();
                let mut compute = encoder.begin_compute_pass(&descriptor);
                encode(&mut compute, &submission.dispatches);
            }
            self.gpu.submit(encoder).await?;
        }
        Ok(())
    }

    /// The values of an output, those of all passes one after another.
    ///
    /// # Errors
    /// [`Error::Plan`] when there is no such output; [`Error::DeviceLost`] when the GPU went away.
    pub async fn read_output(&mut self, name: &str) -> Result<Vec<f32>> {
        let port = port(&self.plan.program.outputs, name)
            .ok_or_else(|| self.fault(format!("it has no output {name}")))?;
        let bytes = self.plan.program.slot(port.slot).bytes;
        let passes = self.plan.arena.passes;
        let mut encoder = self.gpu.encoder("read back");
        for pass in 0..passes {
            let place = self.plan.arena.place(port.slot, pass);
            encoder.copy_buffer_to_buffer(
                self.buffers.arena[place.buffer].raw(),
                place.offset,
                self.buffers.read_back.raw(),
                pass as u64 * bytes,
                bytes,
            );
        }
        self.gpu.submit(encoder).await?;
        let read = self
            .gpu
            .read(&self.buffers.read_back, bytes * passes as u64)
            .await?;
        let (words, _) = read.as_chunks::<4>();
        Ok(words.iter().map(|&word| f32::from_le_bytes(word)).collect())
    }

    /// Waits until everything that was asked for has been computed.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] and other faults of the GPU.
    pub async fn finish(&self) -> Result<()> {
        self.gpu.finish().await
    }

    fn check_pass(&self, pass: usize) -> Result<()> {
        let passes = self.plan.arena.passes;
        if pass < passes {
            return Ok(());
        }
        Err(self.fault(format!("pass {pass} of {passes}")))
    }

    fn fault(&self, why: String) -> Error {
        Error::Plan {
            network: self.plan.graph.name.to_owned(),
            why,
        }
    }
}

fn encode<'a>(
    compute: &mut wgpu::ComputePass<'_>,
    dispatches: impl IntoIterator<Item = &'a Ready>,
) {
    for dispatch in dispatches {
        compute.set_pipeline(&dispatch.pipeline);
        compute.set_bind_group(0, &dispatch.bind_group, &[]);
        let [x, y, z] = dispatch.workgroups;
        compute.dispatch_workgroups(x, y, z);
    }
}

fn port(ports: &[Port], name: &str) -> Option<Port> {
    ports.iter().find(|port| port.name == name).copied()
}

/// The buffer and the range behind an operand in one pass.
fn resource<'a>(
    plan: &Plan,
    buffers: &'a Buffers,
    place: Place,
    pass: usize,
) -> Option<(&'a GpuBuffer, u64)> {
    match place {
        Place::Arena { slot, .. } => {
            let place = plan.arena.place(slot, pass);
            Some((&buffers.arena[place.buffer], place.offset))
        }
        Place::Weight(weight) => {
            let (place, _) = plan.weights.place(weight);
            Some((&buffers.weights.buffers[place.buffer], place.offset))
        }
        Place::Step => Some((buffers.step.as_ref()?, 0)),
    }
}
