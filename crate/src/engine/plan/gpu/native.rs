//! The device natively: wgpu.

mod encoder;
mod pipeline;

use std::{
    future::{Future, ready},
    pin::pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Waker},
    time::Instant,
};

use super::{BufferUse, fault::Fault, limits::raised};
use crate::{
    Error, Result,
    engine::plan::signal::{Signal, signal},
    kernels::Limits,
};

pub(in crate::engine::plan) use encoder::Encoder;
pub(in crate::engine::plan) use wgpu::{BindGroup, QuerySet};
pub(super) use wgpu::{BindGroupLayout as Layout, Buffer, ComputePipeline as Compiled};

/// What an adapter says of itself.
#[derive(Debug)]
pub(super) struct Adapter {
    pub(super) name: String,
    pub(super) is_software: bool,
}

/// A device and its queue.
#[derive(Debug)]
pub(in crate::engine::plan) struct Device {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

/// A submission: its number, and the time when it ended.
#[derive(Debug)]
pub(super) struct Submitted(wgpu::SubmissionIndex, Signal<f64>);

/// A buffer that is to be mapped.
pub(super) type Mapping = Signal<bool>;

/// Milliseconds since some time.
pub(super) fn now_ms() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_secs_f64() * 1e3
}

impl Device {
    pub(super) async fn open(needed: &Limits, fault: &Fault) -> Result<(Self, Adapter)> {
        let no_webgpu = |why: String| Error::NoWebGpu { why };
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: wgpu::Backends::PRIMARY,
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
        device.on_uncaptured_error(Arc::new(move |error| match error {
            wgpu::Error::OutOfMemory { .. } => uncaptured.note_out_of_memory(),
            other => uncaptured.note_refused(why(other)),
        }));
        let info = adapter.get_info();
        let adapter = Adapter {
            is_software: info.device_type == wgpu::DeviceType::Cpu,
            name: if info.name.is_empty() {
                info.driver
            } else {
                info.name
            },
        };
        Ok((Self { device, queue }, adapter))
    }

    pub(super) fn has_timestamps(&self) -> bool {
        let features = self.device.features();
        features.contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    pub(super) fn destroy(&self) {
        self.device.destroy();
    }

    /// A buffer, and whether there was memory for it.
    pub(super) fn buffer(
        &self,
        label: &str,
        bytes: u64,
        usage: BufferUse,
    ) -> (Option<Buffer>, impl Future<Output = bool>) {
        use wgpu::BufferUsages as Usage;
        let usage = match usage {
            BufferUse::Arena => Usage::STORAGE | Usage::UNIFORM | Usage::COPY_SRC | Usage::COPY_DST,
            BufferUse::Weights => Usage::STORAGE | Usage::COPY_DST,
            BufferUse::Uniform => Usage::UNIFORM | Usage::COPY_DST,
            BufferUse::ReadBack => Usage::MAP_READ | Usage::COPY_DST,
            BufferUse::Timestamps => Usage::QUERY_RESOLVE | Usage::COPY_SRC,
        };
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes,
            usage,
            mapped_at_creation: false,
        });
        let refused = scope.pop();
        (Some(buffer), async { refused.await.is_none() })
    }

    pub(super) fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) {
        self.queue.write_buffer(buffer, offset, bytes);
    }

    /// What `work` gives, and what the GPU refused of it.
    pub(super) fn validated<T>(
        &self,
        work: impl FnOnce() -> T,
    ) -> (T, impl Future<Output = Option<String>>) {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let done = work();
        let refused = scope.pop();
        (done, async { refused.await.map(why) })
    }

    pub(super) fn encoder(&self, label: &str) -> Encoder {
        let descriptor = wgpu::CommandEncoderDescriptor { label: Some(label) };
        Encoder::new(self.device.create_command_encoder(&descriptor))
    }

    pub(super) fn submit(&self, encoder: Option<Encoder>) -> Submitted {
        let index = self.queue.submit(encoder.map(Encoder::finish));
        let (done, signal) = signal();
        self.queue
            .on_submitted_work_done(move || done.send(now_ms()));
        Submitted(index, signal)
    }

    /// Waits for a submission; gives the time when it ended.
    pub(super) fn wait(&self, submitted: Submitted) -> impl Future<Output = Option<f64>> {
        ready(self.wait_here(submitted))
    }

    /// Waits for a submission and runs the callbacks. A failure shows in the fault.
    pub(super) fn wait_here(&self, Submitted(index, done): Submitted) -> Option<f64> {
        let _ = self.device.poll(wgpu::PollType::Wait {
            submission_index: Some(index),
            timeout: None,
        });
        at_once(done)?
    }

    pub(super) fn map(&self, buffer: &Buffer, bytes: u64) -> Mapping {
        let (done, signal) = signal();
        buffer.map_async(wgpu::MapMode::Read, ..bytes, move |result| {
            done.send(result.is_ok());
        });
        signal
    }

    pub(super) async fn mapped(
        &self,
        buffer: &Buffer,
        bytes: u64,
        mapping: Mapping,
    ) -> Result<Vec<u8>, String> {
        // mapping may come one poll after the submission's end
        let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
        if mapping.await != Some(true) {
            return Err("it was not mapped".to_owned());
        }
        let view = buffer.get_mapped_range(..bytes);
        let values = view.map_err(|error| error.to_string())?.to_vec();
        buffer.unmap();
        Ok(values)
    }

    pub(in crate::engine::plan) fn queries(&self, count: u32) -> QuerySet {
        self.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("timestamps"),
            ty: wgpu::QueryType::Timestamp,
            count,
        })
    }

    /// Nanoseconds of a tick.
    pub(in crate::engine::plan) fn timestamp_period(&self) -> f64 {
        f64::from(self.queue.get_timestamp_period())
    }
}

/// What a future gives that does not wait natively.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn why(error: wgpu::Error) -> String {
    match error {
        wgpu::Error::OutOfMemory { .. } => "out of memory".to_owned(),
        wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
            description
        }
    }
}

/// The default limits raised to those that are needed.
fn required(needed: &Limits, available: &wgpu::Limits) -> Result<wgpu::Limits> {
    let offered = |limit: &str| match limit {
        "maxStorageBufferBindingSize" => available.max_storage_buffer_binding_size,
        "maxBufferSize" => available.max_buffer_size,
        "maxComputeWorkgroupStorageSize" => u64::from(available.max_compute_workgroup_storage_size),
        "maxStorageBuffersPerShaderStage" => {
            u64::from(available.max_storage_buffers_per_shader_stage)
        }
        "maxComputeWorkgroupsPerDimension" => {
            u64::from(available.max_compute_workgroups_per_dimension)
        }
        "maxComputeInvocationsPerWorkgroup" => {
            u64::from(available.max_compute_invocations_per_workgroup)
        }
        // a limit that is not known is none that can be granted
        _ => 0,
    };
    let mut limits = wgpu::Limits::default();
    for (limit, value) in raised(needed, offered)? {
        let count = value as u32;
        match limit {
            "maxStorageBufferBindingSize" => limits.max_storage_buffer_binding_size = value,
            "maxBufferSize" => limits.max_buffer_size = value,
            "maxComputeWorkgroupStorageSize" => limits.max_compute_workgroup_storage_size = count,
            "maxStorageBuffersPerShaderStage" => {
                limits.max_storage_buffers_per_shader_stage = count;
            }
            "maxComputeWorkgroupsPerDimension" => {
                limits.max_compute_workgroups_per_dimension = count;
            }
            _ => limits.max_compute_invocations_per_workgroup = count,
        }
    }
    Ok(limits)
}
