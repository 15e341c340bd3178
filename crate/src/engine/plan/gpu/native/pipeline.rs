//! Layouts, bind groups and pipelines of wgpu.

use std::{
    future::{Future, ready},
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{BindGroup, Compiled, Device, Layout, at_once};
use crate::{
    engine::plan::gpu::{Pipeline, buffer::Range, fault::Fault},
    kernels::Storage,
};

/// Threads that compile. More of them would only take turns in most drivers.
const MAX_THREADS: usize = 4;

impl Device {
    pub(in crate::engine::plan::gpu) fn layout(&self, label: &str, storages: &[Storage]) -> Layout {
        let entries: Vec<_> = storages
            .iter()
            .chain([&Storage::Step])
            .zip(0..)
            .map(|(storage, binding)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: match storage {
                        Storage::Arena => wgpu::BufferBindingType::Storage { read_only: false },
                        Storage::Weight => wgpu::BufferBindingType::Storage { read_only: true },
                        Storage::Step => wgpu::BufferBindingType::Uniform,
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        self.device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(label),
                entries: &entries,
            })
    }

    pub(in crate::engine::plan::gpu) fn bind_group(
        &self,
        label: &str,
        layout: &Layout,
        ranges: &[Range<'_>],
    ) -> BindGroup {
        let entries: Vec<_> = ranges
            .iter()
            .zip(0..)
            .map(|(range, binding)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: range.buffer,
                    offset: range.offset,
                    size: wgpu::BufferSize::new(range.bytes),
                }),
            })
            .collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(label),
            layout,
            entries: &entries,
        })
    }

    /// Threads without an end of their own would outlive the program's, so nothing compiles before it is waited for.
    pub(in crate::engine::plan::gpu) fn request_pipeline(&self, _pipeline: &Arc<Pipeline>) {}

    /// Compiles what is not compiled yet, on a few threads.
    pub(in crate::engine::plan::gpu) fn compile(
        &self,
        pipelines: &[Arc<Pipeline>],
    ) -> impl Future<Output = ()> {
        let missing = pipelines.iter();
        let missing: Vec<_> = missing.filter(|p| p.compiled.get().is_none()).collect();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..missing.len().min(cores).min(MAX_THREADS) {
                scope.spawn(|| {
                    while let Some(pipeline) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        pipeline.compiled.get_or_init(|| self.compiled(pipeline));
                    }
                });
            }
        });
        ready(())
    }

    pub(in crate::engine::plan::gpu) fn compile_now(
        &self,
        pipeline: &Pipeline,
        _fault: &Fault,
    ) -> Result<Compiled, String> {
        self.compiled(pipeline)
    }

    fn compiled(&self, pipeline: &Pipeline) -> Result<Compiled, String> {
        let label = Some(pipeline.label);
        // scopes belong to a thread
        let (compiled, refused) = self.validated(|| {
            let layout = self
                .device
                .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                    label,
                    bind_group_layouts: &[Some(&pipeline.layout)],
                    immediate_size: 0,
                });
            let module = self
                .device
                .create_shader_module(wgpu::ShaderModuleDescriptor {
                    label,
                    source: wgpu::ShaderSource::Wgsl((&*pipeline.source).into()),
                });
            self.device
                .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label,
                    layout: Some(&layout),
                    module: &module,
                    entry_point: Some(pipeline.entry_point),
                    compilation_options: wgpu::PipelineCompilationOptions::default(),
                    cache: None,
                })
        });
        match at_once(refused) {
            Some(None) => Ok(compiled),
            Some(Some(why)) => Err(why),
            None => Err("wgpu did not say whether it compiles".to_owned()),
        }
    }
}
