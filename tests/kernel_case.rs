//! One call of a kernel with values drawn from a seed, on the GPU and by its CPU twin.

use half::f16;
use latent_canvas::kernels::{
    Access, ElementwiseOp, Kernel, Limits, Operand, Precision, Role, Tuning, padded_k,
    reference::{self, Values},
};

use crate::gpu::Gpu;

/// A kernel and the values of its operands.
#[derive(Debug)]
pub struct Case {
    /// What is called.
    pub kernel: Kernel,
    /// Values in the precision of their operand.
    pub values: Values,
    /// How it is launched.
    pub tuning: Tuning,
    /// What the launcher may use.
    pub limits: Limits,
}

/// How an operand is stored.
#[derive(Debug, Clone, Copy)]
enum Encoding {
    F32,
    F16,
    /// float16 rows of `width` values, padded to `padded`.
    Rows {
        width: usize,
        padded: usize,
    },
    Ids,
    Step,
}

impl Case {
    /// Values between -1 and 1 (ids: all; weights scaled so that sums stay near 1), with one in a hundred of the activations `outlier` times as large.
    #[must_use]
    pub fn new(kernel: Kernel, outlier: f32) -> Self {
        let mut random = Random(0x5eed);
        let mut values = Values::new();
        for operand in kernel.operands() {
            let encoding = encoding(&kernel, operand.role);
            let count = count(&operand, encoding);
            match encoding {
                Encoding::Ids => {
                    values.ids = (0..count).map(|_| random.next() % 1000).collect();
                    continue;
                }
                Encoding::Step => {
                    values.step = 2;
                    continue;
                }
                _ => {}
            }
            let scale = match (operand.role, encoding) {
                (Role::Weight, Encoding::Rows { width, .. }) => (3.0 / width as f32).sqrt(),
                _ => 1.0,
            };
            let large = matches!(
                operand.role,
                Role::Input | Role::SecondInput | Role::Query | Role::Output | Role::Residual
            );
            let list = (0..count).map(|_| {
                let x = random.unit() * scale;
                if large && random.next().is_multiple_of(100) {
                    x * outlier
                } else {
                    x
                }
            });
            values = values.with(operand.role, round(list.collect(), encoding));
        }
        Self {
            kernel,
            values,
            tuning: Tuning::default(),
            limits: Limits::DEFAULT,
        }
    }

    /// The same case with these values for one operand.
    #[must_use]
    pub fn with(mut self, role: Role, list: Vec<f32>) -> Self {
        let rounded = round(list, encoding(&self.kernel, role));
        let mut values = Values::new();
        for operand in self.kernel.operands() {
            let known = if operand.role == role {
                &rounded
            } else {
                self.values.get(operand.role)
            };
            values = values.with(operand.role, known.to_vec());
        }
        values.ids.clone_from(&self.values.ids);
        values.step = self.values.step;
        self.values = values;
        self
    }

    /// The bytes of every operand before the call; what the kernel must write itself is NaN in both formats.
    #[must_use]
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        self.kernel
            .operands()
            .iter()
            .map(|operand| {
                if operand.access == Access::Write {
                    return vec![0xff; operand.bytes as usize];
                }
                let encoding = encoding(&self.kernel, operand.role);
                let mut bytes = encode(&self.values, operand.role, encoding);
                bytes.resize(operand.bytes as usize, 0);
                bytes
            })
            .collect()
    }

    /// The output on the GPU, decoded.
    #[must_use]
    pub fn gpu(&self) -> Vec<f32> {
        let launches = self.kernel.launches(&self.limits, &self.tuning).unwrap();
        let operands = self.kernel.operands();
        let after = Gpu::get().run(&launches, &operands, &self.bytes());
        let output = operands
            .iter()
            .position(|operand| operand.role == Role::Output)
            .unwrap();
        decode(&after[output], encoding(&self.kernel, Role::Output))
    }

    /// The output by the twin.
    #[must_use]
    pub fn twin(&self) -> Vec<f64> {
        reference::run(&self.kernel, &self.values)
    }

    /// The largest difference between GPU and twin, as a part of the largest value. NaN anywhere is infinitely far away.
    #[must_use]
    pub fn distance(&self) -> f64 {
        let (gpu, twin) = (self.gpu(), self.twin());
        assert_eq!(gpu.len(), twin.len());
        let largest = twin.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        assert!(largest > 0.0, "a case that gives only zeros tests nothing");
        let apart = gpu.iter().zip(&twin).map(|(gpu, twin)| {
            let apart = (f64::from(*gpu) - twin).abs();
            if apart.is_nan() { f64::INFINITY } else { apart }
        });
        apart.fold(0.0, f64::max) / largest
    }

    /// Fails when the GPU is further than `tolerance` from the twin.
    pub fn check(&self, tolerance: f64) {
        let distance = self.distance();
        assert!(
            distance <= tolerance,
            "{:?}: {distance:e} from the twin, {tolerance:e} allowed",
            self.kernel
        );
    }
}

