//! The proof that a layout is right, independent of how it was found: the program is run on ranges instead of values.
//!
//! Chrome refuses overlapping bindings, native wgpu and Firefox do not and would give wrong pictures; so this is checked here, always.

use std::collections::BTreeMap;

use super::{
    graph::ValueId,
    layout::{ArenaLayout, WeightLayout},
    program::{Dispatch, Place, Program, SlotId},
    verify_rows::rows_agree,
};
use crate::kernels::Limits;

/// What is wrong with a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFault {
    /// Two operands of one call lie over each other.
    #[error("{call} binds overlapping ranges: operands {first} and {second}")]
    Overlap {
        /// Kernel and module.
        call: String,
        /// Index of an operand.
        first: usize,
        /// Index of the other.
        second: usize,
    },
    /// A call reads what is no longer, or not yet, there.
    #[error("{call} reads value {value}, whose place holds {found}")]
    Lost {
        /// Kernel and module.
        call: String,
        /// The value's number in the graph.
        value: usize,
        /// Who wrote there last.
        found: String,
    },
    /// A range is not aligned, ends outside of its buffer, or is smaller than its operand.
    #[error("{call} cannot bind operand {operand}: {why}")]
    Range {
        /// Kernel and module.
        call: String,
        /// Index of the operand.
        operand: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The rows that are bound are not those that the call is about.
    #[error("{call} binds other rows: {why}")]
    Rows {
        /// Kernel and module.
        call: String,
        /// What is wrong.
        why: &'static str,
    },
}

/// Proves that no call binds overlapping ranges and that every value is whole when it is read, or the part of it that is: in all passes,
/// and in a second step.
///
/// # Errors
/// The first fault, with the kernel and the module of the call.
pub fn verify(
    program: &Program,
    arena: &ArenaLayout,
    weights: &WeightLayout,
    limits: &Limits,
) -> Result<(), PlanFault> {
    let mut memory = Memory::new(program, arena);
    let check = |memory: &mut Memory, list: &[Dispatch], pass: usize| {
        list.iter().try_for_each(|dispatch| {
            check_ranges(program, arena, weights, limits, dispatch, pass)?;
            rows_agree(program, dispatch).map_err(|why| PlanFault::Rows {
                call: call(dispatch),
                why,
            })?;
            memory.run(dispatch, pass)
        })
    };
    check(&mut memory, &program.schedule, 0)?;
    for pass in 0..arena.passes {
        check(&mut memory, &program.image, pass)?;
    }
    for _step in 0..2 {
        for pass in 0..arena.passes {
            check(&mut memory, &program.step, pass)?;
        }
    }
    for port in &program.outputs {
        for pass in 0..arena.passes {
            memory.expect("the reader of the output", port.slot, port.value, pass)?;
        }
    }
    Ok(())
}

fn call(dispatch: &Dispatch) -> String {
    format!("{} of {}", dispatch.kernel.name(), dispatch.module)
}

/// Alignment, bounds and sizes of one call's operands, and that no two of them overlap.
fn check_ranges(
    program: &Program,
    arena: &ArenaLayout,
    weights: &WeightLayout,
    limits: &Limits,
    dispatch: &Dispatch,
    pass: usize,
) -> Result<(), PlanFault> {
    let operands = dispatch.kernel.operands();
    let fault = |operand, why| PlanFault::Range {
        call: call(dispatch),
        operand,
        why,
    };
    if operands.len() != dispatch.operands.len() {
        return Err(fault(
            operands.len(),
            "the call has another number of operands",
        ));
    }
    let mut bound: Vec<(usize, usize, u64, u64)> = Vec::new();
    for (index, (operand, place)) in operands.iter().zip(&dispatch.operands).enumerate() {
        let (offset, held, buffer_bytes) = match *place {
            Place::Arena { slot, .. } => {
                let place = arena.place(slot, pass);
                let end = place.offset + operand.bytes;
                for &(other, buffer, start, other_end) in &bound {
                    if buffer == place.buffer && start < end && place.offset < other_end {
                        return Err(PlanFault::Overlap {
                            call: call(dispatch),
                            first: other,
                            second: index,
                        });
                    }
                }
                bound.push((index, place.buffer, place.offset, end));
                let buffer_bytes = arena.buffers[place.buffer];
                (place.offset, program.slot(slot).bytes, buffer_bytes)
            }
            Place::Weight(weight) => {
                let (place, bytes) = weights.place(weight);
                (place.offset, bytes, weights.buffers[place.buffer])
            }
            Place::Step => continue,
        };
        if !offset.is_multiple_of(limits.offset_alignment_bytes) {
            return Err(fault(index, "its offset is not aligned"));
        }
        if operand.bytes != held {
            return Err(fault(index, "its size is not the kernel's"));
        }
        if offset + held > buffer_bytes {
            return Err(fault(index, "it ends outside of its buffer"));
        }
    }
    Ok(())
}

