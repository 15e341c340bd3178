//! The plan engine.

use std::sync::Arc;

use latent_canvas::{
    Result,
    engine::plan::{CallRow, Fusions, Gpu, LowerOptions, Network, Part, Plan, Rate, ReplayOptions},
    kernels::{Limits, Precision},
    models::network_sink::NetworkSink,
};
use weights_loader::{MemorySource, load_safetensors};

use crate::{
    model::OUTPUT,
    rows::{Input, Job},
};

/// Steps of the schedule whose time embeddings are computed once a picture.
pub const STEPS: usize = 20;

/// A device with WebGPU's default limits.
///
/// # Errors
/// [`latent_canvas::Error::NoWebGpu`] when there is none.
pub async fn request() -> Result<Arc<Gpu>> {
    let gpu = Gpu::request(&Limits::DEFAULT).await?;
    // never leaves its thread where GPU objects cannot
    #[allow(clippy::arc_with_non_send_sync)]
    Ok(Arc::new(gpu))
}

/// How the work is planned and replayed.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How it is lowered.
    pub lower: LowerOptions,
    /// Passes that the batch is cut into.
    pub passes: usize,
    /// How it is replayed.
    pub replay: ReplayOptions,
}

impl Settings {
    /// Everything on, activations of `precision`.
    #[must_use]
    pub fn new(gpu: &Gpu, precision: Precision) -> Self {
        Self {
            lower: LowerOptions {
                hoist_schedule: Some(STEPS),
                ..LowerOptions::new(precision)
            },
            passes: 1,
            replay: ReplayOptions::new(gpu),
        }
    }

    /// The same with float32 activations, as all engines that it is compared with have.
    #[must_use]
    pub fn exact(gpu: &Gpu) -> Self {
        Self::new(gpu, Precision::F32)
    }
}

async fn fill(network: &mut Network, job: &Job, weights: &[u8]) -> Result<()> {
    let source = MemorySource::new(job.row.name, weights.to_vec());
    let mut sink = NetworkSink::new(network, job.component(), job.row.name);
    load_safetensors(&source, None, &mut sink, &mut |_| Ok(())).await?;
    Ok(())
}

/// A network of the plan engine with its inputs.
pub struct PlanSubject {
    gpu: Arc<Gpu>,
    network: Network,
    inputs: Vec<Input>,
    settings: Settings,
}

impl PlanSubject {
    /// Records, plans, and uploads the weights.
    ///
    /// # Errors
    /// Faults of the plan, of the weights and of the GPU.
    pub async fn new(
        gpu: &Arc<Gpu>,
        job: &Job,
        weights: &[u8],
        settings: &Settings,
    ) -> Result<Self> {
        let plan = settings.plan(gpu, job)?;
        let network = if weights.is_empty() {
            Network::new(gpu, plan, settings.replay).await?
        } else if let Some(graph) = job.loader_graph()? {
            let plain = LowerOptions {
                fusions: Fusions::NONE,
                ..settings.lower
            };
            let loader = Plan::new(graph, &plain, 1, gpu.limits())?;
            let mut loader = Network::new(gpu, loader, settings.replay).await?;
            fill(&mut loader, job, weights).await?;
            Network::with_weights(gpu, plan, loader.weights(), settings.replay).await?
        } else {
            let mut network = Network::new(gpu, plan, settings.replay).await?;
            fill(&mut network, job, weights).await?;
            network
        };
        Ok(Self {
            gpu: Arc::clone(gpu),
            network,
            inputs: job.inputs(),
            settings: *settings,
        })
    }

    /// The network.
    #[must_use]
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Every call of the work with its time, where the adapter has timestamps.
    ///
    /// # Errors
    /// Faults of the GPU.
    pub async fn calls(&mut self) -> Result<Vec<CallRow>> {
        self.network.time_calls(Part::Step, 0, 0).await
    }

    pub(super) fn adapter(&self) -> &str {
        self.gpu.adapter()
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.gpu.memory().peak_bytes()
    }

    /// Writes the inputs, and computes what depends on schedule and text alone.
    ///
    /// # Errors
    /// Faults of the GPU.
    pub async fn begin(&mut self) -> Result<()> {
        let (steps, passes) = (self.network.plan().program.steps, self.settings.passes);
        for input in &self.inputs {
            if input.rate == Rate::Schedule {
                let all = input.values.repeat(steps.unwrap_or(1));
                self.network.write_input(input.name, 0, &all)?;
            } else {
                for pass in 0..passes {
                    self.write_piece(input, pass)?;
                }
            }
        }
        if steps.is_some() {
            self.network.run_schedule().await?;
        }
        for pass in 0..passes {
            self.network.run_image(pass).await?;
        }
        self.network.finish().await
    }

    /// Does the work `times` times and waits for it.
    ///
    /// # Errors
    /// Faults of the GPU.
    pub async fn steps(&mut self, times: usize) -> Result<()> {
        let passes = self.settings.passes;
        for time in 0..times {
            for pass in 0..passes {
                // passes share what belongs to a step, and here it differs; one pass finds it where `begin` left it
                if passes > 1 {
                    let of_step = self.inputs.iter().filter(|input| input.rate == Rate::Step);
                    for input in of_step {
                        self.write_piece(input, pass)?;
                    }
                }
                self.network.run_step(pass, time % STEPS).await?;
            }
        }
        self.network.finish().await
    }

    fn write_piece(&self, input: &Input, pass: usize) -> Result<()> {
        let each = input.values.len() / self.settings.passes;
        let piece = &input.values[pass * each..][..each];
        self.network.write_input(input.name, pass, piece)
    }

    pub(super) async fn run(&mut self, times: usize) -> Result<Vec<f32>> {
        self.steps(times).await?;
        self.network.read_output(OUTPUT).await
    }
}

impl Settings {
    /// The plan of a row.
    ///
    /// # Errors
    /// Faults of the plan.
    pub fn plan(&self, gpu: &Gpu, job: &Job) -> Result<Plan> {
        Plan::new(
            job.graph(self.passes)?,
            &self.lower,
            self.passes,
            gpu.limits(),
        )
    }
}