fn encoding(kernel: &Kernel, role: Role) -> Encoding {
    let rows = |width: usize, padded: usize| Encoding::Rows { width, padded };
    let k = match kernel {
        Kernel::Gemm(args) => args.k,
        Kernel::Conv2d(args) => args.k(),
        _ => 0,
    };
    let (input, output) = match kernel {
        Kernel::Gemm(args) => (args.input, args.output),
        Kernel::Conv2d(args) => (args.input, args.output),
        Kernel::GroupNorm(args) => (args.input, args.output),
        Kernel::GroupStatistics(args) => (args.input, Precision::F32),
        Kernel::GroupCombine(_) => (Precision::F32, Precision::F32),
        Kernel::GroupApply(args) => (args.input, args.output),
        Kernel::LayerNorm(args) => (args.input, args.output),
        Kernel::Attention(args) => (args.precision, args.precision),
        Kernel::Embedding(args) => (args.output, args.output),
        Kernel::Elementwise(args) => (args.input, args.output),
    };
    let plain = |precision| match precision {
        Precision::F32 => Encoding::F32,
        Precision::F16 => Encoding::F16,
    };
    match (role, kernel) {
        (Role::Ids, _) => Encoding::Ids,
        (Role::Step, _) => Encoding::Step,
        (Role::Weight, _) => rows(k, padded_k(k)),
        (Role::TokenTable | Role::PositionTable, Kernel::Embedding(args)) => {
            rows(args.channels, args.channels.next_multiple_of(2))
        }
        (
            Role::Bias
            | Role::Scale
            | Role::Shift
            | Role::ChannelAdd
            | Role::Statistics
            | Role::Scratch,
            _,
        ) => Encoding::F32,
        (Role::Output | Role::Residual, _) => plain(output),
        _ => plain(input),
    }
}

/// Values of the operand, without padding.
fn count(operand: &Operand, encoding: Encoding) -> usize {
    let bytes = operand.bytes as usize;
    match encoding {
        Encoding::F32 | Encoding::Ids => bytes / 4,
        Encoding::F16 => bytes / 2,
        Encoding::Rows { width, padded } => bytes / 2 / padded * width,
        Encoding::Step => 1,
    }
}

fn round(mut values: Vec<f32>, encoding: Encoding) -> Vec<f32> {
    if matches!(encoding, Encoding::F16 | Encoding::Rows { .. }) {
        for value in &mut values {
            *value = f16::from_f32(*value).to_f32();
        }
    }
    values
}

fn encode(values: &Values, role: Role, encoding: Encoding) -> Vec<u8> {
    let half = |x: &f32| f16::from_f32(*x).to_le_bytes();
    let list = values.get(role);
    match encoding {
        Encoding::F32 => list.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Encoding::F16 => list.iter().flat_map(half).collect(),
        Encoding::Rows { width, padded } => list
            .chunks(width)
            .flat_map(|row| {
                let zeros = vec![0; 2 * (padded - width)];
                row.iter().flat_map(half).chain(zeros)
            })
            .collect(),
        Encoding::Ids => values.ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
        Encoding::Step => [values.step as u32, 0, 0, 0]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect(),
    }
}

fn decode(bytes: &[u8], encoding: Encoding) -> Vec<f32> {
    match encoding {
        Encoding::F16 => bytes
            .chunks_exact(2)
            .map(|x| f16::from_le_bytes(x.try_into().unwrap()).to_f32())
            .collect(),
        _ => bytes
            .chunks_exact(4)
            .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
            .collect(),
    }
}

/// Whether the operation may replace its input.
#[must_use]
pub const fn may_be_in_place(op: ElementwiseOp) -> bool {
    !matches!(
        op,
        ElementwiseOp::Geglu
            | ElementwiseOp::ConcatChannels { .. }
            | ElementwiseOp::UpsampleNearest2d { .. }
    )
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    fn unit(&mut self) -> f32 {
        (f64::from(self.next()) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
    }
}
