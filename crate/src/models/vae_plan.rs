//! How the VAE decodes within what is allowed: whole, in strips, or in tiles, as large as may be.

use super::{record::record_vae_decoder, vae_tiling::TileGrid};
use crate::{
    Result,
    config::VaeConfig,
    engine::plan::{
        ArenaLayout, Graph, LowerOptions, Plan, StageMemory, Strips, VaeMethod, VaeTiling,
        WeightLayout, lower,
    },
    kernels::Limits,
};

/// Tiles that are tried, latents of a side: from the largest that a picture of usual size has several of, to the smallest that still sees
/// enough around each pixel.
const TILES: [usize; 11] = [96, 80, 64, 56, 48, 40, 32, 28, 24, 20, 16];
/// A tile's neighbours share a quarter of it, as in diffusers (`tile_overlap_factor`).
const OVERLAP: usize = 4;
/// Strips of the largest picture that are tried: the fewer, the less is computed again at their edges.
const STRIPS: [u64; 6] = [2, 4, 8, 16, 32, 64];
/// Strips where there is no budget to go by.
const USUAL_STRIPS: u64 = 8;
/// Strips of a tile.
const TILE_STRIPS: u64 = 16;
/// What blended decoding keeps to where it is asked for without a budget.
const BLENDED_BYTES: u64 = 128 << 20;

/// A decoder, planned.
pub(super) struct VaePlan {
    /// Of one tile.
    pub(super) plan: Plan,
    pub(super) grid: TileGrid,
    pub(super) tiling: VaeTiling,
    pub(super) memory: StageMemory,
}

/// What the decoder is planned for.
pub(super) struct VaePlanner<'a> {
    pub(super) config: &'a VaeConfig,
    /// Height and width in latents.
    pub(super) size: [usize; 2],
    pub(super) options: &'a LowerOptions,
    pub(super) limits: &'a Limits,
}

/// A way to decode.
#[derive(Clone, Copy)]
enum Way {
    Whole,
    /// Parts that the largest picture is cut into, and whether it is made twice.
    Exact(u64, bool),
    /// Side of a tile.
    Blended(usize),
}

