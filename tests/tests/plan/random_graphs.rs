//! Random networks and random lifetimes, from seeds: every plan holds against a simulation that shares no code with the planner.

use latent_canvas::{
    engine::{
        AttentionMask, Engine, Shape, WeightRole,
        plan::{
            AttentionChoice, Fusions, Graph, LowerOptions, Plan, Rate, Recorder, Strips, Symbolic,
            arena::{Item, pack},
            liveness::Lifetime,
        },
    },
    kernels::{Kernel, Limits, Precision},
};

use super::brute_force;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

struct Builder<'a> {
    recorder: &'a Recorder,
    random: &'a mut Random,
    weights: usize,
}

impl Builder<'_> {
    fn weight(
        &mut self,
        role: WeightRole,
        shape: &[usize],
    ) -> latent_canvas::engine::plan::WeightId {
        self.weights += 1;
        let name = format!("block.{}.weight", self.weights);
        self.recorder.declare(&name, role, shape)
    }

    fn linear(&mut self, x: &Symbolic, channels: usize) -> Symbolic {
        let k = self.recorder.shape(x).channels;
        let weight = self.weight(WeightRole::Linear, &[channels, k]);
        let bias = self.weight(WeightRole::Vector, &[channels]);
        self.recorder.linear(x, &weight, Some(&bias))
    }

    fn conv(&mut self, x: &Symbolic, channels: usize, stride: usize) -> Symbolic {
        let k = self.recorder.shape(x).channels;
        let weight = self.weight(WeightRole::Conv2d, &[channels, k, 3, 3]);
        let bias = self.weight(WeightRole::Vector, &[channels]);
        self.recorder.conv2d(x, &weight, &bias, stride, 1)
    }

    fn norm_silu(&mut self, x: &Symbolic) -> Symbolic {
        let shape = self.recorder.shape(x);
        let scale = self.weight(WeightRole::Vector, &[shape.channels]);
        let shift = self.weight(WeightRole::Vector, &[shape.channels]);
        let groups = [3, 2, 1]
            .into_iter()
            .find(|n| shape.channels.is_multiple_of(*n));
        let groups = groups.unwrap();
        let y = self.recorder.group_norm(x, &scale, &shift, groups, 1e-5);
        self.recorder.silu(&y)
    }

    /// What the decoder is made of; mostly of a picture that was just enlarged.
    fn resnet(&mut self, x: &Symbolic, channels: usize) -> Symbolic {
        let engine = self.recorder;
        let mut x = *x;
        if self.random.below(3) > 0 {
            let shape = engine.shape(&x);
            x = engine.upsample_nearest2d(&x, 2 * shape.height, 2 * shape.width);
            x = self.conv(&x, shape.channels, 1);
        }
        let first = self.random.coin().then(|| self.linear(&x, channels));
        let y = self.norm_silu(&x);
        let y = self.conv(&y, channels, 1);
        let y = self.norm_silu(&y);
        let y = self.conv(&y, channels, 1);
        match first {
            Some(shortcut) => engine.add(&y, &shortcut),
            None if engine.shape(&x).channels == channels => engine.add(&x, &y),
            None => engine.add(&self.linear(&x, channels), &y),
        }
    }

    /// One random operation on values that are there.
    fn step(&mut self, values: &[Symbolic], text: &Symbolic, time: &Symbolic) -> Symbolic {
        let engine = self.recorder;
        let x = self.random.pick(values);
        let shape = engine.shape(&x);
        let widths = [6, 8, 9, 12, 16];
        let channels = self.random.pick(&widths);
        match self.random.below(14) {
            0 => self.linear(&x, channels),
            1 => self.conv(&x, channels, 1),
            2 => self.conv(&x, channels, 2),
            3 => {
                let scale = self.weight(WeightRole::Vector, &[shape.channels]);
                let shift = self.weight(WeightRole::Vector, &[shape.channels]);
                engine.group_norm(&x, &scale, &shift, 1, 1e-5)
            }
            4 => {
                let scale = self.weight(WeightRole::Vector, &[shape.channels]);
                let shift = self.weight(WeightRole::Vector, &[shape.channels]);
                engine.layer_norm(&x, &scale, &shift, 1e-5)
            }
            5 => match self.random.below(3) {
                0 => engine.silu(&x),
                1 => engine.gelu(&x),
                _ => engine.quick_gelu(&x),
            },
            6 => {
                let wide = self.linear(&x, 2 * channels);
                engine.geglu(&wide)
            }
            7 => {
                let alike: Vec<_> = values
                    .iter()
                    .copied()
                    .filter(|y| engine.shape(y) == shape && *y != x)
                    .collect();
                if alike.is_empty() {
                    let y = self.linear(&x, shape.channels);
                    engine.add(&y, &x)
                } else {
                    engine.add(&x, &self.random.pick(&alike))
                }
            }
            8 => {
                let part = |y: &Symbolic| {
                    let y = engine.shape(y);
                    (y.batch, y.height, y.width)
                };
                let alike: Vec<_> = values
                    .iter()
                    .copied()
                    .filter(|y| part(y) == part(&x) && *y != x)
                    .collect();
                if alike.is_empty() {
                    return engine.silu(&x);
                }
                let both = engine.concat_channels(&x, &self.random.pick(&alike));
                if self.random.coin() {
                    self.linear(&both, channels)
                } else {
                    both
                }
            }
            9 => {
                let tokens = engine.tokens(&x);
                let context = if self.random.coin() { *text } else { tokens };
                let q = self.linear(&tokens, 12);
                let k = self.linear(&context, 12);
                let v = self.linear(&context, 12);
                let heads = self.random.pick(&[1, 2, 4]);
                let y = engine.attention(&q, &k, &v, heads, AttentionMask::None);
                let y = self.linear(&y, shape.channels);
                let y = engine.image(&y, shape.height, shape.width);
                engine.add(&y, &x)
            }
            10 => {
                let odd = self.random.below(2).min(shape.height - 1);
                let up = engine.upsample_nearest2d(&x, 2 * shape.height - odd, 2 * shape.width);
                if self.random.coin() {
                    self.conv(&up, channels, 2)
                } else {
                    up
                }
            }
            11 | 12 => self.resnet(&x, channels),
            _ => {
                let y = self.conv(&x, channels, 1);
                let row = self.linear(time, channels);
                engine.add_channels(&y, &row)
            }
        }
    }
}

