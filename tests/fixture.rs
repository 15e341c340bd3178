//! Expected values of `golden/models`, and how far a result is from them.

use std::collections::BTreeMap;

use weights_loader::{Dtype, SafetensorsIndex, decode_f32};

/// The tensors of a fixture file, by name, in torch's layout.
#[derive(Debug)]
pub struct Fixture(BTreeMap<String, Expected>);

/// One expected tensor.
#[derive(Debug, Clone)]
pub struct Expected {
    /// torch's shape: NCHW, or `[batch, tokens, channels]`.
    pub shape: Vec<usize>,
    /// Row-major values; integers as floats.
    pub values: Vec<f32>,
}

impl Fixture {
    /// Reads the bytes of a fixture file.
    #[must_use]
    pub fn parse(name: &str, bytes: &[u8]) -> Self {
        let header = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
        let index =
            SafetensorsIndex::parse(name, &bytes[8..8 + header], Some(bytes.len() as u64)).unwrap();
        let tensors = index.tensors.iter().map(|tensor| {
            let range = tensor.range.start as usize..tensor.range.end as usize;
            let bytes = &bytes[range];
            let mut values = Vec::new();
            if tensor.dtype == Dtype::I32 {
                let (words, _) = bytes.as_chunks::<4>();
                values.extend(words.iter().map(|&word| i32::from_le_bytes(word) as f32));
            } else {
                decode_f32(tensor, bytes, &mut values).unwrap();
            }
            (
                tensor.name.clone(),
                Expected {
                    shape: tensor.shape.clone(),
                    values,
                },
            )
        });
        Self(tensors.collect())
    }

    /// The tensor of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> &Expected {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in the fixture"))
    }

    /// Whether the fixture has that tensor.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl Expected {
    /// The values channels-last: `[batch, positions, channels]`.
    #[must_use]
    pub fn channels_last(&self) -> Vec<f32> {
        let [batch, channels, height, width] = self.shape[..] else {
            return self.values.clone();
        };
        let positions = height * width;
        (0..batch * positions * channels)
            .map(|i| {
                let (channel, position, picture) = (
                    i % channels,
                    i / channels % positions,
                    i / channels / positions,
                );
                self.values[(picture * channels + channel) * positions + position]
            })
            .collect()
    }
}

/// Largest difference divided by the largest expected value.
#[must_use]
pub fn relative_error(got: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(got.len(), expected.len(), "sizes differ");
    let largest = expected
        .iter()
        .fold(0f64, |m, &x| m.max(f64::from(x).abs()));
    assert!(largest > 0.0, "the fixture is all zero");
    let difference = got.iter().zip(expected).fold(0f64, |m, (&a, &b)| {
        let d = (f64::from(a) - f64::from(b)).abs();
        // a NaN must not pass as the smaller number
        if d.is_nan() { f64::INFINITY } else { m.max(d) }
    });
    difference / largest
}

/// Length of the difference divided by the length of the expected values.
#[must_use]
pub fn relative_l2(got: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(got.len(), expected.len(), "sizes differ");
    let length = |squares: &mut dyn Iterator<Item = f64>| squares.sum::<f64>().sqrt();
    let expected_length = length(&mut expected.iter().map(|&b| f64::from(b).powi(2)));
    assert!(expected_length > 0.0, "the fixture is all zero");
    let pairs = got.iter().zip(expected);
    let distance = length(&mut pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)));
    // a NaN must not pass a comparison
    if distance.is_nan() {
        return f64::INFINITY;
    }
    distance / expected_length
}

/// Peak signal-to-noise ratio in dB of two pictures with values 0..1.
#[must_use]
pub fn psnr(got: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(got.len(), expected.len(), "sizes differ");
    let sum: f64 = got
        .iter()
        .zip(expected)
        .map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2))
        .sum();
    -10.0 * (sum / got.len() as f64).log10()
}
