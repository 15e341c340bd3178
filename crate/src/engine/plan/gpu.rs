//! The GPU that plans run on: a device with the limits that were asked for, buffers that are counted and destroyed, pipelines that are made
//! once, and errors that arrive later than the call that caused them.

mod buffer;
mod limits;
mod pipeline;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::signal::{Signal, signal};
use crate::{
    Error, Result,
    kernels::{Limits, Tuning},
};
use limits::required;
use pipeline::Pipelines;

pub use buffer::{GpuBuffer, GpuMemory};

#[cfg(target_family = "wasm")]
const BACKENDS: wgpu::Backends = wgpu::Backends::BROWSER_WEBGPU;
#[cfg(not(target_family = "wasm"))]
const BACKENDS: wgpu::Backends = wgpu::Backends::PRIMARY;

/// Submissions that may wait in the queue: one runs, the next is there when it ends. More would only make a cancel slower.
const MAX_IN_FLIGHT: usize = 2;

/// Largest piece of one `write_buffer`: larger ones get a staging buffer of their own in Chrome.
const WRITE_BYTES: usize = 4 << 20;

/// Written bytes after which the queue is told to go on: until a submission they wait in staging buffers.
const WRITTEN_BYTES: u64 = 16 << 20;

/// A device and everything that is made once for it.
#[derive(Debug)]
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    limits: Limits,
    adapter: String,
    is_software: bool,
    memory: Arc<GpuMemory>,
    fault: Fault,
    pipelines: Pipelines,
    in_flight: Mutex<VecDeque<(wgpu::SubmissionIndex, Signal<()>)>>,
    /// Bytes written since the last submission.
    written: AtomicU64,
}

/// What went wrong later than the call that caused it.
#[derive(Debug, Clone, Default)]
struct Fault(Arc<Mutex<Option<Error>>>);

