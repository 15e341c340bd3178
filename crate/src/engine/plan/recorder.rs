//! The recording engine: the same calls as on any engine, but a tensor is only a shape, and each call is written down.

use std::cell::RefCell;

use super::graph::{Graph, NamedValue, Node, Op, Rate, Value, ValueId, WeightId, WeightInfo};
use crate::{
    Error, Result,
    engine::{AttentionMask, Engine, Shape, WeightRole},
};

/// Most values of a tensor or a weight: products of sizes stay within 32 bits, which is what a number of values has in a browser.
const MAX_VALUES: u64 = u32::MAX as u64;
/// Most scores of one head, so that sums of multiply-adds stay within 64 bits.
const MAX_SCORES: u64 = 1 << 40;
/// Most operations: some times those of the largest published UNet. Planning takes more than twice as long for twice as many.
const MAX_NODES: usize = 1 << 14;

/// An activation that is not there: which value it is, and the shape it is looked at with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbolic {
    value: ValueId,
    shape: Shape,
}

/// Records a network. Needs no weights and no GPU.
#[derive(Debug)]
pub struct Recorder {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    graph: Graph,
    /// The first call with shapes that do not fit; the trait's methods cannot fail, so [`Recorder::finish`] tells it.
    fault: Option<String>,
}

impl Recorder {
    /// An empty recording of the network `name`.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self {
            state: RefCell::new(State {
                graph: Graph {
                    name,
                    inputs: Vec::new(),
                    outputs: Vec::new(),
                    weights: Vec::new(),
                    values: Vec::new(),
                    nodes: Vec::new(),
                },
                fault: None,
            }),
        }
    }

    /// An input of the network.
    pub fn input(&self, name: &'static str, shape: Shape, rate: Rate) -> Symbolic {
        self.state.borrow_mut().input(name, shape, rate, false)
    }

    /// Token ids of `batch` prompts.
    pub fn ids(&self, name: &'static str, batch: usize, tokens: usize) -> Symbolic {
        self.state
            .borrow_mut()
            .input(name, Shape::tokens(batch, tokens, 1), Rate::Image, true)
    }

    /// Ends the recording; `outputs` are the network's results by name.
    ///
    /// # Errors
    /// [`Error::Config`] when the shapes of a call did not fit, with the module's name.
    pub fn finish(self, outputs: &[(&'static str, Symbolic)]) -> Result<Graph> {
        let State { mut graph, fault } = self.state.into_inner();
        let nodes = graph.nodes.len();
        let too_many =
            || format!("it has {nodes} operations, and at most {MAX_NODES} are supported");
        let fault = fault.or_else(|| (nodes > MAX_NODES).then(too_many));
        if let Some(why) = fault {
            return Err(Error::config(graph.name, why));
        }
        graph.outputs = outputs
            .iter()
            .map(|&(name, tensor)| NamedValue {
                name,
                value: tensor.value,
            })
            .collect();
        Ok(graph)
    }

    fn record(&self, op: Op, inputs: &[&Symbolic], weights: &[WeightId], shape: Shape) -> Symbolic {
        self.state.borrow_mut().record(op, inputs, weights, shape)
    }

    /// Notes a fault unless `holds`. The message names the operation and the module.
    fn require(&self, holds: bool, op: &str, inputs: &[&Symbolic], weight: Option<WeightId>) {
        if holds {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        let shapes: Vec<_> = inputs.iter().map(|input| input.shape).collect();
        let module = match weight {
            Some(id) => state.graph.weights[id.0].name.clone(),
            None => "a module without weights".to_owned(),
        };
        state
            .fault
            .get_or_insert_with(|| format!("{op} in {module} cannot take the shapes {shapes:?}"));
    }

    fn weight_shape(&self, id: WeightId) -> Vec<usize> {
        self.state.borrow().graph.weights[id.0].shape.clone()
    }

    fn unary(&self, op: Op, x: &Symbolic) -> Symbolic {
        self.record(op, &[x], &[], x.shape)
    }

    fn view(&self, x: &Symbolic, shape: Shape) -> Symbolic {
        let fits = product(&sizes(x.shape)) == product(&sizes(shape));
        self.require(fits, "a view", &[x], None);
        Symbolic {
            value: x.value,
            shape,
        }
    }
}

impl State {
    fn input(&mut self, name: &'static str, shape: Shape, rate: Rate, ids: bool) -> Symbolic {
        let value = self.value(Value {
            shape,
            ids,
            rate,
            producer: None,
        });
        self.graph.inputs.push(NamedValue { name, value });
        Symbolic { value, shape }
    }

    fn value(&mut self, value: Value) -> ValueId {
        self.bound("a value", &sizes(value.shape));
        self.graph.values.push(value);
        ValueId(self.graph.values.len() - 1)
    }

    /// Notes a fault where there are more numbers than can be counted.
    fn bound(&mut self, what: &str, sizes: &[usize]) {
        if product(sizes) > MAX_VALUES {
            self.fault.get_or_insert_with(|| {
                format!("{what} of the sizes {sizes:?} has more than {MAX_VALUES} numbers")
            });
        }
    }

    fn record(
        &mut self,
        op: Op,
        inputs: &[&Symbolic],
        weights: &[WeightId],
        shape: Shape,
    ) -> Symbolic {
        let rate = inputs
            .iter()
            .map(|input| self.graph.value(input.value).rate)
            .reduce(Rate::with)
            .unwrap_or(Rate::Step);
        let output = self.value(Value {
            shape,
            ids: false,
            rate,
            producer: Some(self.graph.nodes.len()),
        });
        let module = match weights {
            [first, ..] => module_of(&self.graph.weights[first.0].name).to_owned(),
            [] => self.common_module(inputs),
        };
        self.graph.nodes.push(Node {
            op,
            inputs: inputs.iter().map(|input| input.value).collect(),
            weights: weights.to_vec(),
            output,
            module,
        });
        Symbolic {
            value: output,
            shape,
        }
    }

    /// The longest path that the modules of all inputs have in common; the last one's where they have none.
    fn common_module(&self, inputs: &[&Symbolic]) -> String {
        let modules: Vec<&str> = inputs
            .iter()
            .filter_map(|input| self.graph.value(input.value).producer)
            .map(|node| self.graph.nodes[node].module.as_str())
            .collect();
        let Some((first, rest)) = modules.split_first() else {
            return self.graph.name.to_owned();
        };
        let common = first
            .split('.')
            .enumerate()
            .take_while(|&(i, part)| rest.iter().all(|m| m.split('.').nth(i) == Some(part)))
            .map(|(_, part)| part)
            .collect::<Vec<_>>()
            .join(".");
        if common.is_empty() {
            rest.last().unwrap_or(first).to_string()
        } else {
            common
        }
    }
}

const fn sizes(shape: Shape) -> [usize; 4] {
    [shape.batch, shape.height, shape.width, shape.channels]
}

/// The product, or the largest number where it is larger.
fn product(sizes: &[usize]) -> u64 {
    let sizes = sizes.iter().map(|&size| size as u64);
    sizes.fold(1, u64::saturating_mul)
}

/// A weight's name without its last part.
fn module_of(weight: &str) -> &str {
    weight.rsplit_once('.').map_or(weight, |(module, _)| module)
}

impl Engine for Recorder {
    type Tensor = Symbolic;
    type Ids = Symbolic;
    type Weight = WeightId;

    fn declare(&self, name: &str, role: WeightRole, shape: &[usize]) -> WeightId {
        let state = &mut *self.state.borrow_mut();
        state.bound(name, shape);
        let weights = &mut state.graph.weights;
        weights.push(WeightInfo {
            name: name.to_owned(),
            role,
            shape: shape.to_vec(),
        });
        WeightId(weights.len() - 1)
    }

    fn shape(&self, x: &Symbolic) -> Shape {
        x.shape
    }

    fn embedding(&self, table: &WeightId, ids: &Symbolic) -> Symbolic {
        let channels = self.weight_shape(*table)[1];
        self.record(
            Op::Embedding,
            &[ids],
            &[*table],
            Shape::tokens(ids.shape.batch, ids.shape.width, channels),
        )
    }

    fn add_positions(&self, x: &Symbolic, table: &WeightId) -> Symbolic {
        let shape = self.weight_shape(*table);
        let fits = x.shape.width <= shape[0] && x.shape.channels == shape[1];
        self.require(fits, "add_positions", &[x], Some(*table));
        self.record(Op::AddPositions, &[x], &[*table], x.shape)
    }

    fn linear(&self, x: &Symbolic, weight: &WeightId, bias: Option<&WeightId>) -> Symbolic {
        let shape = self.weight_shape(*weight);
        let fits = shape[1] == x.shape.channels
            && bias.is_none_or(|bias| self.weight_shape(*bias) == shape[..1]);
        self.require(fits, "linear", &[x], Some(*weight));
        let weights: Vec<_> = std::iter::once(weight).chain(bias).copied().collect();
        let channels = shape[0];
        self.record(
            Op::Linear,
            &[x],
            &weights,
            Shape {
                channels,
                ..x.shape
            },
        )
    }

    fn conv2d(
        &self,
        x: &Symbolic,
        weight: &WeightId,
        bias: &WeightId,
        stride: usize,
        padding: usize,
    ) -> Symbolic {
        let shape = self.weight_shape(*weight);
        let kernel = shape[2];
        let side = |side: usize| {
            (side + 2 * padding)
                .checked_sub(kernel)
                .map(|n| n / stride + 1)
        };
        let fits = shape[1] == x.shape.channels && kernel == 3 && shape[3] == kernel;
        let (height, width) = (side(x.shape.height), side(x.shape.width));
        self.require(
            fits && height.is_some() && width.is_some(),
            "conv2d",
            &[x],
            Some(*weight),
        );
        self.record(
            Op::Conv2d { stride, padding },
            &[x],
            &[*weight, *bias],
            Shape::image(
                x.shape.batch,
                height.unwrap_or(1),
                width.unwrap_or(1),
                shape[0],
            ),
        )
    }

    fn group_norm(
        &self,
        x: &Symbolic,
        scale: &WeightId,
        shift: &WeightId,
        groups: usize,
        eps: f64,
    ) -> Symbolic {
        let fits = self.weight_shape(*scale) == [x.shape.channels]
            && groups > 0
            && x.shape.channels.is_multiple_of(groups);
        self.require(fits, "group_norm", &[x], Some(*scale));
        self.record(
            Op::GroupNorm { groups, eps },
            &[x],
            &[*scale, *shift],
            x.shape,
        )
    }

    fn layer_norm(&self, x: &Symbolic, scale: &WeightId, shift: &WeightId, eps: f64) -> Symbolic {
        let fits = self.weight_shape(*scale) == [x.shape.channels];
        self.require(fits, "layer_norm", &[x], Some(*scale));
        self.record(Op::LayerNorm { eps }, &[x], &[*scale, *shift], x.shape)
    }

    fn attention(
        &self,
        q: &Symbolic,
        k: &Symbolic,
        v: &Symbolic,
        num_heads: usize,
        mask: AttentionMask,
    ) -> Symbolic {
        let fits = k.shape == v.shape
            && q.shape.batch == k.shape.batch
            && q.shape.channels == k.shape.channels
            && num_heads > 0
            && q.shape.channels.is_multiple_of(num_heads)
            && product(&[q.shape.height, q.shape.width, k.shape.height, k.shape.width])
                <= MAX_SCORES;
        self.require(fits, "attention", &[q, k, v], None);
        self.record(Op::Attention { num_heads, mask }, &[q, k, v], &[], q.shape)
    }

    fn silu(&self, x: &Symbolic) -> Symbolic {
        self.unary(Op::Silu, x)
    }

    fn quick_gelu(&self, x: &Symbolic) -> Symbolic {
        self.unary(Op::QuickGelu, x)
    }

    fn gelu(&self, x: &Symbolic) -> Symbolic {
        self.unary(Op::Gelu, x)
    }

    fn geglu(&self, x: &Symbolic) -> Symbolic {
        self.require(x.shape.channels.is_multiple_of(2), "geglu", &[x], None);
        let channels = x.shape.channels / 2;
        self.record(
            Op::Geglu,
            &[x],
            &[],
            Shape {
                channels,
                ..x.shape
            },
        )
    }

    fn add(&self, a: &Symbolic, b: &Symbolic) -> Symbolic {
        self.require(a.shape == b.shape, "add", &[a, b], None);
        self.record(Op::Add, &[a, b], &[], a.shape)
    }

    fn add_channels(&self, x: &Symbolic, channels: &Symbolic) -> Symbolic {
        let row = Shape::image(channels.shape.batch, 1, 1, x.shape.channels);
        let fits = channels.shape == row && [1, x.shape.batch].contains(&row.batch);
        self.require(fits, "add_channels", &[x, channels], None);
        self.record(Op::AddChannels, &[x, channels], &[], x.shape)
    }

    fn concat_channels(&self, a: &Symbolic, b: &Symbolic) -> Symbolic {
        let channels = a.shape.channels + b.shape.channels;
        let shape = Shape {
            channels,
            ..a.shape
        };
        let fits = Shape {
            channels,
            ..b.shape
        } == shape;
        self.require(fits, "concat_channels", &[a, b], None);
        self.record(Op::ConcatChannels, &[a, b], &[], shape)
    }

    fn upsample_nearest2d(&self, x: &Symbolic, height: usize, width: usize) -> Symbolic {
        let doubled = |from: usize, to: usize| to == 2 * from || to + 1 == 2 * from;
        let fits = doubled(x.shape.height, height) && doubled(x.shape.width, width);
        self.require(fits, "upsample_nearest2d", &[x], None);
        self.record(
            Op::UpsampleNearest2d,
            &[x],
            &[],
            Shape {
                height,
                width,
                ..x.shape
            },
        )
    }

    fn tokens(&self, x: &Symbolic) -> Symbolic {
        let Shape {
            batch,
            height,
            width,
            channels,
        } = x.shape;
        self.view(
            x,
            Shape::tokens(batch, height.saturating_mul(width), channels),
        )
    }

    fn image(&self, x: &Symbolic, height: usize, width: usize) -> Symbolic {
        self.view(
            x,
            Shape::image(x.shape.batch, height, width, x.shape.channels),
        )
    }
}
