//! The header of a safetensors file: which tensor lies where.
//!
//! The rules are those of the reference reader (`safetensors/src/tensor.rs`, version 0.8) and two stricter ones of
//! the format's description: the header starts with `{`, and no name occurs twice.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};

use crate::sniff::recognise;
use crate::{Dtype, LoadError};

/// The bytes before the header: its length, as a little-endian 64-bit number.
pub const LENGTH_BYTES: u64 = 8;

/// The largest header that is accepted, in bytes; the reference reader's limit.
pub const MAX_HEADER_BYTES: u64 = 100_000_000;

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The checkpoint key, for instance `down_blocks.0.resnets.0.conv1.weight`.
    pub name: String,
    /// The number format.
    pub dtype: Dtype,
    /// The extent of each axis, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// Where its bytes lie, counted from the start of the file.
    pub range: Range<u64>,
}

impl TensorInfo {
    /// The tensor's size in the file, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The parsed and checked header of a safetensors file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafetensorsIndex {
    /// The tensors in the order of their bytes in the file; they follow each other without a hole.
    pub tensors: Vec<TensorInfo>,
    /// The `__metadata__` entry; empty if there is none.
    pub metadata: BTreeMap<String, String>,
    by_name: BTreeMap<String, usize>,
    file_length: u64,
}

impl SafetensorsIndex {
    /// Reads the header's length from the first 8 bytes of the file.
    ///
    /// # Errors
    /// `Header` when it is beyond [`MAX_HEADER_BYTES`] or the file's length; the message names Git LFS pointers,
    /// web pages and other files that are no safetensors.
    pub fn header_length(
        name: &str,
        first: [u8; 8],
        file_length: Option<u64>,
    ) -> Result<u64, LoadError> {
        let length = u64::from_le_bytes(first);
        if length > MAX_HEADER_BYTES {
            let why = recognise(&first).map_or_else(
                || format!("its header would have {length} bytes, more than {MAX_HEADER_BYTES}; the file is damaged or of another kind"),
                str::to_owned,
            );
            return Err(header_error(name, why));
        }
        match file_length {
            Some(file) if LENGTH_BYTES + length > file => Err(header_error(
                name,
                format!(
                    "its header would end at byte {}, and the file has only {file}; the file is incomplete or of another kind",
                    LENGTH_BYTES + length
                ),
            )),
            _ => Ok(length),
        }
    }

    /// Checks what can be said from the header's first byte, so that 100 MB of something else need not be gathered.
    ///
    /// # Errors
    /// `Header` when it is not `{`.
    pub fn check_first_byte(name: &str, length: u64, first: u8) -> Result<(), LoadError> {
        if first == b'{' {
            return Ok(());
        }
        let mut start = length.to_le_bytes().to_vec();
        start.push(first);
        let why = match (recognise(&start), first) {
            (Some(known), _) => known.to_owned(),
            (None, 0xef) => "its header starts with a byte-order mark, which the format forbids; save the file anew with a safetensors library".to_owned(),
            (None, other) => format!("its header starts with the byte {other:#04x} where `{{` must be; the file is damaged or of another kind"),
        };
        Err(header_error(name, why))
    }

    /// Parses and checks a header.
    ///
    /// `header` is the JSON text alone, without the 8 bytes of its length. `file_length` is the length of the whole
    /// file where it is known; else the caller holds the bytes that arrive against [`Self::file_length`].
    ///
    /// # Errors
    /// `Header` when a rule of the format is broken; `Truncated` when the file is shorter or longer than the header says.
    pub fn parse(name: &str, header: &[u8], file_length: Option<u64>) -> Result<Self, LoadError> {
        let length = header.len() as u64;
        if length > MAX_HEADER_BYTES {
            return Err(header_error(
                name,
                format!("its header has {length} bytes, more than {MAX_HEADER_BYTES}"),
            ));
        }
        let Some(&first) = header.first() else {
            return Err(header_error(name, "its header is empty".to_owned()));
        };
        Self::check_first_byte(name, length, first)?;
        if header.last() == Some(&0) {
            return Err(header_error(
                name,
                "its header is padded with NUL bytes where the format wants spaces; save the file anew with a safetensors library".to_owned(),
            ));
        }
        let text = std::str::from_utf8(header)
            .map_err(|e| header_error(name, format!("its header is not UTF-8 ({e})")))?;
        let raw: RawHeader = serde_json::from_str(text)
            .map_err(|e| header_error(name, format!("its header cannot be read: {e}")))?;

        let index =
            Self::from_raw(raw, LENGTH_BYTES + length).map_err(|why| header_error(name, why))?;
        match file_length {
            Some(got) if got != index.file_length => Err(LoadError::Truncated {
                name: name.to_owned(),
                expected: index.file_length,
                got,
            }),
            _ => Ok(index),
        }
    }

