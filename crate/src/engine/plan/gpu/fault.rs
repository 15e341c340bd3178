//! What went wrong later than the call that caused it.

use std::sync::{Arc, Mutex};

use super::{GpuMemory, lock};
use crate::{Error, Result};

/// The first fault of a device, shared with its callbacks.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    error: Arc<Mutex<Option<Error>>>,
    memory: Arc<GpuMemory>,
}

impl Fault {
    pub(super) fn new(memory: &Arc<GpuMemory>) -> Self {
        Self {
            error: Arc::default(),
            memory: Arc::clone(memory),
        }
    }

    /// The first fault stays, as later ones follow from it; but a lost device explains all others.
    pub(super) fn note(&self, error: Error) {
        let mut fault = lock(&self.error);
        let explains = matches!(error, Error::DeviceLost { .. })
            && !matches!(*fault, Some(Error::DeviceLost { .. }));
        if fault.is_none() || explains {
            *fault = Some(error);
        }
    }

    /// No memory, where no call waits for the answer.
    pub(super) fn note_out_of_memory(&self) {
        let live_bytes = self.memory.live_bytes();
        self.note(Error::OutOfMemory {
            needed_bytes: live_bytes,
            budget_bytes: live_bytes,
        });
    }

    /// A call that the GPU refused, where none waits for the answer.
    pub(super) fn note_refused(&self, why: String) {
        self.note(Error::Plan {
            network: "gpu".to_owned(),
            why,
        });
    }

    pub(super) fn check(&self) -> Result<()> {
        lock(&self.error).clone().map_or(Ok(()), Err)
    }
}
