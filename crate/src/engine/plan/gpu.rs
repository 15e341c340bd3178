//! The GPU that plans run on: a device with the limits that were asked for, buffers that are counted and destroyed, pipelines that are made
//! once, and errors that arrive later than the call that caused them.
//!
//! Natively it is wgpu's, in a browser WebGPU's own: `native` and `web` have the same few types and functions.

mod buffer;
mod fault;
mod limits;
#[cfg(not(target_family = "wasm"))]
mod native;
mod pace;
mod pipeline;
#[cfg(target_family = "wasm")]
mod web;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    Error, Result,
    kernels::{Limits, Tuning},
};
use fault::Fault;
#[cfg(not(target_family = "wasm"))]
use native as backend;
use pace::Pace;
use pipeline::Pipelines;
#[cfg(target_family = "wasm")]
use web as backend;

pub(super) use backend::Encoder;
pub use buffer::{BufferUse, GpuBuffer, GpuMemory};
pub(super) use pipeline::{BoundCall, Pipeline};

/// Submissions that may wait in the queue: one runs, the next is there when it ends. More would only make a cancel slower.
const MAX_IN_FLIGHT: usize = 2;

/// Largest piece of one `write_buffer`: larger ones get a staging buffer of their own in Chrome.
const WRITE_BYTES: usize = 4 << 20;

/// Written bytes after which the queue is told to go on: until a submission they wait in staging buffers.
const WRITTEN_BYTES: u64 = 16 << 20;

/// A device and everything that is made once for it.
#[derive(Debug)]
pub struct Gpu {
    device: backend::Device,
    limits: Limits,
    adapter: String,
    is_software: bool,
    memory: Arc<GpuMemory>,
    fault: Fault,
    pipelines: Pipelines,
    in_flight: Mutex<VecDeque<InFlight>>,
    pace: Mutex<Pace>,
    tuning: Mutex<Tuning>,
    /// Bytes written since the last submission.
    written: AtomicU64,
}

/// A submission that may not have ended yet.
#[derive(Debug)]
struct InFlight {
    submitted: backend::Submitted,
    /// When, in milliseconds.
    at: f64,
    /// As [`Gpu::submit`] was told.
    work: u64,
}