impl Fault {
    /// The first fault stays, as later ones follow from it; but a lost device explains all others.
    fn note(&self, error: Error) {
        let mut fault = lock(&self.0);
        if fault.is_none() || matches!(error, Error::DeviceLost { .. }) {
            *fault = Some(error);
        }
    }
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
        let no_webgpu = |why: String| Error::NoWebGpu { why };
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: BACKENDS,
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapter = instance
            .request_adapter(&wgpu::RequestAdapterOptions {
                power_preference: wgpu::PowerPreference::HighPerformance,
                ..Default::default()
            })
            .await
            .map_err(|error| no_webgpu(format!("There is no WebGPU adapter ({error}).")))?;
        let required_limits = required(needed, &adapter.limits())?;
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                label: Some("latent-canvas"),
                required_features: adapter.features() & wgpu::Features::TIMESTAMP_QUERY,
                required_limits,
                memory_hints: wgpu::MemoryHints::MemoryUsage,
                ..Default::default()
            })
            .await
            .map_err(|error| no_webgpu(format!("The adapter gave no device ({error}).")))?;
        let fault = Fault::default();
        let lost = fault.clone();
        device.set_device_lost_callback(move |reason, why| {
            let why = if why.is_empty() {
                format!("{reason:?}")
            } else {
                why
            };
            lost.note(Error::DeviceLost { why });
        });
        let uncaptured = fault.clone();
        let memory = Arc::new(GpuMemory::default());
        let counter = Arc::clone(&memory);
        device.on_uncaptured_error(Arc::new(move |error| {
            uncaptured.note(translate("gpu", error, counter.live_bytes()));
        }));
        let info = adapter.get_info();
        let name = if info.name.is_empty() {
            info.driver
        } else {
            info.name
        };
        Ok(Self {
            device,
            queue,
            limits: *needed,
            is_software: info.device_type == wgpu::DeviceType::Cpu || is_software(&name),
            adapter: name,
            memory,
            fault,
            pipelines: Mutex::default(),
            in_flight: Mutex::default(),
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

    /// The launches' choices that suit it.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        if self.is_software {
            Tuning::SOFTWARE
        } else {
            Tuning::default()
        }
    }

    /// The count of all buffers.
    #[must_use]
    pub fn memory(&self) -> &Arc<GpuMemory> {
        &self.memory
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    pub(super) fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// What went wrong since the device was made. A device with a fault is of no more use.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::OutOfMemory`], or [`Error::Plan`] for a call that the GPU refused.
    pub fn check(&self) -> Result<()> {
        lock(&self.fault.0).clone().map_or(Ok(()), Err)
    }

    /// A buffer, full of zeros.
    ///
    /// # Errors
    /// [`Error::LimitTooSmall`] when it is larger than a buffer may be; [`Error::OutOfMemory`] when the GPU has no more memory.
    pub async fn buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<GpuBuffer> {
        if bytes > self.limits.max_buffer_bytes {
            return Err(Error::LimitTooSmall {
                limit: "maxBufferSize".to_owned(),
                needed: bytes,
                available: self.limits.max_buffer_bytes,
            });
        }
        let before = self.memory.live_bytes();
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes,
            usage,
            mapped_at_creation: false,
        });
        let buffer = GpuBuffer::new(buffer, &self.memory);
        if scope.pop().await.is_some() {
            return Err(Error::OutOfMemory {
                needed_bytes: before + bytes,
                budget_bytes: before,
            });
        }
        self.check()?;
        Ok(buffer)
    }

    /// Writes bytes to a place of a buffer, in pieces; both a multiple of 4 but for the end of `bytes`, which is padded with zeros.
    pub(super) fn write(&self, buffer: &GpuBuffer, offset: u64, bytes: &[u8]) {
        let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
        for (i, piece) in words.chunks(WRITE_BYTES).enumerate() {
            let at = offset + (i * WRITE_BYTES) as u64;
            self.queue.write_buffer(buffer.raw(), at, piece);
            let bytes = piece.len() as u64;
            if self.written.fetch_add(bytes, Ordering::Relaxed) + bytes >= WRITTEN_BYTES {
                self.submit_now(None);
            }
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            let at = offset + words.len() as u64;
            self.queue.write_buffer(buffer.raw(), at, &last);
        }
    }

    /// Whatever `work` asks of the GPU is checked by it before this returns.
    pub(super) async fn validated<T>(
        &self,
        network: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let done = work();
        if let Some(error) = scope.pop().await {
            return Err(translate(network, error, self.memory.live_bytes()));
        }
        self.check()?;
        done
    }

    /// An encoder of one submission.
    pub(super) fn encoder(&self, label: &str) -> wgpu::CommandEncoder {
        self.device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some(label) })
    }

    /// Submits when fewer than [`MAX_IN_FLIGHT`] submissions are in the queue.
    pub(super) async fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<()> {
        while let Some(oldest) = self.crowd() {
            self.wait(oldest).await;
        }
        self.submit_now(Some(encoder));
        self.check()
    }

    /// Submits without a wait in a browser, where a caller that is not asynchronous cannot wait: for uploads, which come no faster than
    /// the network anyway. Natively it waits for the older ones.
    pub(super) fn submit_now(&self, encoder: Option<wgpu::CommandEncoder>) {
        while let Some((index, _)) = self.crowd() {
            self.poll(index);
        }
        self.written.store(0, Ordering::Relaxed);
        let index = self.queue.submit(encoder.map(wgpu::CommandEncoder::finish));
        let (done, signal) = signal();
        self.queue.on_submitted_work_done(move || done.send(()));
        lock(&self.in_flight).push_back((index, signal));
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
    fn crowd(&self) -> Option<(wgpu::SubmissionIndex, Signal<()>)> {
        let mut in_flight = lock(&self.in_flight);
        if in_flight.len() >= MAX_IN_FLIGHT {
            in_flight.pop_front()
        } else {
            None
        }
    }

    async fn wait(&self, (index, done): (wgpu::SubmissionIndex, Signal<()>)) {
        self.poll(index);
        done.await;
    }

    /// Waits for a submission and runs the callbacks natively; a browser calls back on its own. A failure shows in the fault.
    fn poll(&self, index: wgpu::SubmissionIndex) {
        let _ = self.device.poll(wgpu::PollType::Wait {
            submission_index: Some(index),
            timeout: None,
        });
    }

    /// The bytes of a mappable buffer, up to `bytes`.
    pub(super) async fn read(&self, buffer: &GpuBuffer, bytes: u64) -> Result<Vec<u8>> {
        let (done, signal) = signal();
        buffer
            .raw()
            .map_async(wgpu::MapMode::Read, ..bytes, move |result| {
                done.send(result.is_ok());
            });
        self.finish().await?;
        // mapping may come one poll after the submission's end
        let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
        let mapped = signal.await == Some(true);
        self.check()?;
        let view = mapped
            .then(|| buffer.raw().get_mapped_range(..bytes).ok())
            .flatten()
            .ok_or_else(|| Error::DeviceLost {
                why: "a result could not be read back".to_owned(),
            })?;
        let values = view.to_vec();
        drop(view);
        buffer.raw().unmap();
        Ok(values)
    }
}

/// A browser tells no type of its adapter, but the software ones by name.
fn is_software(name: &str) -> bool {
    let name = name.to_lowercase();
    ["swiftshader", "llvmpipe", "lavapipe", "basic render"]
        .iter()
        .any(|known| name.contains(known))
}

/// An error of wgpu as one of ours.
fn translate(network: &str, error: wgpu::Error, live_bytes: u64) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory {
            needed_bytes: live_bytes,
            budget_bytes: live_bytes,
        },
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            Error::Plan {
                network: network.to_owned(),
                why: description,
            }
        }
    }
}
