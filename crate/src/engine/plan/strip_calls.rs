//! The calls of what [`super::strips`] cut: the rows that a strip needs are made as they are asked for, in memory that the next strip uses again.

use std::collections::BTreeMap;

use super::{
    fuse::Group,
    graph::{Op, ValueId},
    lower::Lowering,
    options::Strips,
    program::{Dispatch, Keep, SlotId, SlotPart},
    strip_demand::Strip,
    strip_rows::{
        Needed, Parts, Pass, conv_input, cut, quantum, reads, row_bytes, slice_rows, strip_rows,
        writes,
    },
    strips::Form,
};
use crate::{
    Result,
    kernels::{GroupCombineArgs, GroupStatisticsArgs, Kernel},
};

/// Makes the calls of a program in strips. Statistics are values that the graph does not know, with numbers after those of the graph.
pub(super) struct Divider<'a> {
    pub(super) strips: Strips,
    pub(super) groups: &'a [Group],
    pub(super) forms: Vec<Form>,
    keep: &'a [Keep],
    made_by: BTreeMap<ValueId, usize>,
    /// The finished statistics of each group norm in parts.
    pub(super) statistics: BTreeMap<usize, (SlotId, ValueId)>,
    extra_values: usize,
    pub(super) parts: Parts,
}

impl<'a> Divider<'a> {
    pub(super) fn new(
        strips: Strips,
        groups: &'a [Group],
        forms: Vec<Form>,
        keep: &'a [Keep],
    ) -> Self {
        let made_by = groups.iter().enumerate();
        Self {
            strips,
            groups,
            forms,
            keep,
            made_by: made_by.map(|(i, group)| (group.output, i)).collect(),
            statistics: BTreeMap::new(),
            extra_values: 0,
            parts: Parts::default(),
        }
    }

    /// The calls in the place of one group.
    pub(super) fn calls(
        &mut self,
        lowering: &mut Lowering<'_>,
        index: usize,
    ) -> Result<Vec<Dispatch>> {
        let group = &self.groups[index];
        match self.forms[index] {
            Form::Whole => Ok(vec![lowering.dispatch(group, self.keep[group.output.0])?]),
            Form::Rows => self.rows(lowering, index),
            Form::Parts => self.statistics(lowering, index),
            Form::Again | Form::With(_) => Ok(Vec::new()),
        }
    }

    /// A group norm in parts up to its finished statistics, and the layers that read the same rows.
    fn statistics(&mut self, lowering: &mut Lowering<'_>, norm: usize) -> Result<Vec<Dispatch>> {
        let group = &self.groups[norm];
        let Kernel::GroupNorm(args) = lowering.kernel(group)?.0 else {
            return Err(lowering.unsupported(group, "is no norm"));
        };
        let shape = lowering.shape(group.input);
        let linears: Vec<usize> = (0..self.groups.len())
            .filter(|&other| self.forms[other] == Form::With(norm))
            .collect();
        let outputs: Vec<ValueId> = linears.iter().map(|&i| self.groups[i].output).collect();
        let is_stored = self.maker(group.input).is_none();
        let mut aligned = outputs.clone();
        aligned.extend(is_stored.then_some(group.input));
        let quantum = quantum(lowering, &self.strips, &aligned);
        let fits = |rows: usize| {
            let mut needed = Needed::default();
            self.needs(lowering, group.input, rows, &mut needed);
            for &output in &outputs {
                needed.bind(row_bytes(lowering, output) * rows as u64);
            }
            needed.fits(&self.strips)
        };
        let rows = strip_rows(shape.height, quantum, fits);
        let (rows, slice_rows) = slice_rows(&args, shape, rows, quantum);
        for &output in &outputs {
            lowering.slot(output, self.keep[output.0]);
        }
        let combine = GroupCombineArgs {
            positions: args.positions,
            slice_positions: slice_rows * shape.width,
            channels: args.channels,
            groups: args.groups,
            eps: args.eps,
        };
        let bytes: Vec<u64> = combine.operands().iter().map(|o| o.bytes).collect();
        let slice_bytes = bytes[0] / combine.slices() as u64;
        let [partial, finished] = [bytes[0], bytes[1]].map(|bytes| {
            self.extra_values += 1;
            let value = lowering.graph.values.len() + self.extra_values - 1;
            (lowering.push_slot(bytes, Keep::No), ValueId(value))
        });
        let mut pass = Pass::default();
        for strip in cut(shape.height, rows) {
            pass.next_strip();
            let span = self.demand(lowering, group.input, strip.clone(), &mut pass)?;
            let kernel = GroupStatisticsArgs {
                positions: span.rows * shape.width,
                slice_positions: combine.slice_positions,
                channels: args.channels,
                groups: args.groups,
                input: args.input,
            };
            let at = (strip.start / slice_rows) as u64 * slice_bytes;
            let part = SlotPart {
                of: partial.0,
                offset: at,
                value_at: at,
            };
            let output = self.parts.of(lowering, part, kernel.output_bytes());
            let operands = vec![reads(span.slot, group.input), writes(output, partial.1)];
            let kernel = Kernel::GroupStatistics(kernel);
            pass.calls
                .push(lowering.with_operands(group, kernel, operands));
            for (&linear, &output) in linears.iter().zip(&outputs) {
                let call = Strip {
                    rows: strip.clone(),
                    target: self.stored(lowering, output, strip.clone())?,
                    in_place: None,
                    input: Some(span),
                };
                self.call(lowering, linear, call, &mut pass)?;
            }
        }
        let operands = vec![reads(partial.0, partial.1), writes(finished.0, finished.1)];
        let kernel = Kernel::GroupCombine(combine);
        pass.calls
            .push(lowering.with_operands(group, kernel, operands));
        self.statistics.insert(norm, finished);
        Ok(pass.calls)
    }