fn random_graph(random: &mut Random) -> Graph {
    let recorder = Recorder::new("random");
    let batch = 1 + random.below(2);
    let x = recorder.input(
        "sample",
        Shape::image(batch, 5 + random.below(4), 6, 8),
        Rate::Step,
    );
    let time = recorder.input(
        "timestep_sinusoid",
        Shape::image(1, 1, 1, 8),
        Rate::Schedule,
    );
    let text = recorder.input(
        "encoder_hidden_states",
        Shape::tokens(batch, 7, 10),
        Rate::Image,
    );
    let count = 5 + random.below(40);
    let mut values = vec![x];
    let mut builder = Builder {
        recorder: &recorder,
        random,
        weights: 0,
    };
    for _ in 0..count {
        // mostly the newest, as in a network; sometimes an old one, as a skip
        let from = if builder.random.below(4) == 0 {
            0
        } else {
            values.len().saturating_sub(3)
        };
        let next = builder.step(&values[from..], &text, &time);
        let shape = recorder.shape(&next);
        if shape.len() < 20_000 && shape.width < 40 {
            values.push(next);
        }
    }
    let last = values[values.len() - 1];
    let mut outputs = vec![("noise_pred", last)];
    if random.coin() {
        let other = random.pick(&values);
        if other != last && other != x {
            outputs.push(("other", other));
        }
    }
    recorder.finish(&outputs).unwrap()
}

fn random_options(random: &mut Random) -> LowerOptions {
    let fusions = Fusions {
        residual: random.coin(),
        activation: random.coin(),
        group_norm_silu: random.coin(),
        geglu: random.coin(),
        channel_add: random.coin(),
        concat: random.coin(),
        upsample: random.coin(),
    };
    LowerOptions {
        activations: random.pick(&[Precision::F32, Precision::F16]),
        fusions: if random.coin() { Fusions::ALL } else { fusions },
        in_place: random.below(4) > 0,
        hoist_text: random.coin(),
        hoist_schedule: random.pick(&[None, Some(3)]),
        split_k: random.coin(),
        attention: random.pick(&[
            AttentionChoice::Auto,
            AttentionChoice::Sliced,
            AttentionChoice::AllHeads,
        ]),
        score_bytes: random.pick(&[1, 500, 1 << 20]),
        strips: random.coin().then(|| Strips {
            bytes: random.pick(&[0, 500, 4000]),
            recompute_above: random.pick(&[0, 2000, u64::MAX]),
            binding_bytes: random.pick(&[2000, 8000, u64::MAX]),
            alignment_bytes: 256,
        }),
    }
}

