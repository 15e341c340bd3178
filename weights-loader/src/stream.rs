//! Chunks of any size to pieces of named tensors, without ever holding the file.

use crate::index::LENGTH_BYTES;
use crate::sniff::recognise;
use crate::{LoadError, SafetensorsIndex, TensorInfo};

/// Takes the tensors of a file as they arrive, in the order of their bytes in the file.
pub trait TensorSink {
    /// The header is read and sound; called once, before any tensor.
    ///
    /// # Errors
    /// The sink's own: the load stops with it.
    fn begin(&mut self, index: &SafetensorsIndex) -> Result<(), LoadError>;

    /// The next bytes of `tensor`. They hold whole elements: length and `offset_bytes` (from the start of the tensor)
    /// are multiples of [`Dtype::unit_bytes`](crate::Dtype::unit_bytes). Their address in memory has no alignment.
    ///
    /// # Errors
    /// The sink's own: the load stops with it.
    fn chunk(
        &mut self,
        tensor: &TensorInfo,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), LoadError>;

    /// All bytes of `tensor` have arrived; called for tensors of size zero as well.
    ///
    /// # Errors
    /// The sink's own: the load stops with it.
    fn end(&mut self, tensor: &TensorInfo) -> Result<(), LoadError>;
}

/// The state machine: push chunks, then finish.
///
/// Holds the header and at most one partial element. After an error every further call answers with the same error.
#[derive(Debug)]
pub struct SafetensorsStream {
    name: String,
    file_length: Option<u64>,
    received: u64,
    state: State,
    failed: Option<LoadError>,
}

#[derive(Debug)]
enum State {
    /// Gathering the 8 bytes of the header's length.
    Length { bytes: [u8; 8], filled: usize },
    /// Gathering the header.
    Header { length: usize, bytes: Vec<u8> },
    /// Delivering tensors.
    Data(Data),
}

#[derive(Debug)]
struct Data {
    index: SafetensorsIndex,
    /// The tensor whose bytes come next.
    next: usize,
    /// Bytes of it that were delivered.
    offset: u64,
    /// The start of an element that a chunk's end has cut.
    partial: [u8; 8],
    partial_len: usize,
}

impl SafetensorsStream {
    /// `name` is the file's path or address, for messages. `file_length` in bytes, where known, lets a file that was cut
    /// be refused as soon as its header has arrived.
    #[must_use]
    pub fn new(name: &str, file_length: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            file_length,
            received: 0,
            state: State::Length {
                bytes: [0; 8],
                filled: 0,
            },
            failed: None,
        }
    }

    /// The index, as soon as the header has arrived.
    #[must_use]
    pub fn index(&self) -> Option<&SafetensorsIndex> {
        match &self.state {
            State::Data(data) => Some(&data.index),
            _ => None,
        }
    }

    /// Takes the next bytes of the file.
    ///
    /// # Errors
    /// `Header` when the header breaks a rule, `Truncated` when the file is longer than its header says (or its known
    /// length differs), and whatever the sink answers.
    pub fn push(&mut self, chunk: &[u8], sink: &mut dyn TensorSink) -> Result<(), LoadError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance(chunk, sink);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn advance(&mut self, mut chunk: &[u8], sink: &mut dyn TensorSink) -> Result<(), LoadError> {
        self.received = self.received.saturating_add(chunk.len() as u64);
        if let State::Length { bytes, filled } = &mut self.state {
            let taken = chunk.len().min(8 - *filled);
            bytes[*filled..*filled + taken].copy_from_slice(&chunk[..taken]);
            *filled += taken;
            chunk = &chunk[taken..];
            if *filled < 8 {
                return Ok(());
            }
            let length = SafetensorsIndex::header_length(&self.name, *bytes, self.file_length)?;
            // at most 100,000,000, so it fits; no memory is reserved on a stranger's word
            self.state = State::Header {
                length: length as usize,
                bytes: Vec::new(),
            };
        }
        if let State::Header { length, bytes } = &mut self.state {
            let taken = chunk.len().min(*length - bytes.len());
            if bytes.is_empty() && taken > 0 {
                SafetensorsIndex::check_first_byte(&self.name, *length as u64, chunk[0])?;
            }
            bytes.extend_from_slice(&chunk[..taken]);
            chunk = &chunk[taken..];
            if bytes.len() < *length {
                return Ok(());
            }
            let index = SafetensorsIndex::parse(&self.name, bytes, self.file_length)?;
            sink.begin(&index)?;
            self.state = State::Data(Data {
                index,
                next: 0,
                offset: 0,
                partial: [0; 8],
                partial_len: 0,
            });
        }
        let State::Data(data) = &mut self.state else {
            return Ok(());
        };
        if self.received > data.index.file_length() {
            return Err(LoadError::Truncated {
                name: self.name.clone(),
                expected: data.index.file_length(),
                got: self.received,
            });
        }
        data.deliver(chunk, sink)
    }

    /// Says that the file has ended.
    ///
    /// # Errors
    /// `Header` when there was no whole header length, `Truncated` when bytes are missing, and any earlier error again.
    pub fn finish(self) -> Result<SafetensorsIndex, LoadError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let expected = match self.state {
            State::Length { bytes, filled } => {
                let why = match (filled, recognise(&bytes[..filled])) {
                    (0, _) => "it is empty".to_owned(),
                    (_, Some(known)) => known.to_owned(),
                    (n, None) => format!("it has {n} bytes, too short for a safetensors file"),
                };
                return Err(LoadError::Header {
                    name: self.name,
                    why,
                });
            }
            State::Header { length, .. } => LENGTH_BYTES + length as u64,
            State::Data(data) if self.received == data.index.file_length() => return Ok(data.index),
            State::Data(data) => data.index.file_length(),
        };
        Err(LoadError::Truncated {
            name: self.name,
            expected,
            got: self.received,
        })
    }
}

impl Data {
    /// `chunk` never reaches past the last tensor: `advance` has checked it.
    fn deliver(&mut self, mut chunk: &[u8], sink: &mut dyn TensorSink) -> Result<(), LoadError> {
        while let Some(tensor) = self.index.tensors.get(self.next) {
            let left = tensor.size_bytes() - self.offset;
            if left == 0 {
                sink.end(tensor)?;
                self.next += 1;
                self.offset = 0;
                continue;
            }
            if chunk.is_empty() {
                return Ok(());
            }
            let unit = tensor.dtype.unit_bytes();
            if self.partial_len > 0 || chunk.len() < unit {
                let taken = chunk.len().min(unit - self.partial_len);
                self.partial[self.partial_len..self.partial_len + taken]
                    .copy_from_slice(&chunk[..taken]);
                self.partial_len += taken;
                chunk = &chunk[taken..];
                if self.partial_len == unit {
                    sink.chunk(tensor, self.offset, &self.partial[..unit])?;
                    self.offset += unit as u64;
                    self.partial_len = 0;
                }
                continue;
            }
            // the tensor's size is a multiple of its unit, so what is cut here is the chunk's end or nothing
            let within = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            let (whole, rest) = chunk.split_at(within - within % unit);
            sink.chunk(tensor, self.offset, whole)?;
            self.offset += whole.len() as u64;
            chunk = rest;
        }
        Ok(())
    }
}
