//! Progress and cancellation travel together, in one direction: the work tells an [`Observer`] and asks it whether to go on.

use crate::{Error, Result};

/// What has been reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// Bytes of the model have arrived.
    Download {
        /// Bytes so far, over all files.
        received_bytes: u64,
        /// Bytes in all, where they are known.
        total_bytes: Option<u64>,
    },
    /// The engine is being made ready.
    Prepare,
    /// The text encoder begins.
    Encode,
    /// A denoising step is done; step 0 of `steps` means that the first one begins.
    Denoise {
        /// Model calls done.
        step: usize,
        /// Model calls in all (PNDM makes one more than the user's steps).
        steps: usize,
        /// The latents after the step, `[channels, h, w]`.
        latents: &'a [f32],
    },
    /// The VAE begins.
    Decode,
}

/// Hears of progress and may end the work.
pub trait Observer {
    /// Called at every event; must be quick.
    fn notify(&mut self, event: Event<'_>);

    /// Whether the user has cancelled.
    fn is_cancelled(&self) -> bool;

    /// Gives the thread back for a moment, so that a cancel can arrive. Called between steps and between files' chunks.
    #[allow(async_fn_in_trait)]
    async fn breathe(&mut self);
}

/// Notifies, breathes, and ends the work if it was cancelled.
pub(crate) async fn checkpoint(observer: &mut impl Observer, event: Event<'_>) -> Result<()> {
    observer.notify(event);
    observer.breathe().await;
    if observer.is_cancelled() {
        Err(Error::Cancelled)
    } else {
        Ok(())
    }
}

/// An observer that neither listens nor cancels.
#[derive(Debug, Default, Clone, Copy)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn notify(&mut self, _event: Event<'_>) {}

    fn is_cancelled(&self) -> bool {
        false
    }

    async fn breathe(&mut self) {}
}
