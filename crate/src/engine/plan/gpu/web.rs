//! The device in a browser: WebGPU itself, through the few functions that are needed. wgpu's own way there panics on errors that a page
//! meets (an internal error, a call that throws, a lost device), has no asynchronous pipelines, and copies what it maps.
//!
//! Nothing here blocks and nothing panics: an error arrives in an error scope, in the listener for those that no scope had, or with the
//! loss of the device, and ends every wait.

mod adapter;
mod binding;
mod encoder;
mod lost;
mod pipeline;

use std::{cell::RefCell, future::Future, rc::Rc};

use js_sys::{Array, Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};

use super::{BufferUse, fault::Fault};
use crate::{
    Error, Result,
    engine::plan::signal::{Signal, signal},
    kernels::Limits,
};
use binding::{Dict, GpuDevice, GpuQueue, JsError, JsErrorEvent, JsLost};
use lost::{Lost, UnlessLost};
use pipeline::Compiler;

pub(super) use adapter::Adapter;
pub(in crate::engine::plan) use binding::{BindGroup, QuerySet};
pub(super) use binding::{BindGroupLayout as Layout, Buffer, ComputePipeline as Compiled, now_ms};
pub(in crate::engine::plan) use encoder::Encoder;

/// A device and its queue. Given back when it is dropped.
#[derive(Debug)]
pub(in crate::engine::plan) struct Device(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    device: GpuDevice,
    queue: GpuQueue,
    has_timestamps: bool,
    fault: Fault,
    lost: Rc<Lost>,
    compiler: RefCell<Compiler>,
    /// Of a submission that only tells the browser to look.
    no_commands: Array,
    _on_error: Closure<dyn FnMut(JsErrorEvent)>,
}

/// A submission: the time when it ended.
pub(super) type Submitted = Signal<f64>;

/// A buffer that is to be mapped.
pub(super) type Mapping = UnlessLost;

/// What an error scope caught.
enum Refused {
    OutOfMemory,
    Call(String),
}

impl Device {
    pub(super) async fn open(needed: &Limits, fault: &Fault) -> Result<(Self, Adapter)> {
        let adapter = adapter::request().await?;
        let (device, has_timestamps) = adapter::device(&adapter, needed).await?;
        let device = Self::new(device, has_timestamps, fault);
        Ok((device, Adapter::new(&adapter)))
    }

    fn new(device: GpuDevice, has_timestamps: bool, fault: &Fault) -> Self {
        let lost = Rc::new(Lost::default());
        let uncaptured = fault.clone();
        let on_error = Closure::new(move |event: JsErrorEvent| {
            match refused(event.error()) {
                Refused::OutOfMemory => uncaptured.note_out_of_memory(),
                Refused::Call(why) => uncaptured.note_refused(why),
            };
        });
        device.set_on_uncaptured_error(Some(on_error.as_ref()));
        let end = JsFuture::from(device.lost());
        spawn_local({
            let (fault, lost) = (fault.clone(), Rc::clone(&lost));
            async move {
                let why = match end.await {
                    Ok(info) => {
                        let info: JsLost = info.unchecked_into();
                        let (reason, message) = (info.reason(), info.message());
                        [reason, message]
                            .into_iter()
                            .flatten()
                            .collect::<Vec<_>>()
                            .join(": ")
                    }
                    Err(error) => message(&error),
                };
                fault.note(Error::DeviceLost { why });
                lost.tell();
            }
        });
        Self(Rc::new(Inner {
            queue: device.queue(),
            device,
            has_timestamps,
            fault: fault.clone(),
            lost,
            compiler: RefCell::default(),
            no_commands: Array::new(),
            _on_error: on_error,
        }))
    }

    pub(super) fn has_timestamps(&self) -> bool {
        self.0.has_timestamps
    }

    pub(super) fn destroy(&self) {
        self.0.device.destroy();
        // the browser tells of it later; nobody has to wait for that
        self.0.lost.tell();
    }

