//! From the arguments of a kernel to its dispatches: which range is bound where, which source, how many workgroups.

use super::{
    Kernel, Launch, Limits, Operand, Storage, Tuning, attention, conv2d, elementwise, embedding,
    gemm, group_norm, layer_norm,
};
use crate::{Error, Result};

impl Kernel {
    /// The dispatches of this call, in the order in which they must run.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`] when a binding, a workgroup count or a number of bindings is more than `limits` allow.
    pub fn launches(&self, limits: &Limits, tuning: &Tuning) -> Result<Vec<Launch>> {
        let launches = match self {
            Self::Gemm(args) => gemm::launches(args, limits, tuning),
            Self::Conv2d(args) => conv2d::launches(args, limits, tuning),
            Self::GroupNorm(args) => group_norm::launches(args, limits),
            Self::GroupStatistics(args) => vec![group_norm::statistics(args)],
            Self::GroupCombine(args) => vec![group_norm::combine(args)],
            Self::GroupApply(args) => vec![group_norm::apply(args, limits)],
            Self::LayerNorm(args) => layer_norm::launches(args, limits),
            Self::Attention(args) => attention::launches(args, limits, tuning)?,
            Self::Embedding(args) => embedding::launches(args, limits),
            Self::Elementwise(args) => elementwise::launches(args, limits),
        };
        let operands = self.operands();
        for launch in &launches {
            check(launch, &operands, limits)?;
        }
        Ok(launches)
    }
}

pub(super) fn check(launch: &Launch, operands: &[Operand], limits: &Limits) -> Result<()> {
    let at_most = |limit: &str, needed: u64, available: u64| {
        if needed <= available {
            return Ok(());
        }
        Err(Error::LimitTooSmall {
            limit: limit.to_owned(),
            needed,
            available,
        })
    };
    let mut buffers = 0;
    for binding in &launch.bindings {
        let storage = operands.get(binding.operand).map(|operand| operand.storage);
        if storage != Some(Storage::Step) {
            buffers += 1;
            at_most(
                "maxStorageBufferBindingSize",
                binding.bytes,
                limits.max_storage_buffer_binding_bytes,
            )?;
        }
    }
    at_most(
        "maxStorageBuffersPerShaderStage",
        buffers,
        u64::from(limits.max_storage_buffers),
    )?;
    let most = launch.workgroups.into_iter().max().unwrap_or_default();
    at_most(
        "maxComputeWorkgroupsPerDimension",
        u64::from(most),
        u64::from(limits.max_workgroups_per_dimension),
    )?;
    at_most(
        "maxComputeInvocationsPerWorkgroup",
        256,
        u64::from(limits.max_invocations_per_workgroup),
    )?;
    at_most(
        "maxComputeWorkgroupStorageSize",
        WORKGROUP_MEMORY_BYTES,
        u64::from(limits.max_workgroup_memory_bytes),
    )
}

/// What every kernel keeps to.
const WORKGROUP_MEMORY_BYTES: u64 = 16 << 10;
