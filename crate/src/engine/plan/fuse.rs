//! Which recorded operations one kernel does together.

use super::{
    graph::{Graph, Op, ValueId},
    options::Fusions,
    storage::{Phase, Phases},
};
use crate::kernels::{Activation, Precision};

/// The operations of one kernel call.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// The node that gives the kernel.
    pub(super) anchor: usize,
    /// All nodes, in order; the kernel is called where the last one stood.
    pub(super) nodes: Vec<usize>,
    /// The value it writes.
    pub(super) output: ValueId,
    pub(super) phase: Phase,
    /// The kernel's input, after folding.
    pub(super) input: ValueId,
    /// A second tensor whose channels follow those of the input.
    pub(super) second: Option<ValueId>,
    /// The size that the input is enlarged to before it is read.
    pub(super) upsample: Option<[usize; 2]>,
    pub(super) activation: Activation,
    pub(super) geglu: bool,
    pub(super) silu: bool,
    pub(super) positions: Option<usize>,
    pub(super) channel_add: Option<ValueId>,
    pub(super) residual: Option<ValueId>,
}

impl Group {
    /// Every value that it reads.
    pub(super) fn reads<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = ValueId> + 'a {
        let extra = graph.nodes[self.anchor].inputs.iter().copied().skip(1);
        std::iter::once(self.input)
            .chain(self.second)
            .chain(self.channel_add)
            .chain(self.residual)
            .chain(extra)
    }

    fn last(&self) -> usize {
        self.nodes.last().copied().unwrap_or(self.anchor)
    }

    /// Whether nothing was added to a linear layer or convolution yet.
    fn is_bare(&self) -> bool {
        self.activation == Activation::None
            && !self.geglu
            && !self.silu
            && self.channel_add.is_none()
            && self.residual.is_none()
    }
}

/// Groups the nodes of a graph, in the order of their calls.
pub(super) fn group(
    graph: &Graph,
    fusions: Fusions,
    phases: Phases,
    precisions: &[Precision],
) -> Vec<Group> {
    let mut fuser = Fuser {
        graph,
        fusions,
        phases,
        precisions,
        consumers: graph.consumers(),
        groups: Vec::new(),
        made_by: vec![None; graph.values.len()],
        folded: vec![false; graph.values.len()],
    };
    for node in 0..graph.nodes.len() {
        fuser.visit(node);
    }
    let mut groups = fuser.groups;
    groups.sort_by_key(Group::last);
    groups
}

struct Fuser<'a> {
    graph: &'a Graph,
    fusions: Fusions,
    phases: Phases,
    precisions: &'a [Precision],
    consumers: Vec<Vec<usize>>,
    groups: Vec<Group>,
    /// The group whose output a value is.
    made_by: Vec<Option<usize>>,
    /// Whether a value is never stored, because its readers read what it is made of.
    folded: Vec<bool>,
}

