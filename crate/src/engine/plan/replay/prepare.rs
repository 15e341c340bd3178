//! From a program to submissions: launches, their parameters in one buffer, pipelines and bind groups.

use super::{Buffers, Plan, resource};
use crate::{
    Error, Result,
    engine::plan::{Dispatch, gpu::Gpu},
    kernels::{Launch, Limits, Tuning},
};

/// Dispatches that are submitted together, in one compute pass.
#[derive(Debug, Default)]
pub(super) struct Submission {
    pub(super) dispatches: Vec<Ready>,
}

/// One dispatch with all that it needs.
#[derive(Debug)]
pub(super) struct Ready {
    /// Index of the call in its list.
    pub(super) call: usize,
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) bind_group: wgpu::BindGroup,
    pub(super) workgroups: [u32; 3],
}

/// The launches of a program.
pub(super) struct Prepared {
    /// Of each call, in the program's order: `schedule`, `image`, `step`.
    lists: [Vec<Vec<(Launch, u64)>>; 3],
    /// The parameters of all launches, each at a multiple of the alignment.
    pub(super) params: Vec<u8>,
}

impl Prepared {
    pub(super) fn new(plan: &Plan, limits: &Limits, tuning: Tuning) -> Result<Self> {
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

    /// The submissions of the three lists of calls, each for every pass.
    pub(super) fn submissions(
        &self,
        gpu: &Gpu,
        plan: &Plan,
        buffers: &Buffers,
        work_per_submission: u64,
    ) -> Result<[Vec<Vec<Submission>>; 3]> {
        let program = &plan.program;
        let calls = [&program.schedule, &program.image, &program.step];
        let mut all: [Vec<Vec<Submission>>; 3] = Default::default();
        for ((passes, launches), calls) in all.iter_mut().zip(&self.lists).zip(calls) {
            for pass in 0..plan.arena.passes {
                let mut submissions = vec![Submission::default()];
                let mut work = 0;
                for (index, (call, launches)) in calls.iter().zip(launches).enumerate() {
                    let cost = cost(call);
                    if work > 0 && work + cost > work_per_submission {
                        submissions.push(Submission::default());
                        work = 0;
                    }
                    work += cost;
                    for (launch, params) in launches {
                        let ready = Maker {
                            gpu,
                            plan,
                            buffers,
                            pass,
                        }
                        .ready(index, call, launch, *params)?;
                        if let Some(last) = submissions.last_mut() {
                            last.dispatches.push(ready);
                        }
                    }
                }
                submissions.retain(|submission| !submission.dispatches.is_empty());
                passes.push(submissions);
            }
        }
        Ok(all)
    }
}

/// Multiply-adds, and the bytes that go through memory: what a call costs, roughly, in one unit.
fn cost(call: &Dispatch) -> u64 {
    let operands = call.kernel.operands();
    call.kernel.macs() + operands.iter().map(|operand| operand.bytes).sum::<u64>()
}

struct Maker<'a> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    buffers: &'a Buffers,
    pass: usize,
}

impl Maker<'_> {
    fn ready(&self, index: usize, call: &Dispatch, launch: &Launch, params: u64) -> Result<Ready> {
        let operands = call.kernel.operands();
        let fault = || Error::Plan {
            network: self.plan.graph.name.to_owned(),
            why: format!("{} of {} binds what it has not", launch.label, call.module),
        };
        let mut storages = Vec::with_capacity(launch.bindings.len());
        let mut resources = Vec::with_capacity(launch.bindings.len() + 1);
        for binding in &launch.bindings {
            let operand = operands.get(binding.operand).ok_or_else(fault)?;
            let place = *call.operands.get(binding.operand).ok_or_else(fault)?;
            let (buffer, offset) =
                resource(self.plan, self.buffers, place, self.pass).ok_or_else(fault)?;
            storages.push(operand.storage);
            resources.push(buffer.range(offset + binding.offset_bytes, binding.bytes));
        }
        let words = 4 * launch.params.len() as u64;
        resources.push(self.buffers.params.range(params, words));
        let pipeline = self.gpu.pipeline(launch, &storages);
        Ok(Ready {
            call: index,
            bind_group: self
                .gpu
                .bind_group(launch.label, &pipeline.layout, resources),
            pipeline: pipeline.pipeline,
            workgroups: launch.workgroups,
        })
    }
}
