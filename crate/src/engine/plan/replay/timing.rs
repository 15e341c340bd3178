//! The time of every call of a step, by the GPU's own clock: the tool by which slow kernels are found.

use super::Network;
use crate::{Error, Result, engine::plan::gpu::BufferUse};

/// Queries of one set; WebGPU's limit is 4096.
const QUERIES: usize = 4096;

/// Bytes of a timestamp.
const TIMESTAMP_BYTES: u64 = 8;

impl Network {
    /// Runs a step with a compute pass for each call, and gives the nanoseconds of each, in the order of `plan().program.step`.
    /// Browsers round timestamps; the sum is more than a step takes otherwise.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the adapter has no timestamps; else as [`Self::run_step`].
    pub async fn time_step(&mut self, pass: usize, step: usize) -> Result<Vec<f64>> {
        if !self.gpu.has_timestamps() {
            let rule = "needs an adapter with timestamp queries, and this one has none";
            return Err(Error::invalid("timing of calls", rule));
        }
        self.begin_step(pass, step).await?;
        let gpu = &self.gpu;
        let dispatches = &self.step[pass];
        let calls: Vec<_> = dispatches.chunk_by(|a, b| a.call == b.call).collect();
        let mut times = Vec::with_capacity(calls.len());
        let bytes = TIMESTAMP_BYTES * QUERIES as u64;
        let resolved = gpu.buffer("timestamps", bytes, BufferUse::Timestamps);
        let resolved = resolved.await?;
        let read_back = gpu.buffer("timestamps", bytes, BufferUse::ReadBack).await?;
        let queries = gpu.device().queries(QUERIES as u32);
        let period = gpu.device().timestamp_period();
        for calls in calls.chunks(QUERIES / 2) {
            let mut encoder = gpu.encoder("timed");
            for (call, first) in calls.iter().zip((0..).step_by(2)) {
                let bound = call.iter().map(|ready| &ready.bound);
                encoder.compute(Some((&queries, first)), bound)?;
            }
            let count = 2 * calls.len() as u32;
            let bytes = TIMESTAMP_BYTES * u64::from(count);
            encoder.resolve(&queries, count, &resolved);
            encoder.copy((&resolved, 0), (&read_back, 0), bytes);
            gpu.submit(encoder, 0).await?;
            let ticks = gpu.read(&read_back, bytes).await?;
            let (ticks, _) = ticks.as_chunks::<8>();
            times.extend(ticks.chunks_exact(2).map(|pair| {
                let [start, end] = [pair[0], pair[1]].map(u64::from_le_bytes);
                end.saturating_sub(start) as f64 * period
            }));
        }
        queries.destroy();
        Ok(times)
    }
}
