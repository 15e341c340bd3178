//! Buffers that are counted, and destroyed when they are dropped.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

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

/// A buffer that is counted, and destroyed when it is dropped: a browser frees what is only forgotten when its garbage collector wants to.
#[derive(Debug)]
pub struct GpuBuffer {
    buffer: wgpu::Buffer,
    memory: Arc<GpuMemory>,
}

impl GpuBuffer {
    /// Counts a new buffer.
    pub(super) fn new(buffer: wgpu::Buffer, memory: &Arc<GpuMemory>) -> Self {
        memory.add(buffer.size());
        Self {
            buffer,
            memory: Arc::clone(memory),
        }
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.buffer.size()
    }

    /// The buffer itself.
    #[must_use]
    pub fn raw(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// A range of it, to be bound.
    pub(in crate::engine::plan) fn range(
        &self,
        offset: u64,
        bytes: u64,
    ) -> wgpu::BindingResource<'_> {
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer: &self.buffer,
            offset,
            // no operand is empty; the rest of the buffer would overlap with others
            size: wgpu::BufferSize::new(bytes),
        })
    }
}

impl Drop for GpuBuffer {
    fn drop(&mut self) {
        self.buffer.destroy();
        self.memory.remove(self.buffer.size());
    }
}