#[test]
fn plans_of_random_networks_hold() {
    let mut calls = 0;
    let mut multiple_buffers = 0;
    let (mut norms_in_parts, mut strips) = (0, 0);
    for seed in 0..600 {
        let mut random = Random(seed);
        let graph = random_graph(&mut random);
        let options = random_options(&mut random);
        // small buffers, so that arenas are split
        let limits = Limits {
            max_buffer_bytes: random.pick(&[24 << 10, 256 << 20]),
            ..Limits::DEFAULT
        };
        let passes = 1 + random.below(2);
        let plan = Plan::new(graph, &options, passes, &limits)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        brute_force::check(&plan.program, &plan.arena)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(
            plan.arena.bytes() >= plan.arena.lower_bound_bytes,
            "seed {seed}"
        );
        calls += plan.program.dispatches().count();
        let kernels = plan.program.dispatches().map(|call| &call.kernel);
        for kernel in kernels {
            match kernel {
                Kernel::GroupCombine(_) => norms_in_parts += 1,
                Kernel::Conv2d(args) if args.strip.is_some() => strips += 1,
                _ => {}
            }
        }
        multiple_buffers += usize::from(plan.arena.transient_buffers > 1);
        // every operation is done by exactly one call, but for concatenations and upsamplings that readers fold in
        let mut done = vec![0; plan.graph.nodes.len()];
        for call in plan.program.dispatches() {
            for &node in &call.nodes {
                done[node] += 1;
            }
        }
        for (node, times) in plan.graph.nodes.iter().zip(done) {
            let foldable = ["concat_channels", "upsample_nearest2d"].contains(&node.op.name());
            // a strip is a call, and some operations are done for it again
            let repeated = times > 1 && options.strips.is_some();
            assert!(
                times == 1 || repeated || (times == 0 && foldable),
                "seed {seed}: {} of {} is done {times} times",
                node.op.name(),
                node.module
            );
        }
    }
    println!(
        "{calls} calls, {multiple_buffers} plans with several buffers, {norms_in_parts} norms in parts, {strips} strips"
    );
    assert!(calls > 10_000 && multiple_buffers > 20);
    assert!(norms_in_parts > 200 && strips > 2000);
}

/// No two ranges that are alive together overlap, checked moment by moment.
#[test]
fn packings_of_random_lifetimes_hold() {
    let mut worst: f64 = 1.0;
    for seed in 0..300 {
        let mut random = Random(1000 + seed);
        let moments = 1 + random.below(60);
        let items: Vec<Item> = (0..random.below(80))
            .map(|_| {
                let first = random.below(moments);
                let last = (first + random.below(12)).min(moments - 1);
                (256 * (1 + random.next() % 40), Lifetime { first, last })
            })
            .collect();
        let capacity = if random.coin() { u64::MAX } else { 256 * 64 };
        let packing = pack(&items, capacity);
        assert_eq!(
            packing,
            pack(&items, capacity),
            "seed {seed}: the same each time"
        );
        for moment in 0..moments {
            let alive: Vec<_> = items
                .iter()
                .zip(&packing.places)
                .filter(|((_, lifetime), _)| lifetime.first <= moment && moment <= lifetime.last)
                .collect();
            for (i, ((bytes, _), place)) in alive.iter().enumerate() {
                assert!(place.offset + bytes <= packing.buffers[place.buffer].min(capacity));
                for ((other_bytes, _), other) in &alive[..i] {
                    let apart = place.buffer != other.buffer
                        || place.offset + bytes <= other.offset
                        || other.offset + other_bytes <= place.offset;
                    assert!(apart, "seed {seed}, moment {moment}");
                }
            }
            let sum: u64 = alive.iter().map(|((bytes, _), _)| bytes).sum();
            assert!(sum <= packing.lower_bound_bytes);
        }
        assert!(packing.bytes() >= packing.lower_bound_bytes);
        if capacity == u64::MAX && packing.lower_bound_bytes > 0 {
            worst = worst.max(packing.bytes() as f64 / packing.lower_bound_bytes as f64);
        }
    }
    println!("worst: {worst:.3} times the bound");
    assert!(worst < 1.25);
}

/// The gap before the first living range counts (XNNPACK issue 10800: planners that forget it waste memory).
#[test]
fn the_gap_before_the_first_range_is_used() {
    let at = |bytes, first, last| (bytes, Lifetime { first, last });
    let items = [at(256, 0, 1), at(512, 1, 3), at(256, 2, 3)];
    assert_eq!(pack(&items, u64::MAX).bytes(), 768);
}
