//! Commands of one submission.

use super::{Buffer, QuerySet};
use crate::{
    Result,
    engine::plan::gpu::{BoundCall, GpuBuffer},
};

/// Gathers commands.
#[derive(Debug)]
pub(in crate::engine::plan) struct Encoder(wgpu::CommandEncoder);

impl Encoder {
    pub(super) fn new(encoder: wgpu::CommandEncoder) -> Self {
        Self(encoder)
    }

    pub(super) fn finish(self) -> wgpu::CommandBuffer {
        self.0.finish()
    }

    /// Calls, in one compute pass. The times of its begin and end go to two queries from the given one on.
    pub(in crate::engine::plan) fn compute<'a>(
        &mut self,
        timestamps: Option<(&QuerySet, u32)>,
        calls: impl IntoIterator<Item = &'a BoundCall>,
    ) -> Result<()> {
        let timestamp_writes =
            timestamps.map(|(query_set, first)| wgpu::ComputePassTimestampWrites {
                query_set,
                beginning_of_pass_write_index: Some(first),
                end_of_pass_write_index: Some(first + 1),
            });
        let mut pass = self.0.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes,
        });
        for call in calls {
            pass.set_pipeline(call.pipeline.compiled()?);
            pass.set_bind_group(0, &call.bind_group, &[]);
            let [x, y, z] = call.workgroups;
            pass.dispatch_workgroups(x, y, z);
        }
        Ok(())
    }

    /// Copies between two buffers.
    pub(in crate::engine::plan) fn copy(
        &mut self,
        (source, source_offset): (&GpuBuffer, u64),
        (target, target_offset): (&GpuBuffer, u64),
        bytes: u64,
    ) {
        let (source, target): (&Buffer, &Buffer) = (source.raw(), target.raw());
        self.0
            .copy_buffer_to_buffer(source, source_offset, target, target_offset, bytes);
    }

    /// Writes the first `count` timestamps to the start of a buffer.
    pub(in crate::engine::plan) fn resolve(
        &mut self,
        queries: &QuerySet,
        count: u32,
        target: &GpuBuffer,
    ) {
        self.0.resolve_query_set(queries, 0..count, target.raw(), 0);
    }
}
