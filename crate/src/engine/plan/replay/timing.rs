//! The time of every call of a step, by the GPU's own clock: the tool by which slow kernels are found.

use super::{Network, prepare::Ready};
use crate::{
    Result,
    engine::plan::{CallRow, Part, gpu::BufferUse},
};

/// Queries of one set; WebGPU's limit is 4096.
const QUERIES: usize = 4096;

/// Bytes of a timestamp.
const TIMESTAMP_BYTES: u64 = 8;

impl Network {
    /// The calls of a part, each with the nanoseconds it took, where the adapter has timestamps. Runs the part, with a compute pass for each
    /// call. Browsers round timestamps; the sum is more than the part takes otherwise.
    ///
    /// # Errors
    /// As [`Self::run_step`].
    pub async fn time_calls(
        &mut self,
        part: Part,
        pass: usize,
        step: usize,
    ) -> Result<Vec<CallRow>> {
        let (limits, tuning) = (self.gpu.limits(), &self.options.tuning);
        let mut rows = self.plan.call_rows(part, limits, tuning);
        if !self.gpu.has_timestamps() {
            return Ok(rows);
        }
        self.begin_step(pass, step).await?;
        let dispatches = match part {
            Part::Schedule => &self.schedule,
            Part::Image => &self.image[pass],
            Part::Step => &self.step[pass],
        };
        let times = self.time(dispatches).await?;
        for (row, time) in rows.iter_mut().zip(times) {
            row.nanoseconds = Some(time);
        }
        Ok(rows)
    }

    /// The nanoseconds of each call.
    async fn time(&self, dispatches: &[Ready]) -> Result<Vec<f64>> {
        let gpu = &self.gpu;
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
