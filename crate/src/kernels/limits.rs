//! The WebGPU limits that a plan has to respect.

/// The limits that decide how tensors are placed and bound. Units are bytes unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `maxStorageBufferBindingSize`
    pub max_storage_buffer_binding_bytes: u64,
    /// `maxBufferSize`
    pub max_buffer_bytes: u64,
    /// `minStorageBufferOffsetAlignment`; also used for uniform offsets, whose default is the same.
    pub offset_alignment_bytes: u64,
    /// `maxComputeWorkgroupStorageSize`
    pub max_workgroup_memory_bytes: u32,
    /// `maxStorageBuffersPerShaderStage`
    pub max_storage_buffers: u32,
    /// `maxComputeWorkgroupsPerDimension`
    pub max_workgroups_per_dimension: u32,
    /// `maxComputeInvocationsPerWorkgroup`
    pub max_invocations_per_workgroup: u32,
}

impl Limits {
    /// What every WebGPU implementation offers (WebGPU specification, "Limits", default values).
    pub const DEFAULT: Self = Self {
        max_storage_buffer_binding_bytes: 128 << 20,
        max_buffer_bytes: 256 << 20,
        offset_alignment_bytes: 256,
        max_workgroup_memory_bytes: 16 << 10,
        max_storage_buffers: 8,
        max_workgroups_per_dimension: 65_535,
        max_invocations_per_workgroup: 256,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