    /// A layer whose result is stored, strip by strip.
    fn rows(&mut self, lowering: &mut Lowering<'_>, index: usize) -> Result<Vec<Dispatch>> {
        let group = &self.groups[index];
        let height = lowering.shape(group.output).height;
        let is_conv = matches!(lowering.graph.nodes[group.anchor].op, Op::Conv2d { .. });
        let mut aligned: Vec<ValueId> = group.residual.into_iter().chain([group.output]).collect();
        if !is_conv {
            aligned.extend([Some(group.input), group.second].into_iter().flatten());
        }
        let quantum = quantum(lowering, &self.strips, &aligned);
        let fits = |rows: usize| {
            let mut needed = Needed::default();
            if is_conv {
                let (value, rows) = conv_input(group, rows);
                self.needs(lowering, value, rows, &mut needed);
            }
            for &value in &aligned {
                needed.bind(row_bytes(lowering, value) * rows as u64);
            }
            needed.fits(&self.strips)
        };
        let rows = strip_rows(height, quantum, fits);
        let in_place = self.in_place(lowering, index);
        match in_place {
            Some(residual) => {
                lowering.slot_of[group.output.0] = Some(lowering.slot_of(residual)?);
            }
            None => {
                lowering.slot(group.output, self.keep[group.output.0]);
            }
        }
        let mut pass = Pass::default();
        for strip in cut(height, rows) {
            pass.next_strip();
            let call = Strip {
                rows: strip.clone(),
                target: self.stored(lowering, group.output, strip)?,
                in_place,
                input: None,
            };
            self.call(lowering, index, call, &mut pass)?;
        }
        Ok(pass.calls)
    }

    /// The residual whose place the result may take: nobody reads it later, and no later strip is made of its rows.
    fn in_place(&self, lowering: &Lowering<'_>, index: usize) -> Option<ValueId> {
        let group = &self.groups[index];
        let residual = group.residual?;
        let precisions = &lowering.precisions;
        let is_kept = |value: ValueId| self.keep[value.0] != Keep::No;
        let mut others = (0..self.groups.len()).filter(|&other| other != index);
        let allowed = lowering.options.in_place
            && !is_kept(residual)
            && !is_kept(group.output)
            && precisions[residual.0] == precisions[group.output.0]
            && !self.is_made_of(group.input, residual)
            && !others.any(|other| {
                self.last_run(lowering, other) > index && self.reads(lowering, other, residual)
            });
        allowed.then_some(residual)
    }

    fn reads(&self, lowering: &Lowering<'_>, group: usize, value: ValueId) -> bool {
        let mut reads = self.groups[group].reads(lowering.graph);
        reads.any(|read| read == value)
    }

    /// The last group in whose place a group's calls are made.
    fn last_run(&self, lowering: &Lowering<'_>, index: usize) -> usize {
        match self.forms[index] {
            Form::Whole | Form::Rows => index,
            Form::With(norm) => norm,
            Form::Parts | Form::Again => {
                let output = self.groups[index].output;
                let readers = (0..self.groups.len())
                    .filter(|&reader| self.reads(lowering, reader, output))
                    .map(|reader| self.last_run(lowering, reader));
                readers.max().unwrap_or(index)
            }
        }
    }

    /// Whether `source` is a value, or rows of the value are made of its rows when they are asked for.
    fn is_made_of(&self, value: ValueId, source: ValueId) -> bool {
        let made = |maker: usize| self.is_made_of(self.groups[maker].input, source);
        value == source || self.maker(value).is_some_and(made)
    }

    /// The group that makes rows of the value when they are asked for; none for what is stored.
    pub(super) fn maker(&self, value: ValueId) -> Option<usize> {
        let maker = *self.made_by.get(&value)?;
        matches!(self.forms[maker], Form::Parts | Form::Again).then_some(maker)
    }

    /// What it takes at most to have some rows of a value.
    fn needs(&self, lowering: &Lowering<'_>, value: ValueId, rows: usize, needed: &mut Needed) {
        let bytes = |rows: usize| row_bytes(lowering, value) * rows as u64;
        let earlier = |value: ValueId| quantum(lowering, &self.strips, &[value]) - 1;
        let Some(maker) = self.maker(value) else {
            return needed.bind(bytes(rows + earlier(value)));
        };
        let group = &self.groups[maker];
        let (input, input_rows) = match self.forms[maker] {
            Form::Again => {
                needed.scratch_bytes += bytes(rows);
                conv_input(group, rows)
            }
            _ if self.maker(group.input).is_some() => (group.input, rows),
            _ => {
                let rows = rows + earlier(group.input);
                needed.scratch_bytes += bytes(rows);
                (group.input, rows)
            }
        };
        needed.bind(bytes(rows));
        self.needs(lowering, input, input_rows, needed);
    }
}
