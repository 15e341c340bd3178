//! The plan engine's half that needs no GPU: a network is recorded once, its operations become kernel calls, and every activation gets
//! a place in an arena before a byte of the model is downloaded.
//!
//! [`recorder`] -> [`graph`] -> `lower` (which operations one kernel does, which are cut into strips, and where it may write in place) ->
//! `liveness` -> `arena` (places) -> `verify` (the proof) -> `memory_plan` (the promise).

pub mod arena;
pub mod calls;
mod choose;
mod fuse;
#[cfg(feature = "plan")]
pub mod gpu;
pub mod graph;
mod in_place;
pub mod layout;
pub mod liveness;
mod lower;
pub mod memory_plan;
pub mod options;
pub mod program;
pub mod recorder;
#[cfg(feature = "plan")]
pub mod replay;
#[cfg(feature = "plan")]
mod signal;
mod storage;
mod strip_calls;
mod strip_demand;
mod strip_rows;
mod strips;
mod tiling;
mod verify;
mod verify_rows;

pub use calls::{CallRow, Part};
#[cfg(feature = "plan")]
pub use gpu::{BufferUse, Gpu, GpuBuffer, GpuMemory};
pub use graph::{Graph, Node, Op, Rate, ValueId, WeightId, WeightInfo};
pub use layout::{ArenaLayout, WeightLayout};
pub use lower::lower;
pub use memory_plan::{Guidance, MemoryPlan, Peak, Residency, StageMemory, Verdict, Work};
pub use options::{AttentionChoice, Fusions, LowerOptions, Strips};
pub use program::{Dispatch, Keep, Place, Port, Program, Slot, SlotId, SlotPart};
pub use recorder::{Recorder, Symbolic};
#[cfg(feature = "plan")]
pub use replay::{CountedBytes, Network, NetworkWeights, ReplayOptions, TileTimes};
pub use tiling::{VaeMethod, VaeTiling};
pub use verify::{PlanFault, verify};

use crate::{Error, Result, kernels::Limits};

/// A network that is ready to be run on a GPU: its kernel calls, and where everything lies. Proved right when it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The recording.
    pub graph: Graph,
    /// The kernel calls.
    pub program: Program,
    /// Places of the activations.
    pub arena: ArenaLayout,
    /// Places of the weights.
    pub weights: WeightLayout,
}

impl Plan {
    /// Plans a recorded network whose step runs `passes` times, each with its own text. Buffers and offsets respect `limits`;
    /// whether bindings do is for [`MemoryPlan::fits`] to say.
    ///
    /// # Errors
    /// [`Error::Config`] for an operation that no kernel does; [`Error::Plan`] when the proof fails, which is a bug.
    pub fn new(
        graph: Graph,
        options: &LowerOptions,
        passes: usize,
        limits: &Limits,
    ) -> Result<Self> {
        let program = lower(&graph, options)?;
        let arena = ArenaLayout::new(&program, passes, limits);
        let weights = WeightLayout::new(&graph, limits);
        verify(&program, &arena, &weights, limits).map_err(|fault| Error::Plan {
            network: graph.name.to_owned(),
            why: fault.to_string(),
        })?;
        Ok(Self {
            graph,
            program,
            arena,
            weights,
        })
    }
}
