//! torch's CPU normals, bit for bit. The fixtures are made by `golden/seeds.py`.
#![cfg(not(target_family = "wasm"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use latent_canvas::rng::TorchCpuGenerator;
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    cpu_capability: String,
    draws: Vec<Seeded>,
    sequences: Vec<Sequence>,
    high_bits: Vec<HighBits>,
}

#[derive(Deserialize)]
struct Seeded {
    seed: u64,
    #[serde(flatten)]
    draw: Draw,
}

#[derive(Deserialize)]
struct HighBits {
    seed: String,
    #[serde(flatten)]
    draw: Draw,
}

#[derive(Deserialize)]
struct Sequence {
    seed: u64,
    draws: Vec<Draw>,
}

#[derive(Deserialize)]
struct Draw {
    count: usize,
    fnv1a64: String,
    first: Vec<f32>,
    last: Vec<f32>,
}

impl Draw {
    /// Ends first, so that a failure shows numbers; the hash covers every bit.
    fn check(&self, generator: &mut TorchCpuGenerator, what: &str) {
        let values = generator.randn(self.count);
        assert_eq!(values.len(), self.count, "{what}");
        let ends = self.count.min(4);
        assert_eq!(bits(&values[..ends]), bits(&self.first), "{what}: first");
        assert_eq!(
            bits(&values[self.count - ends..]),
            bits(&self.last),
            "{what}: last"
        );
        assert_eq!(fnv1a64(&values), self.fnv1a64, "{what}: hash");
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn fnv1a64(values: &[f32]) -> String {
    let hash = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    format!("{hash:016x}")
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../golden/seeds/seeds.json")).unwrap()
}

#[test]
fn first_ten_thousand_values_bit_for_bit() {
    let files: [(u64, &[u8]); 4] = [
        (0, include_bytes!("../golden/seeds/randn_0_10000.bin")),
        (1, include_bytes!("../golden/seeds/randn_1_10000.bin")),
        (42, include_bytes!("../golden/seeds/randn_42_10000.bin")),
        (
            4_294_967_295,
            include_bytes!("../golden/seeds/randn_4294967295_10000.bin"),
        ),
    ];
    for (seed, file) in files {
        let expected: Vec<u32> = file
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes))
            .collect();
        assert_eq!(expected.len(), 10_000);
        let values = TorchCpuGenerator::new(seed).randn(10_000);
        let wrong = bits(&values)
            .iter()
            .zip(&expected)
            .filter(|(a, b)| a != b)
            .count();
        assert_eq!(wrong, 0, "seed {seed}: {wrong} of 10000 values differ");
    }
}

#[test]
fn every_size_below_16_multiples_of_16_and_others() {
    let fixture = fixture();
    assert!(["AVX2", "AVX512"].contains(&fixture.cpu_capability.as_str()));
    for size in (1..=15).chain([16, 17, 33, 1024, 16_384, 32_768]) {
        let seeds = fixture.draws.iter().filter(|d| d.draw.count == size);
        assert_eq!(seeds.count(), 4, "the fixture lacks size {size}");
    }
    for Seeded { seed, draw } in &fixture.draws {
        let what = format!("seed {seed}, {} values", draw.count);
        draw.check(&mut TorchCpuGenerator::new(*seed), &what);
    }
}

#[test]
fn draws_in_sequence_share_the_kept_normal() {
    for sequence in fixture().sequences {
        let mut generator = TorchCpuGenerator::new(sequence.seed);
        for (index, draw) in sequence.draws.iter().enumerate() {
            let what = format!("seed {}, draw {index}", sequence.seed);
            draw.check(&mut generator, &what);
        }
    }
}

#[test]
fn only_the_low_32_bits_of_a_seed_count() {
    for HighBits { seed, draw } in fixture().high_bits {
        let mut generator = TorchCpuGenerator::new(seed.parse().unwrap());
        draw.check(&mut generator, &seed);
    }
}

/// Case R01: values published in pytorch's issues 79703 and 127164, rounded there to four places.
#[test]
fn r01_noise_values() {
    let check = |values: &[f32], published: &[f32]| {
        for (index, (value, published)) in values.iter().zip(published).enumerate() {
            let difference = (value - published).abs();
            assert!(difference <= 5.1e-5, "{index}: {value}, not {published}");
        }
    };
    let sixteen = [
        -1.1258, -1.1524, -0.2506, -0.4339, 0.8487, 0.6920, -0.3160, -2.1152, 0.3223, -1.2633,
        0.3500, 0.3081, 0.1198, 1.2377, 1.1168, -0.2473,
    ];
    let draw = |seed, count| TorchCpuGenerator::new(seed).randn(count);
    check(&draw(0, 16), &sixteen);
    check(
        &draw(0, 15),
        &[
            1.5410, -0.2934, -2.1788, 0.5684, -1.0845, -1.3986, 0.4033, 0.8380,
        ],
    );
    check(&draw(0, 4 * 64 * 64), &sixteen[..8]);
    check(&draw(42, 4 * 64 * 64), &[1.9269, 1.4873, 0.9007, -2.1055]);
    // a shorter draw is not the beginning of a longer one
    assert_ne!(bits(&draw(0, 15)), bits(&draw(0, 16)[..15]));
    assert_ne!(bits(&draw(0, 17)), bits(&draw(0, 32)[..17]));
}

/// Case R01, second half: half-precision latents are the f32 draw, converted.
#[test]
fn r01_half_precision_latents_are_converted_f32() {
    let halves: Vec<half::f16> = TorchCpuGenerator::new(42)
        .randn(4)
        .into_iter()
        .map(half::f16::from_f32)
        .collect();
    // torch.randn(4, generator=torch.Generator().manual_seed(42)).half()
    let expected: Vec<half::f16> = [0.336_669_92, 0.128_784_18, 0.234_497_07, 0.230_346_68]
        .into_iter()
        .map(half::f16::from_f32)
        .collect();
    assert_eq!(halves, expected);
}

#[test]
fn no_values_draw_nothing() {
    let mut generator = TorchCpuGenerator::new(3);
    assert!(generator.randn(0).is_empty());
    let same = TorchCpuGenerator::new(3).randn(5);
    assert_eq!(bits(&generator.randn(5)), bits(&same));
}
