//! From the arguments of a kernel to its dispatches: which range is bound where, which source, how many workgroups.

use super::{
    Kernel, Launch, Limits, Operand, Storage, attention, conv2d, elementwise, embedding, gemm,
    group_norm, layer_norm,
};
use crate::{Error, Result};

/// Size of the tile of a matrix product. It changes the speed and not one bit of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tile {
    /// 64 x 64 outputs by 256 threads, 4 x 4 each.
    Large,
    /// 32 x 32 outputs by 64 threads, 4 x 4 each: more workgroups, for small products.
    Small,
    /// 64 x 64 outputs by 64 threads, 8 x 8 each: half the reads of workgroup memory, twice the registers. For adapters that are
    /// software on a CPU, where such a read is slow and registers are many.
    Wide,
}

impl Tile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Large, Self::Small, Self::Wide];

    /// Rows and columns of the outputs.
    #[must_use]
    pub const fn side(self) -> usize {
        match self {
            Self::Large | Self::Wide => 64,
            Self::Small => 32,
        }
    }

    /// Rows and columns of one thread.
    pub(super) const fn per_thread(self) -> usize {
        match self {
            Self::Large | Self::Small => 4,
            Self::Wide => 8,
        }
    }

    /// Tiles along the columns and along the rows of a product.
    pub(super) fn grid(self, rows: usize, columns: usize) -> [usize; 2] {
        [columns.div_ceil(self.side()), rows.div_ceil(self.side())]
    }
}

/// Choices that change the speed of a launch and not one bit of its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The tile of every matrix product; without it a rule decides by the number of workgroups.
    pub tile: Option<Tile>,
}

impl Tuning {
    /// With fewer large tiles than this a GPU of usual size would stand idle in part.
    const WORKGROUPS_WANTED: usize = 64;

    /// For an adapter that is software on a CPU (lavapipe, SwiftShader): measured there, [`Tile::Wide`] is the fastest at every size.
    pub const SOFTWARE: Self = Self {
        tile: Some(Tile::Wide),
    };

    pub(super) fn tile(self, m: usize, columns: usize) -> Tile {
        let [large_columns, large_rows] = Tile::Large.grid(m, columns);
        self.tile
            .unwrap_or(if large_columns * large_rows >= Self::WORKGROUPS_WANTED {
                Tile::Large
            } else {
                Tile::Small
            })
    }
}

impl Kernel {
    /// The dispatches of this call, in the order in which they must run.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`] when a binding, a workgroup count or a number of bindings is more than `limits` allow.
    pub fn launches(&self, limits: &Limits, tuning: Tuning) -> Result<Vec<Launch>> {
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
