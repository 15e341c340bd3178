//! The time of every call of a step, by the GPU's own clock: the tool by which slow kernels are found.

use super::{Network, encode};
use crate::{Error, Result};

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
        use wgpu::BufferUsages as Usage;
        let features = self.gpu.device().features();
        if !features.contains(wgpu::Features::TIMESTAMP_QUERY) {
            let rule = "needs an adapter with timestamp queries, and this one has none";
            return Err(Error::invalid("timing of calls", rule));
        }
        self.begin_step(pass, step)?;
        let dispatches = self.step[pass].iter().flat_map(|list| &list.dispatches);
        let dispatches: Vec<_> = dispatches.collect();
        let calls: Vec<_> = dispatches.chunk_by(|a, b| a.call == b.call).collect();
        let mut times = Vec::with_capacity(calls.len());
        let bytes = TIMESTAMP_BYTES * QUERIES as u64;
        let resolved = Usage::QUERY_RESOLVE | Usage::COPY_SRC;
        let resolved = self.gpu.buffer("timestamps", bytes, resolved).await?;
        let read_back = Usage::MAP_READ | Usage::COPY_DST;
        let read_back = self.gpu.buffer("timestamps", bytes, read_back).await?;
        let queries = self
            .gpu
            .device()
            .create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: QUERIES as u32,
            });
        for calls in calls.chunks(QUERIES / 2) {
            let mut encoder = self.gpu.encoder("timed");
            for (call, first) in calls.iter().zip((0..).step_by(2)) {
                let mut compute = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label: None,
                    timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                        query_set: &queries,
                        beginning_of_pass_write_index: Some(first),
                        end_of_pass_write_index: Some(first + 1),
                    }),
                });
                encode(&mut compute, call.iter().copied());
            }
            let count = 2 * calls.len() as u32;
            let bytes = TIMESTAMP_BYTES * u64::from(count);
            encoder.resolve_query_set(&queries, 0..count, resolved.raw(), 0);
            encoder.copy_buffer_to_buffer(resolved.raw(), 0, read_back.raw(), 0, bytes);
            self.gpu.submit(encoder).await?;
            let ticks = self.gpu.read(&read_back, bytes).await?;
            let (ticks, _) = ticks.as_chunks::<8>();
            let period = f64::from(self.gpu.queue().get_timestamp_period());
            times.extend(ticks.chunks_exact(2).map(|pair| {
                let [start, end] = [pair[0], pair[1]].map(u64::from_le_bytes);
                end.saturating_sub(start) as f64 * period
            }));
        }
        queries.destroy();
        Ok(times)
    }
}
