//! Kernels that write over an operand nobody reads afterwards: one binding for both roles. Calls on strips were decided on before.

use super::{
    graph::ValueId,
    program::{Dispatch, Keep, Place, Program, Slot, SlotId},
};
use crate::kernels::{AttentionArgs, ElementwiseOp, Kernel, Residual, Role};

/// Rewrites every call that may work in place. Values that are kept neither give nor take a place.
pub(super) fn write_in_place(program: &mut Program) {
    let mut last_use = Vec::new();
    for (index, dispatch) in program.dispatches().enumerate() {
        for (_, reads, _) in dispatch.arena() {
            if let Some(ValueId(value)) = reads {
                if last_use.len() <= value {
                    last_use.resize(value + 1, 0);
                }
                last_use[value] = index;
            }
        }
    }
    let mut rewriter = Rewriter {
        last_use,
        slots: program.slots.clone(),
        moved: (0..program.slots.len()).map(SlotId).collect(),
    };
    let lists = [&mut program.schedule, &mut program.image, &mut program.step];
    for (index, dispatch) in lists.into_iter().flatten().enumerate() {
        rewriter.visit(index, dispatch);
    }
    for slot in &mut program.slots {
        if let Some(part) = &mut slot.part {
            part.of = rewriter.moved[part.of.0];
        }
    }
    remove_unused_slots(program);
}

struct Rewriter {
    last_use: Vec<usize>,
    slots: Vec<Slot>,
    /// The slot whose place each slot has taken.
    moved: Vec<SlotId>,
}

impl Rewriter {
    fn visit(&mut self, index: usize, dispatch: &mut Dispatch) {
        for place in &mut dispatch.operands {
            if let Place::Arena { slot, .. } = place {
                *slot = self.moved[slot.0];
            }
        }
        let is_part = |(slot, ..): (SlotId, _, _)| self.slots[slot.0].part.is_some();
        if dispatch.arena().any(is_part) {
            return;
        }
        let roles: Vec<Role> = dispatch
            .kernel
            .operands()
            .iter()
            .map(|operand| operand.role)
            .collect();
        let Some(candidates) = candidates(&dispatch.kernel) else {
            return;
        };
        for (role, kernel) in candidates {
            let Some(from) = roles.iter().position(|&r| r == role) else {
                continue;
            };
            if self.replace(index, dispatch, &roles, from) {
                // a sum's terms may change places: the one that is left is the second
                dispatch.kernel = kernel;
                return;
            }
        }
    }

    /// Lets the output take the place of operand `from`, if that is allowed.
    fn replace(
        &mut self,
        index: usize,
        dispatch: &mut Dispatch,
        roles: &[Role],
        from: usize,
    ) -> bool {
        let Some(to) = roles.iter().position(|&role| role == Role::Output) else {
            return false;
        };
        let (
            Place::Arena {
                slot: source,
                reads: Some(value),
                ..
            },
            Place::Arena {
                slot: target,
                writes,
                ..
            },
        ) = (dispatch.operands[from], dispatch.operands[to])
        else {
            return false;
        };
        let bound_once = dispatch
            .arena()
            .filter(|&(slot, ..)| slot == source)
            .count()
            == 1;
        let (a, b) = (self.slots[source.0], self.slots[target.0]);
        let allowed = bound_once
            && self.last_use[value.0] == index
            && a.keep == Keep::No
            && b.keep == Keep::No
            && a.bytes == b.bytes;
        if allowed {
            self.moved[target.0] = source;
            dispatch.operands[to] = Place::Arena {
                slot: source,
                reads: Some(value),
                writes,
            };
            dispatch.operands.remove(from);
        }
        allowed
    }
}

/// The operands whose place a kernel's output may take, each with the kernel's variant that does so.
fn candidates(kernel: &Kernel) -> Option<Vec<(Role, Kernel)>> {
    let in_place = Residual::InPlace;
    let list = match *kernel {
        Kernel::Gemm(args) => {
            let mut args = args;
            args.residual = in_place;
            vec![(Role::Residual, Kernel::Gemm(args))]
        }
        Kernel::Conv2d(args) => {
            let mut args = args;
            args.residual = in_place;
            vec![(Role::Residual, Kernel::Conv2d(args))]
        }
        Kernel::GroupNorm(mut args) => {
            if args.second_source.is_some() || args.input != args.output {
                return None;
            }
            args.in_place = true;
            vec![(Role::Input, Kernel::GroupNorm(args))]
        }
        Kernel::LayerNorm(mut args) => {
            if args.input != args.output {
                return None;
            }
            args.in_place = true;
            vec![(Role::Input, Kernel::LayerNorm(args))]
        }
        Kernel::Attention(args) => vec![(
            Role::Query,
            Kernel::Attention(AttentionArgs {
                in_place: true,
                ..args
            }),
        )],
        // the parts of a group norm are placed by the strips
        Kernel::Embedding(_)
        | Kernel::GroupStatistics(_)
        | Kernel::GroupCombine(_)
        | Kernel::GroupApply(_) => return None,
        Kernel::Elementwise(mut args) => {
            if args.input != args.output {
                return None;
            }
            args.in_place = true;
            let kernel = Kernel::Elementwise(args);
            match args.op {
                ElementwiseOp::Add => vec![(Role::Input, kernel), (Role::SecondInput, kernel)],
                ElementwiseOp::AddChannels { .. }
                | ElementwiseOp::Silu
                | ElementwiseOp::QuickGelu
                | ElementwiseOp::Gelu => vec![(Role::Input, kernel)],
                ElementwiseOp::Geglu
                | ElementwiseOp::ConcatChannels { .. }
                | ElementwiseOp::UpsampleNearest2d { .. } => return None,
            }
        }
    };
    Some(list)
}

/// Drops the slots that no operand names any more.
fn remove_unused_slots(program: &mut Program) {
    let mut used = vec![false; program.slots.len()];
    for port in program.inputs.iter().chain(&program.outputs) {
        used[port.slot.0] = true;
    }
    for dispatch in program.dispatches() {
        for (slot, ..) in dispatch.arena() {
            used[slot.0] = true;
            used[program.owner(slot).0] = true;
        }
    }
    let mut next = 0;
    let renamed: Vec<SlotId> = used
        .iter()
        .map(|&used| {
            let id = SlotId(next);
            next += usize::from(used);
            id
        })
        .collect();
    let mut index = 0;
    program.slots.retain(|_| {
        index += 1;
        used[index - 1]
    });
    for part in program
        .slots
        .iter_mut()
        .filter_map(|slot| slot.part.as_mut())
    {
        part.of = renamed[part.of.0];
    }
    for port in program.inputs.iter_mut().chain(&mut program.outputs) {
        port.slot = renamed[port.slot.0];
    }
    let lists = [&mut program.schedule, &mut program.image, &mut program.step];
    for place in lists.into_iter().flatten().flat_map(|d| &mut d.operands) {
        if let Place::Arena { slot, .. } = place {
            *slot = renamed[slot.0];
        }
    }
}
