//! Rows of values as a strip asks for them: found where they are stored, or made by the calls that this takes.

use std::ops::Range;

use super::{
    graph::ValueId,
    lower::{Lowering, Source},
    program::{Place, SlotId, SlotPart},
    strip_calls::Divider,
    strip_rows::{Pass, Span, quantum, reads, row_bytes},
    strips::Form,
};
use crate::{
    Result,
    kernels::{Conv2dArgs, ConvStrip, GemmArgs, GroupApplyArgs, Kernel, Residual, Role, Storage},
};

/// One call of a layer.
pub(super) struct Strip {
    /// Of the output.
    pub(super) rows: Range<usize>,
    /// Where the output goes.
    pub(super) target: Span,
    /// The residual that lies there.
    pub(super) in_place: Option<ValueId>,
    /// The input, where it was made before.
    pub(super) input: Option<Span>,
}

impl Divider<'_> {
    /// Stored rows of a value.
    pub(super) fn stored(
        &mut self,
        lowering: &mut Lowering<'_>,
        value: ValueId,
        rows: Range<usize>,
    ) -> Result<Span> {
        let of = lowering.slot_of(value)?;
        let row_bytes = row_bytes(lowering, value);
        let (offset, bytes) = (row_bytes * rows.start as u64, row_bytes * rows.len() as u64);
        let slot = if bytes.next_multiple_of(4) == lowering.slots[of.0].bytes {
            of
        } else {
            let part = SlotPart {
                of,
                offset,
                value_at: offset,
            };
            self.parts.of(lowering, part, bytes)
        };
        Ok(Span {
            slot,
            first: rows.start,
            rows: rows.len(),
            is_scratch: false,
        })
    }

    /// Rows of a value, or a few more, made if they are not stored.
    pub(super) fn demand(
        &mut self,
        lowering: &mut Lowering<'_>,
        value: ValueId,
        rows: Range<usize>,
        pass: &mut Pass,
    ) -> Result<Span> {
        let Some(maker) = self.maker(value) else {
            let quantum = quantum(lowering, &self.strips, &[value]);
            let first = rows.start / quantum * quantum;
            return self.stored(lowering, value, first..rows.end);
        };
        if self.forms[maker] == Form::Parts {
            return self.norm(lowering, maker, rows, pass);
        }
        let target = Span {
            slot: self.scratch(lowering, value, &rows, pass),
            first: rows.start,
            rows: rows.len(),
            is_scratch: true,
        };
        let call = Strip {
            rows,
            target,
            in_place: None,
            input: None,
        };
        self.call(lowering, maker, call, pass)?;
        Ok(target)
    }

    fn scratch(
        &mut self,
        lowering: &mut Lowering<'_>,
        value: ValueId,
        rows: &Range<usize>,
        pass: &mut Pass,
    ) -> SlotId {
        let row_bytes = row_bytes(lowering, value);
        let (at, bytes) = (row_bytes * rows.start as u64, row_bytes * rows.len() as u64);
        pass.take(lowering, &mut self.parts, bytes, at)
    }

    /// Rows of what a group norm in parts gives.
    fn norm(
        &mut self,
        lowering: &mut Lowering<'_>,
        norm: usize,
        rows: Range<usize>,
        pass: &mut Pass,
    ) -> Result<Span> {
        let group = &self.groups[norm];
        let (kernel, roles) = lowering.kernel(group)?;
        let (Kernel::GroupNorm(args), Some(&(statistics, statistics_value))) =
            (kernel, self.statistics.get(&norm))
        else {
            return Err(lowering.unsupported(group, "has no statistics"));
        };
        let source = self.demand(lowering, group.input, rows, pass)?;
        let in_place = source.is_scratch && args.input == args.output;
        let slot = if in_place {
            source.slot
        } else {
            let rows = source.first..source.first + source.rows;
            self.scratch(lowering, group.output, &rows, pass)
        };
        let kernel = Kernel::GroupApply(GroupApplyArgs {
            positions: source.rows * lowering.shape(group.output).width,
            channels: args.channels,
            groups: args.groups,
            silu: args.silu,
            input: args.input,
            output: args.output,
            in_place,
        });
        let operands = kernel.operands();
        let places = operands
            .iter()
            .map(|operand| match (operand.role, roles.get(&operand.role)) {
                (Role::Input, _) => Ok(reads(source.slot, group.input)),
                (Role::Statistics, _) => Ok(reads(statistics, statistics_value)),
                (Role::Output, _) => Ok(Place::Arena {
                    slot,
                    reads: in_place.then_some(group.input),
                    writes: Some(group.output),
                }),
                (_, Some(Source::Weight(weight))) => Ok(Place::Weight(*weight)),
                (role, _) => Err(lowering.unsupported(group, &format!("lacks its {role:?}"))),
            })
            .collect::<Result<_>>()?;
        pass.calls
            .push(lowering.with_operands(group, kernel, places));
        Ok(Span {
            slot,
            is_scratch: true,
            ..source
        })
    }

    pub(super) fn call(
        &mut self,
        lowering: &mut Lowering<'_>,
        index: usize,
        strip: Strip,
        pass: &mut Pass,
    ) -> Result<()> {
        let group = &self.groups[index];
        let (kernel, roles) = lowering.kernel(group)?;
        let Strip {
            rows,
            target,
            in_place,
            input,
        } = strip;
        let residual = |separate| in_place.map_or(separate, |_| Residual::InPlace);
        let (kernel, input) = match kernel {
            Kernel::Conv2d(args) => {
                let stored = args.stored_rows(rows.clone());
                let input = self.demand(lowering, group.input, stored, pass)?;
                let strip = ConvStrip {
                    first: rows.start,
                    rows: rows.len(),
                    input_first: input.first,
                    input_rows: input.rows,
                };
                let args = Conv2dArgs {
                    strip: Some(strip),
                    residual: residual(args.residual),
                    ..args
                };
                (Kernel::Conv2d(args), input)
            }
            Kernel::Gemm(args) => {
                let args = GemmArgs {
                    m: rows.len() * lowering.shape(group.output).width,
                    residual: residual(args.residual),
                    ..args
                };
                let input = match input {
                    Some(input) => input,
                    None => self.stored(lowering, group.input, rows.clone())?,
                };
                (Kernel::Gemm(args), input)
            }
            _ => return Err(lowering.unsupported(group, "cannot be cut into strips")),
        };
        let operands = kernel.operands();
        let places = operands
            .iter()
            .map(|operand| match (operand.role, roles.get(&operand.role)) {
                _ if operand.storage == Storage::Step => Ok(Place::Step),
                (Role::Input, _) => Ok(reads(input.slot, group.input)),
                (Role::Output, _) => Ok(Place::Arena {
                    slot: target.slot,
                    reads: in_place,
                    writes: Some(group.output),
                }),
                (Role::Scratch, _) => Ok(Place::Arena {
                    slot: pass.take(lowering, &mut self.parts, operand.bytes, 0),
                    reads: None,
                    writes: None,
                }),
                (Role::SecondInput | Role::Residual, Some(Source::Value(value))) => {
                    let span = self.stored(lowering, *value, rows.clone())?;
                    Ok(reads(span.slot, *value))
                }
                (_, Some(Source::Value(value))) => Ok(reads(lowering.slot_of(*value)?, *value)),
                (_, Some(Source::Weight(weight))) => Ok(Place::Weight(*weight)),
                (role, None) => Err(lowering.unsupported(group, &format!("lacks its {role:?}"))),
            })
            .collect::<Result<_>>()?;
        pass.calls
            .push(lowering.with_operands(group, kernel, places));
        Ok(())
    }
}
