//! The limits that a device is asked for.

use crate::{Error, Result, kernels::Limits};

/// The default limits raised to those that are needed.
pub(super) fn required(needed: &Limits, available: &wgpu::Limits) -> Result<wgpu::Limits> {
    let mut limits = wgpu::Limits::default();
    let at_least = |limit: &str, needed: u64, available: u64| {
        if needed <= available {
            return Ok(());
        }
        Err(Error::LimitTooSmall {
            limit: limit.to_owned(),
            needed,
            available,
        })
    };
    at_least(
        "maxStorageBufferBindingSize",
        needed.max_storage_buffer_binding_bytes,
        available.max_storage_buffer_binding_size,
    )?;
    at_least(
        "maxBufferSize",
        needed.max_buffer_bytes,
        available.max_buffer_size,
    )?;
    limits.max_storage_buffer_binding_size = limits
        .max_storage_buffer_binding_size
        .max(needed.max_storage_buffer_binding_bytes);
    limits.max_buffer_size = limits.max_buffer_size.max(needed.max_buffer_bytes);
    for (limit, needed, available, required) in [
        (
            "maxComputeWorkgroupStorageSize",
            needed.max_workgroup_memory_bytes,
            available.max_compute_workgroup_storage_size,
            &mut limits.max_compute_workgroup_storage_size,
        ),
        (
            "maxStorageBuffersPerShaderStage",
            needed.max_storage_buffers,
            available.max_storage_buffers_per_shader_stage,
            &mut limits.max_storage_buffers_per_shader_stage,
        ),
        (
            "maxComputeWorkgroupsPerDimension",
            needed.max_workgroups_per_dimension,
            available.max_compute_workgroups_per_dimension,
            &mut limits.max_compute_workgroups_per_dimension,
        ),
        (
            "maxComputeInvocationsPerWorkgroup",
            needed.max_invocations_per_workgroup,
            available.max_compute_invocations_per_workgroup,
            &mut limits.max_compute_invocations_per_workgroup,
        ),
    ] {
        at_least(limit, u64::from(needed), u64::from(available))?;
        *required = needed.max(*required);
    }
    Ok(limits)
}
