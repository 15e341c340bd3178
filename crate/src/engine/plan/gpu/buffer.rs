//! Buffers that are counted, and destroyed when they are dropped.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::backend;

/// Bytes of the buffers of one device.
#[derive(Debug, Default)]
pub struct GpuMemory {
    live: AtomicU64,
    peak: AtomicU64,
}

impl GpuMemory {
    /// Bytes of the buffers that are there.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// The most that were ever there at once.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: u64) {
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(live, Ordering::Relaxed);
    }

    fn remove(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What a buffer is for, and with that how it may be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferUse {
    /// Activations; also parameters of the upload, which passes through the arena.
    Arena,
    /// Weights.
    Weights,
    /// Parameters.
    Uniform,
    /// Results on their way to the program.
    ReadBack,
    /// Timestamps.
    Timestamps,
}

/// A buffer that is counted, and destroyed when it is dropped: a browser frees what is only forgotten when its garbage collector wants to.
#[derive(Debug)]
pub struct GpuBuffer {
    buffer: backend::Buffer,
    bytes: u64,
    memory: Arc<GpuMemory>,
}

/// A range of a buffer, to be bound.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine::plan) struct Range<'a> {
    pub(super) buffer: &'a backend::Buffer,
    pub(super) offset: u64,
    /// Never left out: the rest of the buffer would overlap with others.
    pub(super) bytes: u64,
}

impl GpuBuffer {
    /// Counts a new buffer.
    pub(super) fn new(buffer: backend::Buffer, bytes: u64, memory: &Arc<GpuMemory>) -> Self {
        memory.add(bytes);
        Self {
            buffer,
            bytes,
            memory: Arc::clone(memory),
        }
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn raw(&self) -> &backend::Buffer {
        &self.buffer
    }

    pub(in crate::engine::plan) fn range(&self, offset: u64, bytes: u64) -> Range<'_> {
        Range {
            buffer: &self.buffer,
            offset,
            bytes,
        }
    }
}

impl Drop for GpuBuffer {
    fn drop(&mut self) {
        self.buffer.destroy();
        self.memory.remove(self.bytes);
    }
}
