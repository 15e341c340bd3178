//! The weights of a network in GPU memory. Their layout knows no size, so they stay when a plan of another size, precision or guidance comes.

use std::sync::{Arc, Mutex};

use crate::{
    Error, Result,
    engine::plan::{
        Graph, WeightId, WeightInfo, WeightLayout,
        gpu::{BufferUse, Gpu, GpuBuffer, lock},
    },
};

/// Weights in buffers of their own, shared by all networks that read them, and gone with the last of these.
#[derive(Debug)]
pub struct NetworkWeights {
    infos: Vec<WeightInfo>,
    layout: WeightLayout,
    pub(super) buffers: Vec<GpuBuffer>,
    /// Rows of each weight that are there.
    rows: Mutex<Vec<usize>>,
}

impl NetworkWeights {
    /// Makes the buffers for the weights of a network; they are filled through a [`super::Network`] that has them.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`], [`Error::OutOfMemory`], [`Error::DeviceLost`].
    pub async fn new(gpu: &Gpu, graph: &Graph) -> Result<Arc<Self>> {
        let layout = WeightLayout::new(graph, gpu.limits());
        let mut buffers = Vec::with_capacity(layout.buffers.len());
        for &bytes in &layout.buffers {
            buffers.push(gpu.buffer("weights", bytes, BufferUse::Weights).await?);
        }
        // never leaves its thread where GPU objects cannot
        #[allow(clippy::arc_with_non_send_sync)]
        Ok(Arc::new(Self {
            rows: Mutex::new(vec![0; graph.weights.len()]),
            infos: graph.weights.clone(),
            layout,
            buffers,
        }))
    }

    /// Bytes of all buffers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// Whether they are the weights of a plan: the same names and shapes at the same places.
    pub(super) fn check(&self, graph: &Graph, layout: &WeightLayout) -> Result<()> {
        if self.infos == graph.weights && self.layout == *layout {
            return Ok(());
        }
        Err(Error::Plan {
            network: graph.name.to_owned(),
            why: "the weights that are there are those of another network".to_owned(),
        })
    }

    /// Rows of a weight that are there.
    pub(super) fn rows(&self, weight: WeightId) -> usize {
        lock(&self.rows)[weight.0]
    }

    pub(super) fn set_rows(&self, weight: WeightId, rows: usize) {
        lock(&self.rows)[weight.0] = rows;
    }

    pub(super) fn forget(&self) {
        lock(&self.rows).fill(0);
    }
}
