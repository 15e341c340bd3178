//! A file that is in memory already.

use std::ops::Range;

use super::{ByteSource, ChunkSink, range_buffer};
use crate::LoadError;

/// Bytes in memory, delivered in chunks of a chosen size.
#[derive(Debug, Clone)]
pub struct MemorySource {
    name: String,
    bytes: Vec<u8>,
    chunk_bytes: usize,
}

impl MemorySource {
    /// `name` is for messages. Chunks of 64 KiB, about what a browser delivers.
    #[must_use]
    pub fn new(name: &str, bytes: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            chunk_bytes: 64 * 1024,
        }
    }

    /// Chunks of this size (at least 1 byte).
    #[must_use]
    pub fn with_chunk_bytes(mut self, chunk_bytes: usize) -> Self {
        self.chunk_bytes = chunk_bytes.max(1);
        self
    }
}

impl ByteSource for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn known_length(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    async fn length(&self) -> Result<Option<u64>, LoadError> {
        Ok(self.known_length())
    }

    async fn stream(&self, sink: &mut ChunkSink<'_>) -> Result<u64, LoadError> {
        for chunk in self.bytes.chunks(self.chunk_bytes) {
            sink(chunk)?;
        }
        Ok(self.bytes.len() as u64)
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, LoadError> {
        let mut buffer = range_buffer(&self.name, &range)?;
        if range.is_empty() {
            return Ok(buffer);
        }
        let part = match (usize::try_from(range.start), usize::try_from(range.end)) {
            (Ok(start), Ok(end)) => self.bytes.get(start..end),
            _ => None,
        };
        let part = part.ok_or_else(|| LoadError::Truncated {
            name: self.name.clone(),
            expected: range.end,
            got: self.bytes.len() as u64,
        })?;
        buffer.extend_from_slice(part);
        Ok(buffer)
    }
}
