//! From a program to dispatches: launches, their parameters in one buffer, pipelines and bind groups.

use super::{Buffers, Plan, resource};
use crate::{
    Error, Result,
    engine::plan::{
        Dispatch,
        gpu::{BoundCall, Gpu},
    },
    kernels::{Launch, Limits, Tuning},
};

/// One dispatch of a list.
#[derive(Debug)]
pub(super) struct Ready {
    /// Index of the call in its list.
    pub(super) call: usize,
    pub(super) bound: BoundCall,
    /// Multiply-adds, and the bytes that go through memory: what it costs, roughly, in one unit.
    pub(super) work: u64,
}

/// The launches of a program.
pub(super) struct Prepared {
    /// Of each call, in the program's order: `schedule`, `image`, `step`.
    lists: [Vec<Vec<(Launch, u64)>>; 3],
    /// The parameters of all launches, each at a multiple of the alignment.
    pub(super) params: Vec<u8>,
}

impl Prepared {
    pub(super) fn new(plan: &Plan, limits: &Limits, tuning: &Tuning) -> Result<Self> {
        let alignment = limits.offset_alignment_bytes as usize;
        let mut params = Vec::new();
        let mut prepare = |dispatch: &Dispatch| -> Result<Vec<(Launch, u64)>> {
            let launches = dispatch.kernel.launches(limits, tuning)?;
            let with_params = launches.into_iter().map(|launch| {
                let at = params.len() as u64;
                params.extend(launch.params.iter().flat_map(|word| word.to_le_bytes()));
                params.resize(params.len().next_multiple_of(alignment), 0);
                (launch, at)
            });
            Ok(with_params.collect())
        };
        let mut list = |dispatches: &[Dispatch]| {
            let calls = dispatches.iter().map(&mut prepare);
            calls.collect::<Result<Vec<_>>>()
        };
        let program = &plan.program;
        let lists = [
            list(&program.schedule)?,
            list(&program.image)?,
            list(&program.step)?,
        ];
        Ok(Self { lists, params })
    }

    /// The dispatches of the three lists of calls, each for every pass.
    pub(super) fn dispatches(
        &self,
        gpu: &Gpu,
        plan: &Plan,
        buffers: &Buffers,
    ) -> Result<[Vec<Vec<Ready>>; 3]> {
        let program = &plan.program;
        let calls = [&program.schedule, &program.image, &program.step];
        let mut all: [Vec<Vec<Ready>>; 3] = Default::default();
        for ((passes, launches), calls) in all.iter_mut().zip(&self.lists).zip(calls) {
            for pass in 0..plan.arena.passes {
                let maker = Maker {
                    gpu,
                    plan,
                    buffers,
                    pass,
                };
                let mut dispatches = Vec::new();
                for (index, (call, launches)) in calls.iter().zip(launches).enumerate() {
                    let work = cost(call) / launches.len().max(1) as u64;
                    for (launch, params) in launches {
                        dispatches.push(Ready {
                            call: index,
                            bound: maker.bound(call, launch, *params)?,
                            work,
                        });
                    }
                }
                passes.push(dispatches);
            }
        }
        Ok(all)
    }
}

/// The work of a call, in the unit of [`Ready::work`].
fn cost(call: &Dispatch) -> u64 {
    let operands = call.kernel.operands();
    call.kernel.macs() + operands.iter().map(|operand| operand.bytes).sum::<u64>()
}

/// The next of `dispatches` that one submission of about `work` has, and the others.
pub(super) fn cut(dispatches: &[Ready], work: u64) -> (&[Ready], u64, &[Ready]) {
    let mut sum = 0;
    let mut count = 0;
    for dispatch in dispatches {
        if count > 0 && sum + dispatch.work > work {
            break;
        }
        sum += dispatch.work;
        count += 1;
    }
    let (now, later) = dispatches.split_at(count);
    (now, sum, later)
}

/// Makes bind groups over the buffers of one pass.
pub(super) struct Maker<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) plan: &'a Plan,
    pub(super) buffers: &'a Buffers,
    pub(super) pass: usize,
}

impl Maker<'_> {
    pub(super) fn bound(&self, call: &Dispatch, launch: &Launch, params: u64) -> Result<BoundCall> {
        let operands = call.kernel.operands();
        let fault = || Error::Plan {
            network: self.plan.graph.name.to_owned(),
            why: format!("{} of {} binds what it has not", launch.label, call.module),
        };
        let mut storages = Vec::with_capacity(launch.bindings.len());
        let mut ranges = Vec::with_capacity(launch.bindings.len() + 1);
        for binding in &launch.bindings {
            let operand = operands.get(binding.operand).ok_or_else(fault)?;
            let place = *call.operands.get(binding.operand).ok_or_else(fault)?;
            let (buffer, offset) =
                resource(self.plan, self.buffers, place, self.pass).ok_or_else(fault)?;
            storages.push(operand.storage);
            ranges.push(buffer.range(offset + binding.offset_bytes, binding.bytes));
        }
        let words = 4 * launch.params.len() as u64;
        ranges.push(self.buffers.params.range(params, words));
        let pipeline = self.gpu.pipeline(launch, &storages);
        Ok(self.gpu.bound_call(pipeline, &ranges, launch.workgroups))
    }
}
