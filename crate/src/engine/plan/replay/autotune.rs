//! Which tile a GPU multiplies with fastest, measured once for each class of products that a network has.

use std::{collections::BTreeMap, sync::Arc};

use super::{Network, prepare::Maker};
use crate::{
    Result,
    engine::plan::{Dispatch, Part, gpu::BoundCall},
    kernels::{ShapeClass, Tile, Tuning},
};

/// Timed submissions of each tile; the fastest counts. One more before them warms up.
const SUBMISSIONS: usize = 3;

/// Runs in one submission at first, and at most.
const RUNS: [usize; 2] = [8, 512];

/// What a submission must take for its own overhead to be small beside the runs. The clock of the device is finer, but reading it takes
/// buffers that no plan has promised.
const LONG_ENOUGH_MS: f64 = 4.0;

/// What was measured of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct TileTimes {
    /// The class.
    pub class: ShapeClass,
    /// The module of the call that was timed: the largest of its class.
    pub module: String,
    /// Nanoseconds with each tile, in the order of [`Tile::ALL`].
    pub nanoseconds: Vec<f64>,
    /// The fastest.
    pub tile: Tile,
}

impl Network {
    /// Times every tile for each class of products of a step, the ones with most work first, until `budget_ms` are over; the class that is
    /// begun is finished. Gives `known` with the fastest tiles in it, and the times. What the arena holds is lost, and so are the
    /// parameters: the network itself ends here.
    ///
    /// # Errors
    /// [`crate::Error::DeviceLost`] and other faults of the GPU.
    pub async fn autotune(
        mut self,
        known: Tuning,
        budget_ms: f64,
    ) -> Result<(Tuning, Vec<TileTimes>)> {
        self.flush_uploads();
        let start = self.gpu.now_ms();
        let mut tuning = known;
        let mut rows = Vec::new();
        for (class, call) in largest_of_each_class(self.plan.program.calls(Part::Step)) {
            if self.gpu.now_ms() - start > budget_ms {
                break;
            }
            let mut nanoseconds = Vec::new();
            for tile in Tile::ALL {
                nanoseconds.push(self.time_tile(&call, tile).await?);
            }
            let fastest = nanoseconds.iter().zip(Tile::ALL);
            let fastest = fastest.min_by(|a, b| a.0.total_cmp(b.0));
            let Some((_, tile)) = fastest else { continue };
            tuning.measured(class, tile);
            rows.push(TileTimes {
                class,
                module: call.module,
                nanoseconds,
                tile,
            });
        }
        Ok((tuning, rows))
    }

    /// The nanoseconds of a call with a tile.
    async fn time_tile(&self, call: &Dispatch, tile: Tile) -> Result<f64> {
        let gpu = &self.gpu;
        let tuning = Tuning::by_rule(Some(tile));
        let launches = call.kernel.launches(gpu.limits(), &tuning)?;
        let alignment = gpu.limits().offset_alignment_bytes as usize;
        let mut params = Vec::new();
        for launch in &launches {
            params.extend(launch.params.iter().flat_map(|word| word.to_le_bytes()));
            params.resize(params.len().next_multiple_of(alignment), 0);
        }
        // the network has at least the parameters of this call
        gpu.write(&self.buffers.params, 0, &params);
        let maker = Maker {
            gpu,
            plan: &self.plan,
            buffers: &self.buffers,
            pass: 0,
        };
        let name = self.plan.graph.name;
        let bound = gpu.validated(name, || {
            let launches = launches.iter().zip((0..).step_by(alignment));
            let bound = launches.map(|(launch, params)| maker.bound(call, launch, params));
            bound.collect::<Result<Vec<_>>>()
        });
        let bound = bound.await?;
        let pipelines: Vec<_> = bound
            .iter()
            .map(|bound| Arc::clone(&bound.pipeline))
            .collect();
        gpu.compiled(name, &pipelines).await?;
        let [mut runs, most] = RUNS;
        while self.time_runs(&bound, runs).await? < LONG_ENOUGH_MS && runs < most {
            runs *= 4;
        }
        let mut fastest = f64::INFINITY;
        for _ in 0..SUBMISSIONS {
            fastest = fastest.min(self.time_runs(&bound, runs).await?);
        }
        Ok(fastest * 1e6 / runs as f64)
    }

    /// Milliseconds from submission to the word that all runs have ended.
    async fn time_runs(&self, bound: &[BoundCall], runs: usize) -> Result<f64> {
        let gpu = &self.gpu;
        gpu.finish().await?;
        let start = gpu.now_ms();
        let mut encoder = gpu.encoder("autotune");
        encoder.compute(None, (0..runs).flat_map(|_| bound))?;
        gpu.submit(encoder, 0).await?;
        gpu.finish().await?;
        Ok(gpu.now_ms() - start)
    }
}

/// The call with most work of each class, the classes with most work of all their calls first.
fn largest_of_each_class(calls: &[Dispatch]) -> Vec<(ShapeClass, Dispatch)> {
    let mut classes: BTreeMap<ShapeClass, (u64, &Dispatch)> = BTreeMap::new();
    for call in calls {
        let Some(class) = call.kernel.shape_class() else {
            continue;
        };
        let macs = call.kernel.macs();
        classes
            .entry(class)
            .and_modify(|(sum, largest)| {
                *sum += macs;
                if macs > largest.kernel.macs() {
                    *largest = call;
                }
            })
            .or_insert((macs, call));
    }
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, (sum, _))| std::cmp::Reverse(*sum));
    let classes = classes.into_iter();
    classes
        .map(|(class, (_, call))| (class, call.clone()))
        .collect()
}
