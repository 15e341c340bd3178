//! A planned network on a GPU: everything is made once, then a step is one small upload and a few command buffers.
//!
//! Buffers: those of the arena, those of the weights, one of parameters, one that tells the step, one through which results are read.
//! Together they are to the byte what [`super::StageMemory`] promises. Weights on their way into the kernels' layout pass through the arena,
//! which holds nothing between two runs but what is kept in buffers apart.

mod autotune;
mod prepare;
mod timing;
mod upload;
mod weights;

use std::sync::Arc;

use super::{
    Place, Plan, Port, StageMemory, WeightId,
    gpu::{BufferUse, Gpu, GpuBuffer, Pipeline},
    program::Keep,
};
use crate::{Error, Result, kernels::Tuning};
pub use autotune::TileTimes;
use prepare::{Prepared, Ready, cut};
use upload::Uploads;

pub use weights::NetworkWeights;

/// How a network is replayed. Nothing here changes one bit of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Choices of the launches.
    pub tuning: Tuning,
    /// A submission ends when its work, as multiply-adds and bytes, is more than this: a GPU that is busy for long draws no page.
    pub work_per_submission: u64,
    /// Whether that is only where a device begins: then it follows the time that submissions take, to some tens of milliseconds.
    pub is_adaptive: bool,
}

impl ReplayOptions {
    /// A few milliseconds of a small GPU.
    pub const WORK_PER_SUBMISSION: u64 = 1_000_000_000;

    /// A few tens of milliseconds of an adapter that is software on a CPU.
    pub const SOFTWARE_WORK_PER_SUBMISSION: u64 = 100_000_000;

    /// What suits a GPU.
    #[must_use]
    pub fn new(gpu: &Gpu) -> Self {
        Self {
            tuning: gpu.tuning(),
            work_per_submission: match gpu.is_software() {
                true => Self::SOFTWARE_WORK_PER_SUBMISSION,
                false => Self::WORK_PER_SUBMISSION,
            },
            is_adaptive: true,
        }
    }
}

/// A network in GPU memory.
#[derive(Debug)]
pub struct Network {
    gpu: Arc<Gpu>,
    plan: Plan,
    buffers: Buffers,
    options: ReplayOptions,
    schedule: Vec<Ready>,
    /// Of each pass.
    image: Vec<Vec<Ready>>,
    /// Of each pass.
    step: Vec<Vec<Ready>>,
    /// Pipelines that may not be compiled yet.
    pipelines: Vec<Arc<Pipeline>>,
    uploads: Uploads,
    submissions: usize,
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
    /// Makes all buffers and bind groups of a plan and asks for its pipelines, which compile from now on in a browser and when they are
    /// waited for natively, many at once. The weights come later, with [`Self::upload`].
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
        let prepared = Prepared::new(&plan, gpu.limits(), &options.tuning)?;
        let buffers = Self::buffers(gpu, &plan, weights, &prepared).await?;
        let [schedule, image, step] = gpu
            .validated(plan.graph.name, || {
                prepared.dispatches(gpu, &plan, &buffers)
            })
            .await?;
        let lists = schedule.iter().chain(&image).chain(&step).flatten();
        let mut pipelines: Vec<_> = lists
            .map(|ready| Arc::clone(&ready.bound.pipeline))
            .collect();
        pipelines.sort_by_key(Arc::as_ptr);
        pipelines.dedup_by_key(|pipeline| Arc::as_ptr(pipeline));
        Ok(Self {
            gpu: Arc::clone(gpu),
            options,
            buffers,
            schedule: schedule.into_iter().next().unwrap_or_default(),
            image,
            step,
            pipelines,
            submissions: 0,
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
        let mut arena = Vec::new();
        for &bytes in &plan.arena.buffers {
            arena.push(gpu.buffer("arena", bytes, BufferUse::Arena).await?);
        }
        let uniform = BufferUse::Uniform;
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
                BufferUse::ReadBack,
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

    /// Submissions of the last run.
    #[must_use]
    pub fn submissions_per_run(&self) -> usize {
        self.submissions
    }

    /// Waits until its pipelines are compiled. The first run does it too.
    ///
    /// # Errors
    /// [`Error::Plan`] for a kernel that does not compile, which is a bug; [`Error::DeviceLost`] and other faults of the GPU.
    pub async fn ready(&mut self) -> Result<()> {
        let name = self.plan.graph.name;
        self.gpu.compiled(name, &self.pipelines).await?;
        self.pipelines.clear();
        Ok(())
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
        self.begin().await?;
        self.submissions = self.run(&self.schedule).await?;
        Ok(())
    }

    /// Computes what depends on the text of a pass alone. Once a picture.
    ///
    /// # Errors
    /// As [`Self::run_schedule`].
    pub async fn run_image(&mut self, pass: usize) -> Result<()> {
        self.check_pass(pass)?;
        self.begin().await?;
        self.submissions = self.run(&self.image[pass]).await?;
        Ok(())
    }

    /// Computes the rest. `step` counts from 0; it matters only where the schedule was computed before.
    ///
    /// # Errors
    /// As [`Self::run_schedule`].
    pub async fn run_step(&mut self, pass: usize, step: usize) -> Result<()> {
        self.begin_step(pass, step).await?;
        self.submissions = self.run(&self.step[pass]).await?;
        Ok(())
    }

    async fn begin(&mut self) -> Result<()> {
        self.all_uploaded()?;
        self.ready().await
    }

    async fn begin_step(&mut self, pass: usize, step: usize) -> Result<()> {
        self.check_pass(pass)?;
        self.begin().await?;
        if let (Some(buffer), Some(steps)) = (&self.buffers.step, self.plan.program.steps) {
            if step >= steps {
                return Err(self.fault(format!("step {step} of {steps}")));
            }
            let words = [step as u32, 0, 0, 0].map(u32::to_le_bytes);
            self.gpu.write(buffer, 0, words.as_flattened());
        }
        Ok(())
    }

    /// Gives the number of submissions.
    async fn run(&self, mut dispatches: &[Ready]) -> Result<usize> {
        let mut submissions = 0;
        while !dispatches.is_empty() {
            let start = self.options.work_per_submission;
            let work = match self.options.is_adaptive {
                true => self.gpu.work_per_submission(start),
                false => start,
            };
            let (now, work, later) = cut(dispatches, work);
            let mut encoder = self.gpu.encoder(self.plan.graph.name);
            encoder.compute(None, now.iter().map(|ready| &ready.bound))?;
            self.gpu.submit(encoder, work).await?;
            submissions += 1;
            dispatches = later;
        }
        Ok(submissions)
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
            encoder.copy(
                (&self.buffers.arena[place.buffer], place.offset),
                (&self.buffers.read_back, pass as u64 * bytes),
                bytes,
            );
        }
        self.gpu.submit(encoder, 0).await?;
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
