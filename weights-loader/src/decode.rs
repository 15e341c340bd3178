//! Bytes of a tensor to numbers.

use half::{bf16, f16};

use crate::{Dtype, LoadError, TensorInfo};

/// Appends the elements in `bytes` (little endian, whole elements of `tensor`) to `out`, as float32.
///
/// F16, BF16 and F32 are read; every value of the first two is a float32 value, so nothing is rounded. Infinities and NaNs
/// pass as they are.
///
/// # Errors
/// `UnsupportedDtype` for any other format, `Header` when `bytes` ends within an element.
pub fn decode_f32(tensor: &TensorInfo, bytes: &[u8], out: &mut Vec<f32>) -> Result<(), LoadError> {
    if !tensor.dtype.is_readable() {
        return Err(LoadError::UnsupportedDtype {
            name: tensor.name.clone(),
            dtype: tensor.dtype.to_string(),
        });
    }
    if !bytes.len().is_multiple_of(tensor.dtype.unit_bytes()) {
        return Err(LoadError::Header {
            name: tensor.name.clone(),
            why: format!(
                "{} bytes are no whole number of {} values",
                bytes.len(),
                tensor.dtype
            ),
        });
    }
    let (pairs, _) = bytes.as_chunks::<2>();
    match tensor.dtype {
        Dtype::F16 => out.extend(pairs.iter().map(|&b| f16::from_le_bytes(b).to_f32())),
        Dtype::BF16 => out.extend(pairs.iter().map(|&b| bf16::from_le_bytes(b).to_f32())),
        _ => out.extend(
            bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|&b| f32::from_le_bytes(b)),
        ),
    }
    Ok(())
}
