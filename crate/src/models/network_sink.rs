//! A file of weights, streamed into a network in GPU memory: no tensor is ever whole in the memory of the program.

use std::collections::BTreeMap;

use weights_loader::{LoadError, SafetensorsIndex, TensorInfo, TensorSink};

use super::{
    names::{Component, Name, checkpoint_name},
    weights::check_header,
};
use crate::{
    Error,
    engine::plan::{Network, WeightId},
};

/// Bytes that are gathered before they go to the GPU: a network's pieces are small, and each write costs.
const SLAB_BYTES: usize = 1 << 20;

/// Fills a network from a stream.
#[derive(Debug)]
pub struct NetworkSink<'a> {
    network: &'a mut Network,
    component: Component,
    file: String,
    /// What has arrived of the current tensor and is not with the GPU yet: less than a slab and a row.
    slab: Vec<u8>,
}

impl<'a> NetworkSink<'a> {
    /// A sink for the file `file` of `component`.
    #[must_use]
    pub fn new(network: &'a mut Network, component: Component, file: &str) -> Self {
        Self {
            network,
            component,
            file: file.to_owned(),
            slab: Vec::new(),
        }
    }

    fn weight(&self, tensor: &TensorInfo) -> Option<WeightId> {
        match checkpoint_name(self.component, &tensor.name) {
            Name::Weight(name) => self.network.weight(&name),
            Name::Ignored => None,
        }
    }

    /// Gives the GPU all whole rows of the slab.
    fn send(&mut self, weight: WeightId, tensor: &TensorInfo) -> Result<(), LoadError> {
        let row_bytes = self.network.row_bytes(weight, tensor).map_err(load_error)?;
        let whole = self.slab.len() / row_bytes.max(1) * row_bytes;
        self.network
            .upload_rows(weight, tensor, &self.slab[..whole])
            .map_err(load_error)?;
        self.slab.drain(..whole);
        Ok(())
    }
}

impl TensorSink for NetworkSink<'_> {
    fn begin(&mut self, index: &SafetensorsIndex) -> Result<(), LoadError> {
        let weights = &self.network.plan().graph.weights;
        let declared: BTreeMap<&str, &[usize]> = weights
            .iter()
            .map(|weight| (weight.name.as_str(), weight.shape.as_slice()))
            .collect();
        check_header(&self.file, self.component, index, &declared)?;
        self.network.forget_weights();
        Ok(())
    }

    fn chunk(
        &mut self,
        tensor: &TensorInfo,
        _offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), LoadError> {
        let Some(weight) = self.weight(tensor) else {
            return Ok(());
        };
        for piece in bytes.chunks(SLAB_BYTES) {
            self.slab.extend_from_slice(piece);
            if self.slab.len() >= SLAB_BYTES {
                self.send(weight, tensor)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, tensor: &TensorInfo) -> Result<(), LoadError> {
        let Some(weight) = self.weight(tensor) else {
            return Ok(());
        };
        self.send(weight, tensor)
    }
}

fn load_error(error: Error) -> LoadError {
    match error {
        Error::Load(error) => error,
        other => LoadError::Storage {
            why: other.to_string(),
        },
    }
}