    fn from_raw(raw: RawHeader, data_start: u64) -> Result<Self, String> {
        let mut entries: Vec<(String, RawTensor)> = raw.tensors.into_iter().collect();
        // As the reference does: by begin, then end, so that empty tensors precede what starts at the same byte.
        entries.sort_by(|a, b| (a.1.data_offsets, &a.0).cmp(&(b.1.data_offsets, &b.0)));

        let mut tensors = Vec::with_capacity(entries.len());
        let mut by_name = BTreeMap::new();
        let mut expected_begin = 0u64;
        for (name, raw) in entries {
            let (begin, end) = raw.data_offsets;
            if end < begin {
                return Err(format!(
                    "tensor {name} ends at byte {end}, before its begin {begin}"
                ));
            }
            if begin != expected_begin {
                let what = if begin > expected_begin {
                    "a hole lies before"
                } else {
                    "another tensor overlaps"
                };
                return Err(format!(
                    "{what} tensor {name}: it starts at byte {begin}, and {expected_begin} was expected"
                ));
            }
            expected_begin = end;
            let dtype = Dtype::from(raw.dtype.as_str());
            check_size(&name, &dtype, &raw.shape, end - begin)?;
            let shape = raw
                .shape
                .iter()
                .map(|&n| usize::try_from(n))
                .collect::<Result<_, _>>();
            let shape = shape.map_err(|_| {
                format!(
                    "tensor {name} has a shape that does not fit this machine's memory: {:?}",
                    raw.shape
                )
            })?;
            let (Some(start), Some(stop)) =
                (data_start.checked_add(begin), data_start.checked_add(end))
            else {
                return Err(format!("tensor {name} ends beyond 2^64 bytes"));
            };
            by_name.insert(name.clone(), tensors.len());
            tensors.push(TensorInfo {
                name,
                dtype,
                shape,
                range: start..stop,
            });
        }
        let file_length = data_start
            .checked_add(expected_begin)
            .ok_or("its tensors end beyond 2^64 bytes")?;
        Ok(Self {
            tensors,
            metadata: raw.metadata,
            by_name,
            file_length,
        })
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).and_then(|&i| self.tensors.get(i))
    }

    /// The length that the whole file must have, in bytes: 8 + header + data.
    #[must_use]
    pub fn file_length(&self) -> u64 {
        self.file_length
    }
}

fn header_error(name: &str, why: String) -> LoadError {
    LoadError::Header {
        name: name.to_owned(),
        why,
    }
}

fn check_size(name: &str, dtype: &Dtype, shape: &[u64], size: u64) -> Result<(), String> {
    let Some(bits) = dtype.size_bits() else {
        return Ok(());
    };
    let total_bits = shape
        .iter()
        .try_fold(1u64, |product, &n| product.checked_mul(n))
        .and_then(|elements| elements.checked_mul(bits))
        .ok_or_else(|| format!("tensor {name} has a shape whose size overflows: {shape:?}"))?;
    if total_bits % 8 != 0 {
        return Err(format!(
            "tensor {name} ({dtype}, {shape:?}) ends within a byte"
        ));
    }
    if total_bits / 8 != size {
        return Err(format!(
            "tensor {name} ({dtype}, {shape:?}) needs {} bytes and has {size}",
            total_bits / 8
        ));
    }
    Ok(())
}

#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

struct RawHeader {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, RawTensor>,
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// A visitor of its own because a plain map keeps the last of two equal names in silence.
struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one entry per tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut metadata: Option<BTreeMap<String, String>> = None;
        let mut tensors = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let duplicate = if name == "__metadata__" {
                // `null` counts as an empty one, as it does in the reference reader
                let value: Option<BTreeMap<String, String>> = map.next_value()?;
                metadata.replace(value.unwrap_or_default()).is_some()
            } else {
                let value: RawTensor = map.next_value()?;
                tensors.insert(name.clone(), value).is_some()
            };
            if duplicate {
                return Err(de::Error::custom(format_args!(
                    "the name {name} occurs twice"
                )));
            }
        }
        Ok(RawHeader {
            metadata: metadata.unwrap_or_default(),
            tensors,
        })
    }
}
