//! Which operations are computed in strips of rows, so that what they need at once is small.
//!
//! A norm's result is as large as its input and lives for one convolution: in strips it is made row by row as the convolution asks for it,
//! from statistics that were taken before. A picture that was just upsampled is the largest of all and cheap to make: it may be made twice
//! instead of stored. What is left then are the inputs and outputs of the blocks.

use super::{
    fuse::Group,
    graph::{Op, ValueId},
    lower::Lowering,
    options::Strips,
    program::Keep,
    storage::Phase,
};
use crate::engine::Shape;

/// How the operations of a group are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// At once.
    Whole,
    /// Row by row into a stored result.
    Rows,
    /// A group norm whose statistics are taken in its place, and whose rows are made for the convolution that reads them.
    Parts,
    /// A convolution whose rows are made each time they are read.
    Again,
    /// Together with the statistics of the group norm of this index: it reads the same rows.
    With(usize),
}

/// Decides for each group. A sum that waits for a picture which is never stored is moved to the convolution that makes its other term.
pub(super) fn divide(
    lowering: &Lowering<'_>,
    groups: &mut [Group],
    keep: &[Keep],
    strips: &Strips,
) -> Vec<Form> {
    let mut survey = Survey::new(lowering, groups, keep, strips);
    for norm in 0..survey.groups.len() {
        survey.visit_norm(norm);
    }
    for group in 0..survey.groups.len() {
        if survey.forms[group] == Form::Whole && survey.must_be_cut(group) {
            survey.forms[group] = Form::Rows;
        }
    }
    survey.forms
}

struct Survey<'a, 'b> {
    lowering: &'a Lowering<'b>,
    groups: &'a mut [Group],
    keep: &'a [Keep],
    strips: &'a Strips,
    forms: Vec<Form>,
    /// The group that makes each value.
    made_by: Vec<Option<usize>>,
    /// The groups that read each value, once for each operand.
    readers: Vec<Vec<usize>>,
}

impl<'a, 'b> Survey<'a, 'b> {
    fn new(
        lowering: &'a Lowering<'b>,
        groups: &'a mut [Group],
        keep: &'a [Keep],
        strips: &'a Strips,
    ) -> Self {
        let values = lowering.graph.values.len();
        let (mut made_by, mut readers) = (vec![None; values], vec![Vec::new(); values]);
        for (index, group) in groups.iter().enumerate() {
            made_by[group.output.0] = Some(index);
            for value in group.reads(lowering.graph) {
                readers[value.0].push(index);
            }
        }
        Self {
            forms: vec![Form::Whole; groups.len()],
            lowering,
            groups,
            keep,
            strips,
            made_by,
            readers,
        }
    }

    fn op(&self, group: usize) -> Op {
        self.lowering.graph.nodes[self.groups[group].anchor].op
    }

    fn shape(&self, value: ValueId) -> Shape {
        self.lowering.shape(value)
    }

    fn bytes(&self, value: ValueId) -> u64 {
        self.lowering.precisions[value.0].bytes(self.shape(value).len())
    }

    /// Whether the value is one picture that is computed in each run.
    fn is_picture(&self, value: ValueId) -> bool {
        let shape = self.shape(value);
        shape.batch == 1
            && shape.height > 1
            && self.lowering.phases.of(self.lowering.graph, value) == Phase::Step
    }

    fn same_rows(&self, a: ValueId, b: ValueId) -> bool {
        let (a, b) = (self.shape(a), self.shape(b));
        (a.height, a.width) == (b.height, b.width)
    }

    fn is_too_large(&self, value: ValueId) -> bool {
        self.bytes(value) > self.strips.binding_bytes
    }

    /// A 3x3 convolution of one picture that keeps the size of what it sees, so that every row is made of the rows around it.
    fn is_local_conv(&self, group: usize) -> bool {
        let one = Op::Conv2d {
            stride: 1,
            padding: 1,
        };
        self.op(group) == one
            && self.is_picture(self.groups[group].input)
            && self.is_picture(self.groups[group].output)
    }

    /// The convolution that alone reads what a group norm gives, where both can be cut.
    fn conv_of_norm(&self, norm: usize) -> Option<usize> {
        let group = &self.groups[norm];
        let &[conv] = &self.readers[group.output.0][..] else {
            return None;
        };
        let fits = matches!(self.op(norm), Op::GroupNorm { .. })
            && group.second.is_none()
            && self.keep[group.output.0] == Keep::No
            && self.is_picture(group.input)
            && self.is_picture(group.output)
            && self.same_rows(group.input, group.output)
            && self.bytes(group.output) > self.strips.bytes;
        let conv_fits = self.is_local_conv(conv)
            && self.groups[conv].input == group.output
            && self.groups[conv].upsample.is_none();
        (fits && conv_fits).then_some(conv)
    }

    fn visit_norm(&mut self, norm: usize) {
        let Some(conv) = self.conv_of_norm(norm) else {
            return;
        };
        let source = self.groups[norm].input;
        if let Some((producer, linears)) = self.recomputed(norm) {
            for linear in linears {
                self.free_of_sum(linear);
                self.forms[linear] = Form::With(norm);
            }
            self.forms[producer] = Form::Again;
        } else if !self.needs_a_copy(norm) {
            return;
        }
        debug_assert!(self.readers[source.0].contains(&norm));
        self.forms[norm] = Form::Parts;
        self.forms[conv] = Form::Rows;
    }