/// A lock whose holder may have panicked in another test; what it guards is whole at every moment.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// A device of the fastest adapter, with WebGPU's default limits raised to what `needed` asks for.
    ///
    /// # Errors
    /// [`Error::NoWebGpu`] when no adapter or no device is to be had; [`Error::LimitTooSmall`] when the adapter offers less than `needed`.
    pub async fn request(needed: &Limits) -> Result<Self> {
        let memory = Arc::new(GpuMemory::default());
        let fault = Fault::new(&memory);
        let (device, adapter) = backend::Device::open(needed, &fault).await?;
        let is_software = adapter.is_software || is_software(&adapter.name);
        let tuning = if is_software {
            Tuning::SOFTWARE
        } else {
            Tuning::default()
        };
        Ok(Self {
            device,
            limits: *needed,
            is_software,
            tuning: Mutex::new(tuning),
            adapter: adapter.name,
            memory,
            fault,
            pipelines: Pipelines::default(),
            in_flight: Mutex::default(),
            pace: Mutex::default(),
            written: AtomicU64::new(0),
        })
    }

    /// The limits that were asked for.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The adapter's name; a browser may keep it to itself.
    #[must_use]
    pub fn adapter(&self) -> &str {
        &self.adapter
    }

    /// Whether the adapter is software on a CPU.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.is_software
    }

    /// The launches' choices that suit it: what was measured, else what is known of its kind.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        *lock(&self.tuning)
    }

    /// Takes choices that were measured on it. Networks that are there keep theirs.
    pub fn set_tuning(&self, tuning: Tuning) {
        *lock(&self.tuning) = tuning;
    }

    /// Milliseconds by the clock that submissions are timed with.
    pub(super) fn now_ms(&self) -> f64 {
        backend::now_ms()
    }

    /// The count of all buffers.
    #[must_use]
    pub fn memory(&self) -> &Arc<GpuMemory> {
        &self.memory
    }

    /// Whether the GPU's own clock can be read.
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        self.device.has_timestamps()
    }

    pub(super) fn device(&self) -> &backend::Device {
        &self.device
    }

    /// Gives the device back, with everything in it, at once. What is asked of it later ends with [`Error::DeviceLost`]; nothing else
    /// tells of it.
    pub fn destroy(&self) {
        self.fault.note(Error::DeviceLost {
            why: "it was given back".to_owned(),
        });
        self.device.destroy();
    }

    /// What went wrong since the device was made. A device with a fault is of no more use.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::OutOfMemory`], or [`Error::Plan`] for a call that the GPU refused.
    pub fn check(&self) -> Result<()> {
        self.fault.check()
    }

    /// A buffer, full of zeros.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`] when it is larger than a buffer may be; [`Error::OutOfMemory`] when the GPU has no more memory;
    /// [`Error::DeviceLost`].
    pub async fn buffer(&self, label: &str, bytes: u64, usage: BufferUse) -> Result<GpuBuffer> {
        if bytes > self.limits.max_buffer_bytes {
            return Err(Error::LimitTooSmall {
                limit: "maxBufferSize".to_owned(),
                needed: bytes,
                available: self.limits.max_buffer_bytes,
            });
        }
        self.check()?;
        let before = self.memory.live_bytes();
        let out_of_memory = Error::OutOfMemory {
            needed_bytes: before + bytes,
            budget_bytes: before,
        };
        let (buffer, is_there) = self.device.buffer(label, bytes, usage);
        // counted while the GPU says whether it has the memory
        let buffer = buffer.map(|buffer| GpuBuffer::new(buffer, bytes, &self.memory));
        let is_there = is_there.await;
        // a lost device has no memory either
        self.check()?;
        match buffer {
            Some(buffer) if is_there => Ok(buffer),
            _ => Err(out_of_memory),
        }
    }

    /// Writes bytes to a place of a buffer, in pieces; both a multiple of 4 but for the end of `bytes`, which is padded with zeros.
    pub(super) fn write(&self, buffer: &GpuBuffer, offset: u64, bytes: &[u8]) {
        let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
        for (i, piece) in words.chunks(WRITE_BYTES).enumerate() {
            let at = offset + (i * WRITE_BYTES) as u64;
            self.device.write(buffer.raw(), at, piece);
            let bytes = piece.len() as u64;
            if self.written.fetch_add(bytes, Ordering::Relaxed) + bytes >= WRITTEN_BYTES {
                self.submit_now(None);
            }
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            let at = offset + words.len() as u64;
            self.device.write(buffer.raw(), at, &last);
        }
    }

    /// Whatever `work` asks of the GPU is checked by it before this returns.
    pub(super) async fn validated<T>(
        &self,
        network: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (done, refused) = self.device.validated(work);
        let refused = refused.await;
        self.check()?;
        match refused {
            Some(why) => Err(Error::Plan {
                network: network.to_owned(),
                why,
            }),
            None => done,
        }
    }

    /// An encoder of one submission.
    pub(super) fn encoder(&self, label: &str) -> Encoder {
        self.device.encoder(label)
    }

    /// Submits when fewer than [`MAX_IN_FLIGHT`] submissions are in the queue. `work` is what it costs, in the unit of
    /// [`Self::work_per_submission`]; 0 where that is not known.
    pub(super) async fn submit(&self, encoder: Encoder, work: u64) -> Result<()> {
        while let Some(oldest) = self.crowd() {
            self.wait(oldest).await;
        }
        self.enqueue(Some(encoder), work);
        self.check()
    }

    /// Submits without a wait in a browser, where a caller that is not asynchronous cannot wait: for uploads, which come no faster than
    /// the network anyway. Natively it waits for the older ones.
    pub(super) fn submit_now(&self, encoder: Option<Encoder>) {
        #[cfg(not(target_family = "wasm"))]
        while let Some(oldest) = self.crowd() {
            let done = self.device.wait_here(oldest.submitted);
            self.observe(oldest.at, oldest.work, done);
        }
        self.enqueue(encoder, 0);
    }

    fn enqueue(&self, encoder: Option<Encoder>, work: u64) {
        self.written.store(0, Ordering::Relaxed);
        let at = backend::now_ms();
        let submitted = self.device.submit(encoder);
        lock(&self.in_flight).push_back(InFlight {
            submitted,
            at,
            work,
        });
    }

    /// Waits until everything that was submitted has run.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub async fn finish(&self) -> Result<()> {
        loop {
            let Some(oldest) = lock(&self.in_flight).pop_front() else {
                return self.check();
            };
            self.wait(oldest).await;
        }
    }

    /// The oldest submission, where as many as may be are in the queue.
    fn crowd(&self) -> Option<InFlight> {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.len() >= MAX_IN_FLIGHT {
            in_flight.pop_front()
        } else {
            None
        }
    }

    async fn wait(&self, oldest: InFlight) {
        let done = self.device.wait(oldest.submitted).await;
        self.observe(oldest.at, oldest.work, done);
    }

    /// A submission whose end nobody told has failed, which shows in the fault.
    fn observe(&self, submitted: f64, work: u64, done: Option<f64>) {
        if let Some(done) = done {
            lock(&self.pace).observe(work, submitted, done);
        }
    }

    /// The work that a submission may have by the times that were measured, or `start` where there are none.
    pub(super) fn work_per_submission(&self, start: u64) -> u64 {
        lock(&self.pace).work_per_submission(start)
    }

    /// The bytes of a mappable buffer, up to `bytes`.
    pub(super) async fn read(&self, buffer: &GpuBuffer, bytes: u64) -> Result<Vec<u8>> {
        let mapping = self.device.map(buffer.raw(), bytes);
        self.finish().await?;
        let values = self.device.mapped(buffer.raw(), bytes, mapping).await;
        self.check()?;
        values.map_err(|why| Error::DeviceLost {
            why: format!("a result could not be read back: {why}"),
        })
    }
}

/// A browser tells no type of its adapter, but the software ones by name.
fn is_software(name: &str) -> bool {
    let name = name.to_lowercase();
    ["swiftshader", "llvmpipe", "lavapipe", "basic render"]
        .iter()
        .any(|known| name.contains(known))
}
