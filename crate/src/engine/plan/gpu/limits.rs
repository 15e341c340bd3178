//! The limits that a device is asked for.

use crate::{Error, Result, kernels::Limits};

/// The limits that matter here, by WebGPU's name, and what is needed of each.
fn rows(needed: &Limits) -> [(&'static str, u64); 6] {
    [
        (
            "maxStorageBufferBindingSize",
            needed.max_storage_buffer_binding_bytes,
        ),
        ("maxBufferSize", needed.max_buffer_bytes),
        (
            "maxComputeWorkgroupStorageSize",
            u64::from(needed.max_workgroup_memory_bytes),
        ),
        (
            "maxStorageBuffersPerShaderStage",
            u64::from(needed.max_storage_buffers),
        ),
        (
            "maxComputeWorkgroupsPerDimension",
            u64::from(needed.max_workgroups_per_dimension),
        ),
        (
            "maxComputeInvocationsPerWorkgroup",
            u64::from(needed.max_invocations_per_workgroup),
        ),
    ]
}

/// What has to be asked for above the default, of an adapter that offers `available`.
pub(super) fn raised(
    needed: &Limits,
    available: impl Fn(&str) -> u64,
) -> Result<Vec<(&'static str, u64)>> {
    let mut raised = Vec::new();
    for ((limit, needed), (_, default)) in rows(needed).into_iter().zip(rows(&Limits::DEFAULT)) {
        let available = available(limit);
        if needed > available {
            return Err(Error::LimitTooSmall {
                limit: limit.to_owned(),
                needed,
                available,
            });
        }
        if needed > default {
            raised.push((limit, needed));
        }
    }
    Ok(raised)
}
