//! Files made by hand and a sink that keeps everything, for the tests of this package.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::collections::BTreeMap;

use weights_loader::{LoadError, SafetensorsIndex, SafetensorsStream, TensorInfo, TensorSink};

pub const NAME: &str = "unet/model.safetensors";

/// 8 bytes of length, the header as it is, the data.
pub fn file(header: impl AsRef<[u8]>, data: &[u8]) -> Vec<u8> {
    let header = header.as_ref();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend_from_slice(data);
    file
}

pub fn entry(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}"#)
}

/// Keeps the bytes of every tensor, and checks the promises of `TensorSink` with every call.
#[derive(Debug, Default)]
pub struct Keep {
    pub begun: bool,
    pub tensors: BTreeMap<String, Vec<u8>>,
    pub ended: Vec<String>,
    pub calls: usize,
}

impl TensorSink for Keep {
    fn begin(&mut self, _: &SafetensorsIndex) -> Result<(), LoadError> {
        assert!(!self.begun, "begin came twice");
        self.begun = true;
        Ok(())
    }

    fn chunk(&mut self, tensor: &TensorInfo, offset: u64, bytes: &[u8]) -> Result<(), LoadError> {
        assert!(self.begun && !self.ended.contains(&tensor.name));
        let unit = tensor.dtype.unit_bytes();
        assert!(
            !bytes.is_empty()
                && bytes.len().is_multiple_of(unit)
                && offset.is_multiple_of(unit as u64)
        );
        let kept = self.tensors.entry(tensor.name.clone()).or_default();
        assert_eq!(kept.len() as u64, offset, "a gap in {}", tensor.name);
        kept.extend_from_slice(bytes);
        self.calls += 1;
        Ok(())
    }

    fn end(&mut self, tensor: &TensorInfo) -> Result<(), LoadError> {
        assert!(self.begun && !self.ended.contains(&tensor.name));
        let kept = self.tensors.entry(tensor.name.clone()).or_default();
        assert_eq!(kept.len() as u64, tensor.size_bytes());
        self.ended.push(tensor.name.clone());
        Ok(())
    }
}

/// Streams a whole file in chunks of one size, without knowing its length beforehand.
pub fn stream(file: &[u8], chunk: usize) -> Result<(SafetensorsIndex, Keep), LoadError> {
    let mut keep = Keep::default();
    let mut stream = SafetensorsStream::new(NAME, None);
    for chunk in file.chunks(chunk) {
        stream.push(chunk, &mut keep)?;
    }
    Ok((stream.finish()?, keep))
}

/// The answer to a file must not depend on how it arrives: whole, byte by byte, or in threes.
pub fn answer(file: &[u8]) -> Result<(SafetensorsIndex, Keep), LoadError> {
    let whole = stream(file, file.len().max(1));
    for chunk in [1, 3, 8] {
        let parts = stream(file, chunk);
        match (&whole, &parts) {
            (Ok((a, kept)), Ok((b, kept_too))) => {
                assert_eq!(a, b);
                assert_eq!(kept.tensors, kept_too.tensors);
            }
            // what the bytes that have not arrived yet would have added to a count is not known
            (Err(a), Err(b)) => assert_eq!(a.code(), b.code()),
            _ => panic!("chunks of {chunk} change the answer: {whole:?} against {parts:?}"),
        }
    }
    whole
}

/// The reason for refusing the header; fails if the file is taken, or refused for another reason.
pub fn header_refusal(file: &[u8]) -> String {
    match answer(file) {
        Err(LoadError::Header { name, why }) => {
            assert_eq!(name, NAME);
            why
        }
        other => panic!("expected a header error, got {other:?}"),
    }
}
