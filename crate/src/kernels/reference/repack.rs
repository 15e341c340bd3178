//! Twin of the repacking: from bytes to bytes.

use half::{bf16, f16};

use crate::kernels::{RepackArgs, RepackLayout, SourceType};

/// Largest finite float16: what lies past it is stored as this.
const MOST: f32 = 65504.0;

/// The bytes of the rows in the kernels' layout, from the checkpoint's bytes of the same rows.
#[must_use]
pub fn repack(args: &RepackArgs, source: &[u8]) -> Vec<u8> {
    let values: Vec<f32> = match args.source {
        SourceType::F32 => list(source, f32::from_le_bytes),
        SourceType::F16 => list(source, |bytes| f16::from_le_bytes(bytes).to_f32()),
        SourceType::Bf16 => list(source, |bytes| bf16::from_le_bytes(bytes).to_f32()),
    };
    let values = values.get(..args.rows * args.k()).unwrap_or(&values);
    if args.layout == RepackLayout::Vector {
        return values.iter().flat_map(|x| x.to_le_bytes()).collect();
    }
    let half = |x: f32| {
        let nan = if x.is_finite() { 0 } else { 0x7e00 };
        (f16::from_f32(x.clamp(-MOST, MOST)).to_bits() | nan).to_le_bytes()
    };
    let mut out = Vec::with_capacity(2 * args.rows * args.padded());
    for row in values.chunks(args.k()) {
        let mut packed = vec![0.0; args.padded()];
        for (at, place) in packed.iter_mut().take(args.k()).enumerate() {
            let from = match args.layout {
                RepackLayout::Conv2d { channels, kernel } => {
                    at % channels * kernel * kernel + at / channels
                }
                _ => at,
            };
            *place = row.get(from).copied().unwrap_or(0.0);
        }
        out.extend(packed.into_iter().flat_map(half));
    }
    out
}

fn list<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks::<N>().0.iter().map(|x| value(*x)).collect()
}