impl Fuser<'_> {
    fn visit(&mut self, index: usize) {
        let node = &self.graph.nodes[index];
        if self.folds(index) {
            self.folded[node.output.0] = true;
            return;
        }
        let group = match self.absorb(index) {
            Some(group) => {
                self.groups[group].nodes.push(index);
                self.groups[group].output = node.output;
                group
            }
            None => {
                self.groups.push(self.start(index));
                self.groups.len() - 1
            }
        };
        self.made_by[node.output.0] = Some(group);
    }

    fn start(&self, index: usize) -> Group {
        let node = &self.graph.nodes[index];
        let (mut input, mut second, mut upsample) = (node.inputs[0], None, None);
        if let Some(producer) = self.graph.value(input).producer
            && self.folded[input.0]
        {
            let folded = &self.graph.nodes[producer];
            if folded.op == Op::ConcatChannels {
                second = Some(folded.inputs[1]);
            } else {
                let shape = self.graph.value(folded.output).shape;
                upsample = Some([shape.height, shape.width]);
            }
            input = folded.inputs[0];
        }
        Group {
            anchor: index,
            nodes: vec![index],
            output: node.output,
            phase: self.phases.of(self.graph, node.output),
            input,
            second,
            upsample,
            activation: Activation::None,
            geglu: false,
            silu: false,
            positions: None,
            channel_add: None,
            residual: None,
        }
    }

    /// Whether the readers of this node's output can read its inputs instead.
    fn folds(&self, index: usize) -> bool {
        let node = &self.graph.nodes[index];
        let reader = |accepts: fn(Op) -> bool| {
            let readers = &self.consumers[node.output.0];
            !readers.is_empty()
                && !self.graph.is_output(node.output)
                && readers
                    .iter()
                    .all(|&reader| accepts(self.graph.nodes[reader].op))
        };
        let stored = node.inputs.iter().all(|input| !self.folded[input.0]);
        match node.op {
            Op::ConcatChannels => {
                self.fusions.concat
                    && stored
                    && node.inputs[0] != node.inputs[1]
                    && reader(|op| matches!(op, Op::Linear | Op::GroupNorm { .. }))
            }
            Op::UpsampleNearest2d => {
                self.fusions.upsample
                    && stored
                    && reader(|op| matches!(op, Op::Conv2d { stride: 1, .. }))
            }
            _ => false,
        }
    }

    /// The group that can also do this node, already told to.
    fn absorb(&mut self, index: usize) -> Option<usize> {
        let node = &self.graph.nodes[index];
        let anchor_op =
            |fuser: &Self, group: usize| fuser.graph.nodes[fuser.groups[group].anchor].op;
        let group = self.only_reader_of(index, node.inputs[0]);
        match node.op {
            Op::Silu | Op::Gelu | Op::QuickGelu => {
                let group = group.filter(|&group| self.groups[group].is_bare())?;
                match anchor_op(self, group) {
                    Op::Linear if self.fusions.activation => {
                        self.groups[group].activation = match node.op {
                            Op::Silu => Activation::Silu,
                            Op::Gelu => Activation::Gelu,
                            _ => Activation::QuickGelu,
                        };
                    }
                    Op::GroupNorm { .. } if self.fusions.group_norm_silu && node.op == Op::Silu => {
                        self.groups[group].silu = true;
                    }
                    _ => return None,
                }
                Some(group)
            }
            Op::Geglu if self.fusions.geglu => {
                let group = group.filter(|&group| {
                    self.groups[group].is_bare() && anchor_op(self, group) == Op::Linear
                })?;
                self.groups[group].geglu = true;
                Some(group)
            }
            Op::AddChannels if self.fusions.channel_add => {
                let group = group.filter(|&group| {
                    self.groups[group].is_bare()
                        && matches!(anchor_op(self, group), Op::Conv2d { .. })
                        && self.may_read(group, node.inputs[1])
                })?;
                self.groups[group].channel_add = Some(node.inputs[1]);
                Some(group)
            }
            Op::AddPositions => {
                let group = group.filter(|&group| anchor_op(self, group) == Op::Embedding)?;
                self.groups[group].positions = Some(index);
                Some(group)
            }
            Op::Add if self.fusions.residual => {
                let [a, b] = [node.inputs[0], node.inputs[1]];
                // The later of the two: its kernel need not wait for the other term.
                let (group, residual) = [(a, b), (b, a)]
                    .into_iter()
                    .filter_map(|(value, other)| Some((self.only_reader_of(index, value)?, other)))
                    .filter(|&(group, residual)| {
                        matches!(anchor_op(self, group), Op::Linear | Op::Conv2d { .. })
                            && self.groups[group].residual.is_none()
                            && self.may_read(group, residual)
                            && self.precisions[residual.0] == self.precisions[node.output.0]
                    })
                    .max_by_key(|&(group, _)| self.groups[group].last())?;
                self.groups[group].residual = Some(residual);
                Some(group)
            }
            _ => None,
        }
    }

    /// The group that makes `value`, if node `index` is its only reader and belongs to the same phase.
    fn only_reader_of(&self, index: usize, value: ValueId) -> Option<usize> {
        let node = &self.graph.nodes[index];
        let group = self.made_by[value.0]?;
        (self.consumers[value.0] == [index]
            && !self.graph.is_output(value)
            && self.groups[group].phase == self.phases.of(self.graph, node.output))
        .then_some(group)
    }

    /// Whether a further operand may be `value`: it is stored, and no range is bound twice in one call.
    fn may_read(&self, group: usize, value: ValueId) -> bool {
        let group = &self.groups[group];
        !self.folded[value.0]
            && ![
                Some(group.input),
                group.second,
                group.channel_add,
                group.residual,
            ]
            .contains(&Some(value))
    }
}