    /// Whether a norm could not simply replace its input, which costs no memory.
    fn needs_a_copy(&self, norm: usize) -> bool {
        let (input, output) = (self.groups[norm].input, self.groups[norm].output);
        let precisions = &self.lowering.precisions;
        self.is_too_large(input)
            || self.is_too_large(output)
            || !self.lowering.options.in_place
            || self.keep[input.0] != Keep::No
            || precisions[input.0] != precisions[output.0]
            || self.readers[input.0].iter().any(|&reader| reader > norm)
    }

    /// The convolution that makes the norm's input and the linear layers that read it too, where it can be made twice.
    fn recomputed(&self, norm: usize) -> Option<(usize, Vec<usize>)> {
        let source = self.groups[norm].input;
        let producer = self.made_by[source.0]?;
        let group = &self.groups[producer];
        let is_stored = |value: ValueId| {
            self.made_by[value.0]
                .is_none_or(|maker| !matches!(self.forms[maker], Form::Parts | Form::Again))
        };
        let fits = self.is_local_conv(producer)
            && group.residual.is_none()
            && group.channel_add.is_none()
            && self.keep[source.0] == Keep::No
            && self.bytes(source) > self.strips.recompute_above
            && is_stored(group.input);
        let linears: Vec<usize> = self.readers[source.0]
            .iter()
            .copied()
            .filter(|&reader| reader != norm)
            .collect();
        (fits && linears.iter().all(|&linear| self.may_join(linear, norm)))
            .then_some((producer, linears))
    }

    /// Whether a linear layer can be computed along with the statistics of a norm of the same input.
    fn may_join(&self, linear: usize, norm: usize) -> bool {
        let group = &self.groups[linear];
        self.op(linear) == Op::Linear
            && linear > norm
            && self.readers[group.input.0]
                .iter()
                .filter(|&&reader| reader == linear)
                .count()
                == 1
            && group.input == self.groups[norm].input
            && group.second.is_none()
            && self.is_picture(group.output)
            && self.same_rows(group.input, group.output)
            && (group.residual.is_none() || self.other_term(linear, norm).is_some())
    }

    /// The convolution that makes what a linear layer adds to its result, if it could add the layer's result to its own instead.
    fn other_term(&self, linear: usize, norm: usize) -> Option<usize> {
        let group = &self.groups[linear];
        let (residual, bare) = (group.residual?, self.without_sum(linear)?);
        let conv = self.made_by[residual.0]?;
        let precisions = &self.lowering.precisions;
        let fits = matches!(self.op(conv), Op::Conv2d { .. })
            && conv > norm
            && self.forms[conv] == Form::Whole
            && self.groups[conv].residual.is_none()
            && self.readers[residual.0] == [linear]
            && self.keep[residual.0] == Keep::No
            && precisions[bare.0] == precisions[group.output.0]
            && self.same_rows(bare, group.input);
        fits.then_some(conv)
    }

    /// What a linear layer gives before its sum.
    fn without_sum(&self, linear: usize) -> Option<ValueId> {
        let [.., before, sum] = self.groups[linear].nodes[..] else {
            return None;
        };
        let nodes = &self.lowering.graph.nodes;
        (nodes[sum].op == Op::Add).then_some(nodes[before].output)
    }

    /// Moves a linear layer's sum to the convolution that makes the other term.
    fn free_of_sum(&mut self, linear: usize) {
        let Form::Whole = self.forms[linear] else {
            return;
        };
        let (Some(bare), Some(residual)) = (self.without_sum(linear), self.groups[linear].residual)
        else {
            return;
        };
        let Some(conv) = self.made_by[residual.0] else {
            return;
        };
        let sum = self.groups[linear].output;
        self.groups[linear].residual = None;
        self.groups[linear].output = bare;
        let node = self.groups[linear].nodes.pop();
        self.groups[conv].nodes.extend(node);
        self.groups[conv].residual = Some(bare);
        self.groups[conv].output = sum;
        self.made_by[bare.0] = Some(linear);
        self.made_by[sum.0] = Some(conv);
        self.readers[residual.0].clear();
        self.readers[bare.0] = vec![conv];
    }

    /// Whether a layer that can be cut binds more than a binding may be.
    fn must_be_cut(&self, index: usize) -> bool {
        let group = &self.groups[index];
        let pictures = [
            Some(group.input),
            group.second,
            group.residual,
            Some(group.output),
        ];
        let mut pictures = pictures.into_iter().flatten();
        let too_large = pictures.clone().any(|value| self.is_too_large(value));
        let may_be_cut = match self.op(index) {
            Op::Conv2d { .. } => self.is_local_conv(index),
            Op::Linear => {
                pictures.all(|value| self.is_picture(value) && self.same_rows(value, group.output))
            }
            _ => false,
        };
        too_large && may_be_cut
    }
}
