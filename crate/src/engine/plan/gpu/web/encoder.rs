//! Commands of one submission. No object is made for a call.

use wasm_bindgen::JsValue;

use super::binding::{CommandEncoder, Dict, QuerySet};
use crate::{
    Result,
    engine::plan::gpu::{BoundCall, GpuBuffer},
};

/// Gathers commands.
#[derive(Debug)]
pub(in crate::engine::plan) struct Encoder(CommandEncoder);

impl Encoder {
    pub(super) fn new(encoder: CommandEncoder) -> Self {
        Self(encoder)
    }

    pub(super) fn finish(self) -> JsValue {
        self.0.finish()
    }

    /// Calls, in one compute pass. The times of its begin and end go to two queries from the given one on.
    pub(in crate::engine::plan) fn compute<'a>(
        &mut self,
        timestamps: Option<(&QuerySet, u32)>,
        calls: impl IntoIterator<Item = &'a BoundCall>,
    ) -> Result<()> {
        let descriptor = Dict::new();
        if let Some((queries, first)) = timestamps {
            let writes = Dict::new();
            writes.set_query_set(queries);
            writes.set_beginning_of_pass_write_index(first);
            writes.set_end_of_pass_write_index(first + 1);
            descriptor.set_timestamp_writes(&writes);
        }
        let pass = self.0.begin_compute_pass(&descriptor);
        let mut last: Option<&BoundCall> = None;
        for call in calls {
            if last.is_none_or(|last| !std::sync::Arc::ptr_eq(&last.pipeline, &call.pipeline)) {
                pass.set_pipeline(call.pipeline.compiled()?);
            }
            pass.set_bind_group(0, &call.bind_group);
            let [x, y, z] = call.workgroups;
            pass.dispatch_workgroups(x, y, z);
            last = Some(call);
        }
        pass.end();
        Ok(())
    }

    /// Copies between two buffers.
    pub(in crate::engine::plan) fn copy(
        &mut self,
        (source, source_offset): (&GpuBuffer, u64),
        (target, target_offset): (&GpuBuffer, u64),
        bytes: u64,
    ) {
        self.0.copy_buffer_to_buffer(
            source.raw(),
            source_offset as f64,
            target.raw(),
            target_offset as f64,
            bytes as f64,
        );
    }

    /// Writes the first `count` timestamps to the start of a buffer.
    pub(in crate::engine::plan) fn resolve(
        &mut self,
        queries: &QuerySet,
        count: u32,
        target: &GpuBuffer,
    ) {
        self.0
            .resolve_query_set(queries, 0, count, target.raw(), 0.0);
    }
}
