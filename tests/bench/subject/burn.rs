//! The burn-wgpu engine.

use latent_canvas::{
    Result,
    engine::{Eager, Engine, burn::BurnEngine, burn_wgpu},
    models::weights::Weights,
};
use weights_loader::{MemorySource, load_safetensors};

use crate::{model::Model, rows::Job};

/// A network of burn tensors with its inputs.
pub struct BurnSubject {
    engine: BurnEngine,
    adapter: String,
    model: Model<BurnEngine>,
    inputs: Vec<<BurnEngine as Engine>::Tensor>,
}

impl BurnSubject {
    /// Builds the network and uploads weights and inputs.
    ///
    /// # Errors
    /// Faults of the weights and of the GPU.
    pub async fn new(job: &Job, weights: &[u8]) -> Result<Self> {
        let (engine, adapter) = burn_wgpu::request().await?;
        let declared = Weights::new(&engine);
        let model = Model::new(&declared, job)?;
        if !weights.is_empty() {
            let source = MemorySource::new(job.row.name, weights.to_vec());
            let mut sink = declared.into_sink(job.component(), job.row.name);
            load_safetensors(&source, None, &mut sink, &mut |_| Ok(())).await?;
        }
        let inputs = job.inputs();
        let inputs = inputs
            .iter()
            .map(|input| engine.input(input.shape, &input.values))
            .collect();
        Ok(Self {
            adapter,
            model,
            inputs,
            engine,
        })
    }

    pub(super) fn adapter(&self) -> &str {
        &self.adapter
    }

    /// burn only queues work; reading the last result waits for all of it.
    pub(super) async fn run(&mut self, times: usize) -> Result<Vec<f32>> {
        for _ in 1..times {
            drop(self.model.forward(&self.engine, &self.inputs));
        }
        let last = self.model.forward(&self.engine, &self.inputs);
        self.engine.read(last).await
    }
}