    /// A buffer, and whether there was memory for it.
    pub(super) fn buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: BufferUse,
    ) -> (Option<Buffer>, impl Future<Output = bool>) {
        // the bits of GPUBufferUsage
        const MAP_READ: u32 = 1;
        const COPY_SRC: u32 = 4;
        const COPY_DST: u32 = 8;
        const UNIFORM: u32 = 64;
        const STORAGE: u32 = 128;
        const QUERY_RESOLVE: u32 = 512;
        let descriptor = Dict::new();
        descriptor.set_label(label);
        descriptor.set_size(bytes as f64);
        descriptor.set_usage(match usage {
            BufferUse::Arena => STORAGE | UNIFORM | COPY_SRC | COPY_DST,
            BufferUse::Weights => STORAGE | COPY_DST,
            BufferUse::Uniform => UNIFORM | COPY_DST,
            BufferUse::ReadBack => MAP_READ | COPY_DST,
            BufferUse::Timestamps => QUERY_RESOLVE | COPY_SRC,
        });
        let inner = Rc::clone(&self.0);
        // it throws a RangeError where there is no memory even to ask for it
        let (buffer, refused) = inner.guarded(|| inner.device.create_buffer(&descriptor).ok());
        let is_there = async move {
            match refused.first().await {
                Some(Refused::OutOfMemory) => false,
                Some(Refused::Call(why)) => {
                    inner.fault.note_refused(why);
                    false
                }
                None => true,
            }
        };
        (buffer, is_there)
    }

    pub(super) fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) {
        // the view of our memory is copied before the call returns
        self.0
            .call(self.0.queue.write_buffer(buffer, offset as f64, bytes));
    }

    /// What `work` gives, and what the GPU refused of it.
    pub(super) fn validated<T>(
        &self,
        work: impl FnOnce() -> T,
    ) -> (T, impl Future<Output = Option<String>>) {
        let (done, refused) = self.0.guarded(work);
        let inner = Rc::clone(&self.0);
        let why = async move {
            match refused.first().await? {
                Refused::OutOfMemory => {
                    inner.fault.note_out_of_memory();
                    None
                }
                Refused::Call(why) => Some(why),
            }
        };
        (done, why)
    }

    pub(super) fn encoder(&self, label: &str) -> Encoder {
        let descriptor = Dict::new();
        descriptor.set_label(label);
        Encoder::new(self.0.device.create_command_encoder(&descriptor))
    }

    pub(super) fn submit(&self, encoder: Option<Encoder>) -> Submitted {
        let commands = encoder.map(|encoder| Array::of1(&encoder.finish()));
        let queue = &self.0.queue;
        queue.submit(commands.as_ref().unwrap_or(&self.0.no_commands));
        let done = self.0.until(queue.on_submitted_work_done());
        self.0.look();
        let (sender, signal) = signal();
        spawn_local(async move {
            if done.await.is_ok() {
                sender.send(now_ms());
            }
        });
        signal
    }

    /// Waits for a submission; gives the time when it ended.
    pub(super) fn wait(&self, submitted: Submitted) -> Submitted {
        submitted
    }

    pub(super) fn map(&self, buffer: &Buffer, bytes: u64) -> Mapping {
        const READ: u32 = 1;
        let mapped = self.0.until(buffer.map_async(READ, 0.0, bytes as f64));
        self.0.look();
        mapped
    }

    /// Copies the range alone, once, into our memory.
    pub(super) async fn mapped(
        &self,
        buffer: &Buffer,
        bytes: u64,
        mapping: Mapping,
    ) -> Result<Vec<u8>, String> {
        mapping.await.map_err(|error| message(&error))?;
        let range = buffer.get_mapped_range(0.0, bytes as f64);
        let values = Uint8Array::new(&range.map_err(|error| message(&error))?).to_vec();
        buffer.unmap();
        Ok(values)
    }

    pub(in crate::engine::plan) fn queries(&self, count: u32) -> QuerySet {
        let descriptor = Dict::new();
        descriptor.set_label("timestamps");
        descriptor.set_type("timestamp");
        descriptor.set_count(count);
        self.0.device.create_query_set(&descriptor)
    }

    /// Nanoseconds of a tick.
    pub(in crate::engine::plan) fn timestamp_period(&self) -> f64 {
        1.0
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.destroy();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // the listener goes with it
        self.device.set_on_uncaptured_error(None);
    }
}

impl Inner {
    /// A promise, or the end of the device.
    fn until(&self, promise: Promise) -> UnlessLost {
        UnlessLost::new(promise, &self.lost)
    }

    /// What a call without an answer threw is a fault.
    fn call(&self, result: Result<(), JsValue>) {
        if let Err(error) = result {
            self.fault.note_refused(message(&error));
        }
    }

    /// Firefox looks for ended work when something is submitted, and else ten times a second.
    fn look(&self) {
        self.queue.submit(&self.no_commands);
    }

    /// Catches whatever errors `work` causes, which must not wait: scopes belong to the device, not to a task.
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> (T, Scopes) {
        for filter in ["validation", "internal", "out-of-memory"] {
            self.device.push_error_scope(filter);
        }
        let done = work();
        let scopes = [(); 3].map(|()| self.until(self.device.pop_error_scope()));
        (done, Scopes(scopes))
    }
}

/// Error scopes that are closed and will tell.
struct Scopes([UnlessLost; 3]);

impl Scopes {
    async fn first(self) -> Option<Refused> {
        let mut first = None;
        for scope in self.0 {
            // a scope that cannot be read is one of a device that is lost, which is told elsewhere
            let error = scope.await.ok().filter(|error| !error.is_null());
            first = first.or(error.map(|error| refused(error.unchecked_into())));
        }
        first
    }
}

fn refused(error: JsError) -> Refused {
    if error.constructor().name() == "GPUOutOfMemoryError" {
        return Refused::OutOfMemory;
    }
    Refused::Call(message(&error))
}

/// What an error object says.
fn message(error: &JsValue) -> String {
    let error: &JsError = error.unchecked_ref();
    match error.message() {
        Some(message) if !message.is_empty() => message,
        _ => "no reason was given".to_owned(),
    }
}
