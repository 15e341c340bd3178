//! Pipelines, made once for each source, and the bind groups of their launches.

use std::{collections::HashMap, sync::Mutex};

use super::{Gpu, lock};
use crate::kernels::{Launch, Storage};

/// A pipeline and the layout of its only bind group.
#[derive(Debug, Clone)]
pub(in crate::engine::plan) struct Pipeline {
    pub(in crate::engine::plan) pipeline: wgpu::ComputePipeline,
    pub(in crate::engine::plan) layout: wgpu::BindGroupLayout,
}

/// Source, entry point, and how each binding is bound; the uniform of the parameters comes after them.
type PipelineKey = (String, &'static str, Vec<u8>);

/// All pipelines of a device.
pub(super) type Pipelines = Mutex<HashMap<PipelineKey, Pipeline>>;

impl Gpu {
    /// The pipeline of a launch whose operands are stored as `storages`, one for each binding. Mistakes in the source come out of the
    /// error scope that the caller has open.
    pub(in crate::engine::plan) fn pipeline(
        &self,
        launch: &Launch,
        storages: &[Storage],
    ) -> Pipeline {
        let key = (
            launch.source.clone(),
            launch.entry_point,
            storages.iter().map(|&storage| storage as u8).collect(),
        );
        let mut pipelines = lock(&self.pipelines);
        pipelines
            .entry(key)
            .or_insert_with(|| self.create_pipeline(launch, storages))
            .clone()
    }

    /// Pipelines made so far.
    #[must_use]
    pub fn pipelines(&self) -> usize {
        lock(&self.pipelines).len()
    }

    fn create_pipeline(&self, launch: &Launch, storages: &[Storage]) -> Pipeline {
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
        let label = Some(launch.label);
        let layout = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label,
                entries: &entries,
            });
        let pipeline_layout = self
            .device
            .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label,
                source: wgpu::ShaderSource::Wgsl(launch.source.as_str().into()),
            });
        let pipeline = self
            .device
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label,
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(launch.entry_point),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
        Pipeline { pipeline, layout }
    }

    pub(in crate::engine::plan) fn bind_group(
        &self,
        label: &'static str,
        layout: &wgpu::BindGroupLayout,
        resources: Vec<wgpu::BindingResource<'_>>,
    ) -> wgpu::BindGroup {
        let entries: Vec<_> = resources
            .into_iter()
            .zip(0..)
            .map(|(resource, binding)| wgpu::BindGroupEntry { binding, resource })
            .collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(label),
            layout,
            entries: &entries,
        })
    }
}