/// Who wrote a range last.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    Value {
        value: ValueId,
        pass: usize,
        /// Where in the buffer the value's first byte would be, with the bytes around it that are not there.
        origin: i128,
        by: String,
    },
    Scratch(String),
}

/// The buffers as disjoint ranges with owners, by start.
struct Memory<'a> {
    program: &'a Program,
    arena: &'a ArenaLayout,
    buffers: Vec<BTreeMap<u64, (u64, Owner)>>,
}

impl<'a> Memory<'a> {
    fn new(program: &'a Program, arena: &'a ArenaLayout) -> Self {
        let mut memory = Self {
            program,
            arena,
            buffers: vec![BTreeMap::new(); arena.buffers.len()],
        };
        for port in &program.inputs {
            for pass in 0..arena.passes {
                let by = format!("the input {}", port.name);
                let owner = memory.value(port.slot, port.value, pass, by);
                memory.write(port.slot, pass, owner);
            }
        }
        memory
    }

    fn range(&self, slot: SlotId, pass: usize) -> (usize, u64, u64) {
        let place = self.arena.place(slot, pass);
        let end = place.offset + self.program.slot(slot).bytes;
        (place.buffer, place.offset, end)
    }

    /// The owner of a slot that holds a value, or a part of one.
    fn value(&self, slot: SlotId, value: ValueId, pass: usize, by: String) -> Owner {
        Owner::Value {
            value,
            pass,
            origin: self.origin(slot, pass),
            by,
        }
    }

    fn origin(&self, slot: SlotId, pass: usize) -> i128 {
        let (_, start, _) = self.range(slot, pass);
        i128::from(start) - i128::from(self.program.slot(slot).value_at())
    }

    fn run(&mut self, dispatch: &Dispatch, pass: usize) -> Result<(), PlanFault> {
        for (slot, reads, _) in dispatch.arena() {
            if let Some(value) = reads {
                self.expect(&call(dispatch), slot, value, pass)?;
            }
        }
        for (slot, reads, writes) in dispatch.arena() {
            match (reads, writes) {
                (_, Some(value)) => {
                    let owner = self.value(slot, value, pass, call(dispatch));
                    self.write(slot, pass, owner);
                }
                (None, None) => self.write(slot, pass, Owner::Scratch(call(dispatch))),
                (Some(_), None) => {}
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: SlotId, pass: usize, owner: Owner) {
        let (buffer, start, end) = self.range(slot, pass);
        let ranges = &mut self.buffers[buffer];
        let before = ranges.range(..start).next_back();
        let mut touched: Vec<u64> = ranges.range(start..end).map(|(&at, _)| at).collect();
        touched.extend(
            before
                .filter(|(_, (last, _))| *last > start)
                .map(|(&at, _)| at),
        );
        for at in touched {
            let Some((last, former)) = ranges.remove(&at) else {
                continue;
            };
            if at < start {
                ranges.insert(at, (start, former.clone()));
            }
            if last > end {
                ranges.insert(end, (last, former));
            }
        }
        ranges.insert(start, (end, owner));
    }

    fn expect(
        &self,
        call: &str,
        slot: SlotId,
        value: ValueId,
        pass: usize,
    ) -> Result<(), PlanFault> {
        let (buffer, start, end) = self.range(slot, pass);
        let shared = self.program.slot(slot).keep == super::program::Keep::Shared;
        let wanted = self.origin(slot, pass);
        let ranges = &self.buffers[buffer];
        let first = ranges
            .range(..=start)
            .next_back()
            .map_or(start, |(&at, _)| at);
        // the value may be there in parts, each in its place
        let mut at = start;
        let mut found = None;
        for (&from, (last, owner)) in ranges.range(first..end) {
            if *last <= start {
                continue;
            }
            let is_part = matches!(
                owner,
                Owner::Value { value: v, pass: p, origin, .. }
                    if *v == value && (*p == pass || shared) && *origin == wanted
            );
            if from > at || !is_part {
                found = Some(owner).filter(|_| from <= at);
                break;
            }
            at = *last;
        }
        if at >= end {
            return Ok(());
        }
        let found = match found {
            Some(Owner::Value { value, by, .. }) => format!("value {} of {by}", value.0),
            Some(Owner::Scratch(by)) => format!("scratch of {by}"),
            None => "nothing".to_owned(),
        };
        Err(PlanFault::Lost {
            call: call.to_owned(),
            value: value.0,
            found,
        })
    }
}