impl VaePlanner<'_> {
    /// The first that takes at most one of `allowed` bytes, of which the first is preferred: ways that give the same picture before blended
    /// ones, and those that are faster before those that are smaller. Without a budget `allowed` is empty. Where nothing fits, the smallest.
    ///
    /// # Errors
    /// [`crate::Error::Config`] when the config contradicts itself; [`crate::Error::Plan`] for a bug of the planner.
    pub(super) fn choose(&self, method: VaeMethod, allowed: &[u64]) -> Result<VaePlan> {
        let (mut same, blended) = self.ways(method, allowed.is_empty());
        let unlimited = [u64::MAX];
        let forced = [BLENDED_BYTES];
        let allowed_of = |ways: &[Way]| match (allowed, method) {
            ([], VaeMethod::Blended) if !ways.is_empty() => &forced[..],
            ([], _) => &unlimited[..],
            _ => allowed,
        };
        for ways in [&same, &blended] {
            for &bytes in allowed_of(ways) {
                for &way in ways {
                    if let Some(plan) = self.within(way, bytes)? {
                        return Ok(plan);
                    }
                }
            }
        }
        same.extend(blended);
        self.plan(same.last().copied().unwrap_or(Way::Whole))
    }

    /// Bytes of the weights, the same however it decodes.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub(super) fn weights_bytes(&self) -> Result<u64> {
        let [height, width] = self.size;
        let graph = record_vae_decoder(self.config, 1, height, width)?;
        Ok(WeightLayout::new(&graph, self.limits).bytes())
    }

    /// Ways that give the same picture, and blended ones, in the order in which they are tried.
    fn ways(&self, method: VaeMethod, is_unlimited: bool) -> (Vec<Way>, Vec<Way>) {
        let mut same = Vec::new();
        if matches!(method, VaeMethod::Auto | VaeMethod::Whole) {
            same.push(Way::Whole);
        }
        if matches!(method, VaeMethod::Auto | VaeMethod::Exact) {
            if is_unlimited {
                same.push(Way::Exact(USUAL_STRIPS, true));
            } else {
                let ways = [false, true].into_iter().flat_map(|twice| {
                    STRIPS
                        .into_iter()
                        .map(move |strips| Way::Exact(strips, twice))
                });
                same.extend(ways);
            }
        }
        let is_part = |&tile: &usize| self.size.iter().any(|&side| tile < side);
        let blended = match method {
            VaeMethod::Auto | VaeMethod::Blended => {
                let mut tiles: Vec<usize> = TILES.into_iter().filter(is_part).collect();
                if tiles.is_empty() && method == VaeMethod::Blended {
                    // a small picture: half of it is still a tile
                    tiles.push(self.size.into_iter().max().unwrap_or(1).div_ceil(2));
                }
                tiles.into_iter().map(Way::Blended).collect()
            }
            VaeMethod::Whole | VaeMethod::Exact => Vec::new(),
        };
        (same, blended)
    }

    /// The plan, where it takes no more than `bytes` and the GPU allows it.
    fn within(&self, way: Way, bytes: u64) -> Result<Option<VaePlan>> {
        let (graph, options) = self.recorded(way)?;
        // places are looked for only where there is room at all
        let program = lower(&graph, &options)?;
        let least = WeightLayout::new(&graph, self.limits).bytes()
            + ArenaLayout::least_bytes(&program, 1, self.limits);
        if least > bytes {
            return Ok(None);
        }
        let plan = self.finish(way, graph, &options)?;
        let memory = &plan.memory;
        let fits = memory.peak_bytes <= bytes
            && memory.refused.is_none()
            && memory.largest_binding.bytes <= self.limits.max_storage_buffer_binding_bytes
            && memory.largest_buffer_bytes <= self.limits.max_buffer_bytes;
        Ok(fits.then_some(plan))
    }

    fn plan(&self, way: Way) -> Result<VaePlan> {
        let (graph, options) = self.recorded(way)?;
        self.finish(way, graph, &options)
    }

    fn finish(&self, way: Way, graph: Graph, options: &LowerOptions) -> Result<VaePlan> {
        let grid = self.grid(way)?;
        let tiling = match way {
            Way::Whole => VaeTiling::Whole,
            Way::Exact(_, recomputes) => VaeTiling::Exact {
                strip_bytes: options.strips.map_or(0, |strips| strips.bytes),
                recomputes,
            },
            Way::Blended(_) => VaeTiling::Blended {
                tile: grid.tile(),
                tiles: grid.len(),
            },
        };
        let plan = Plan::new(graph, options, 1, self.limits)?;
        Ok(VaePlan {
            memory: StageMemory::new(&plan, self.limits),
            plan,
            grid,
            tiling,
        })
    }

    fn grid(&self, way: Way) -> Result<TileGrid> {
        let [height, width] = self.size;
        match way {
            Way::Whole | Way::Exact(..) => TileGrid::whole(height, width),
            Way::Blended(tile) => {
                let tile = self.size.map(|side| smallest_tile(side, tile));
                TileGrid::new(height, width, tile, tile.map(|side| side.div_ceil(OVERLAP)))
            }
        }
    }

    fn recorded(&self, way: Way) -> Result<(Graph, LowerOptions)> {
        let [height, width] = self.grid(way)?.tile();
        let graph = record_vae_decoder(self.config, 1, height, width)?;
        let sizes = graph.values.iter().map(|value| value.shape.len());
        let largest = self.options.activations.bytes(sizes.max().unwrap_or(0));
        let strips = |parts: u64, twice: bool| Strips {
            recompute_above: if twice { largest / 2 } else { u64::MAX },
            ..Strips::new(largest / parts, self.limits)
        };
        let strips = match way {
            Way::Whole => None,
            Way::Exact(parts, twice) => Some(strips(parts, twice)),
            Way::Blended(_) => Some(strips(TILE_STRIPS, true)),
        };
        let options = LowerOptions {
            strips,
            ..*self.options
        };
        Ok((graph, options))
    }
}

/// The smallest tile of which no more are needed along an axis than of tiles of side `most`: less work, less memory.
fn smallest_tile(side: usize, most: usize) -> usize {
    let count = |tile: usize| {
        let step = tile - tile.div_ceil(OVERLAP).min(tile / 3);
        side.saturating_sub(tile).div_ceil(step.max(1))
    };
    let most = most.min(side);
    (1..most)
        .rev()
        .take_while(|&tile| count(tile) == count(most))
        .last()
        .unwrap_or(most)
}
