//! The number formats that the safetensors format knows (list and sizes: `safetensors/src/tensor.rs`, version 0.8).

use std::fmt;

/// The number format of a tensor's elements, spelled as in the file.
#[allow(missing_docs, non_camel_case_types, clippy::upper_case_acronyms)]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dtype {
    BOOL,
    F4,
    F6_E2M3,
    F6_E3M2,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    F8_E4M3FNUZ,
    F8_E5M2FNUZ,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
    /// A format this reader does not know. An error only where the tensor is wanted; its size is not checked.
    Other(String),
}

/// Every known format with its spelling and the size of one element in bits.
const DTYPES: [(Dtype, &str, u64); 22] = [
    (Dtype::BOOL, "BOOL", 8),
    (Dtype::F4, "F4", 4),
    (Dtype::F6_E2M3, "F6_E2M3", 6),
    (Dtype::F6_E3M2, "F6_E3M2", 6),
    (Dtype::U8, "U8", 8),
    (Dtype::I8, "I8", 8),
    (Dtype::F8_E5M2, "F8_E5M2", 8),
    (Dtype::F8_E4M3, "F8_E4M3", 8),
    (Dtype::F8_E8M0, "F8_E8M0", 8),
    (Dtype::F8_E4M3FNUZ, "F8_E4M3FNUZ", 8),
    (Dtype::F8_E5M2FNUZ, "F8_E5M2FNUZ", 8),
    (Dtype::I16, "I16", 16),
    (Dtype::U16, "U16", 16),
    (Dtype::F16, "F16", 16),
    (Dtype::BF16, "BF16", 16),
    (Dtype::I32, "I32", 32),
    (Dtype::U32, "U32", 32),
    (Dtype::F32, "F32", 32),
    (Dtype::C64, "C64", 64),
    (Dtype::F64, "F64", 64),
    (Dtype::I64, "I64", 64),
    (Dtype::U64, "U64", 64),
];

impl Dtype {
    fn entry(&self) -> Option<&'static (Self, &'static str, u64)> {
        DTYPES.iter().find(|(dtype, ..)| dtype == self)
    }

    /// The size of one element in bits; `None` for an unknown format.
    #[must_use]
    pub fn size_bits(&self) -> Option<u64> {
        self.entry().map(|(_, _, bits)| *bits)
    }

    /// The fewest bytes that hold whole elements: 2 for F16, 1 for F4 (two elements), 3 for F6 (four elements),
    /// 1 for an unknown format. At most 8.
    #[must_use]
    pub fn unit_bytes(&self) -> usize {
        match self.size_bits() {
            Some(6) => 3,
            Some(bits) if bits >= 8 => (bits / 8) as usize,
            _ => 1,
        }
    }

    /// Whether [`decode_f32`](crate::decode_f32) reads it: F16, BF16, F32.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32)
    }

    /// The spelling in the file.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(spelling) => spelling,
            known => known.entry().map_or("", |(_, spelling, _)| spelling),
        }
    }
}

impl From<&str> for Dtype {
    fn from(spelling: &str) -> Self {
        DTYPES
            .iter()
            .find(|(_, known, _)| *known == spelling)
            .map_or_else(
                || Self::Other(spelling.to_owned()),
                |(dtype, ..)| dtype.clone(),
            )
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
