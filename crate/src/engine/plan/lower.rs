//! A graph to kernel calls.

use super::{
    fuse::{Group, group},
    graph::{Graph, NamedValue, ValueId, WeightId},
    in_place::write_in_place,
    options::LowerOptions,
    program::{Dispatch, Keep, Place, Port, Program, Slot, SlotId},
    storage::{Phase, Phases, precisions},
    strip_calls::Divider,
    strips::divide,
};
use crate::{
    Error, Result,
    engine::Shape,
    kernels::{Kernel, Precision, Role, Storage},
};

/// Lowers a recorded network.
///
/// # Errors
/// [`Error::Config`] for an operation that no kernel does, with its module.
pub fn lower(graph: &Graph, options: &LowerOptions) -> Result<Program> {
    let phases = Phases::new(graph, options);
    let precisions = precisions(graph, options);
    let mut groups = group(graph, options.fusions, phases, &precisions);
    let mut lowering = Lowering {
        graph,
        options,
        phases,
        precisions,
        slots: Vec::new(),
        slot_of: vec![None; graph.values.len()],
    };
    let mut lists: [Vec<Dispatch>; 3] = Default::default();
    let keep = lowering.keep(&groups);
    for port in &graph.inputs {
        lowering.slot(port.value, keep[port.value.0]);
    }
    let forms = options
        .strips
        .map(|strips| (strips, divide(&lowering, &mut groups, &keep, &strips)));
    let mut divider = forms.map(|(strips, forms)| Divider::new(strips, &groups, forms, &keep));
    for (index, group) in groups.iter().enumerate() {
        let calls = match &mut divider {
            Some(divider) => divider.calls(&mut lowering, index)?,
            None => vec![lowering.dispatch(group, keep[group.output.0])?],
        };
        lists[group.phase as usize].extend(calls);
    }
    let ports = |list: &[NamedValue]| -> Result<Vec<Port>> {
        list.iter()
            .map(|port| {
                Ok(Port {
                    name: port.name,
                    value: port.value,
                    slot: lowering.slot_of(port.value)?,
                    precision: lowering.precisions[port.value.0],
                })
            })
            .collect()
    };
    let (inputs, outputs) = (ports(&graph.inputs)?, ports(&graph.outputs)?);
    let [schedule, image, step] = lists;
    let mut program = Program {
        name: graph.name,
        schedule,
        image,
        step,
        steps: phases.steps,
        slots: lowering.slots,
        inputs,
        outputs,
    };
    if options.in_place {
        write_in_place(&mut program);
    }
    Ok(program)
}

pub(super) struct Lowering<'a> {
    pub(super) graph: &'a Graph,
    pub(super) options: &'a LowerOptions,
    pub(super) phases: Phases,
    pub(super) precisions: Vec<Precision>,
    pub(super) slots: Vec<Slot>,
    pub(super) slot_of: Vec<Option<SlotId>>,
}

impl Lowering<'_> {
    /// How long each value is kept: inputs, outputs, and what one phase makes and another reads.
    fn keep(&self, groups: &[Group]) -> Vec<Keep> {
        let graph = self.graph;
        let kept = |value: ValueId| match self.phases.of(graph, value) {
            Phase::Image => Keep::PerPass,
            Phase::Schedule | Phase::Step => Keep::Shared,
        };
        let mut keep = vec![Keep::No; graph.values.len()];
        for group in groups {
            for value in group.reads(graph) {
                if self.phases.of(graph, value) != group.phase {
                    keep[value.0] = kept(value);
                }
            }
        }
        for port in &graph.inputs {
            keep[port.value.0] = kept(port.value);
        }
        // Guidance needs the predictions of all passes.
        for port in &graph.outputs {
            keep[port.value.0] = Keep::PerPass;
        }
        keep
    }

    /// The shape of a value as it is computed: with a row for each step where it depends on the schedule alone.
    pub(super) fn shape(&self, value: ValueId) -> Shape {
        let mut shape = self.graph.value(value).shape;
        if self.phases.of(self.graph, value) == Phase::Schedule {
            shape.batch *= self.phases.steps.unwrap_or(1);
        }
        shape
    }

    pub(super) fn slot(&mut self, value: ValueId, keep: Keep) -> SlotId {
        let bytes = self.precisions[value.0].bytes(self.shape(value).len());
        let slot = self.push_slot(bytes, keep);
        self.slot_of[value.0] = Some(slot);
        slot
    }

    pub(super) fn push_slot(&mut self, bytes: u64, keep: Keep) -> SlotId {
        self.slots.push(Slot {
            bytes: bytes.next_multiple_of(4),
            keep,
            part: None,
        });
        SlotId(self.slots.len() - 1)
    }

    pub(super) fn slot_of(&self, value: ValueId) -> Result<SlotId> {
        self.slot_of[value.0].ok_or_else(|| {
            Error::config(
                self.graph.name,
                format!("value {} is read and never made", value.0),
            )
        })
    }

    pub(super) fn dispatch(&mut self, group: &Group, keep: Keep) -> Result<Dispatch> {
        let (kernel, roles) = self.kernel(group)?;
        let output = self.slot(group.output, keep);
        let operands = kernel
            .operands()
            .into_iter()
            .map(|operand| {
                if operand.storage == Storage::Step {
                    return Ok(Place::Step);
                }
                match (operand.role, roles.get(&operand.role)) {
                    (Role::Output, _) => Ok(Place::Arena {
                        slot: output,
                        reads: None,
                        writes: Some(group.output),
                    }),
                    (Role::Scratch, _) => Ok(Place::Arena {
                        slot: self.push_slot(operand.bytes, Keep::No),
                        reads: None,
                        writes: None,
                    }),
                    (_, Some(Source::Value(value))) => Ok(Place::Arena {
                        slot: self.slot_of(*value)?,
                        reads: Some(*value),
                        writes: None,
                    }),
                    (_, Some(Source::Weight(weight))) => Ok(Place::Weight(*weight)),
                    (role, None) => Err(self.unsupported(group, &format!("lacks its {role:?}"))),
                }
            })
            .collect::<Result<_>>()?;
        Ok(self.with_operands(group, kernel, operands))
    }

    /// A call of a group's kernel on these operands.
    pub(super) fn with_operands(
        &self,
        group: &Group,
        kernel: Kernel,
        operands: Vec<Place>,
    ) -> Dispatch {
        Dispatch {
            kernel,
            operands,
            module: self.graph.nodes[group.anchor].module.clone(),
            nodes: group.nodes.clone(),
        }
    }

    pub(super) fn unsupported(&self, group: &Group, why: &str) -> Error {
        let node = &self.graph.nodes[group.anchor];
        Error::config(
            self.graph.name,
            format!("{} in {} {why}", node.op.name(), node.module),
        )
    }
}

/// What an operand's role stands for in one call.
pub(super) enum Source {
    Value(ValueId),
    Weight(WeightId),
}
