//! A wgpu device for the burn engine: WebGPU in a browser, the system's graphics API natively.

use burn::tensor::Device;
use burn::tensor::wgpu::{MemoryConfiguration, WgpuSetup, wgpu};

use super::burn::BurnEngine;
use crate::{Error, Result};

#[cfg(target_family = "wasm")]
const BACKENDS: wgpu::Backends = wgpu::Backends::BROWSER_WEBGPU;
#[cfg(not(target_family = "wasm"))]
const BACKENDS: wgpu::Backends = wgpu::Backends::PRIMARY;

/// The engine on a new device, and the adapter's name.
///
/// # Errors
/// [`Error::NoWebGpu`] when no adapter or no device is to be had.
pub async fn request() -> Result<(BurnEngine, String)> {
    let no_webgpu = |why: String| Error::NoWebGpu { why };
    let descriptor = wgpu::InstanceDescriptor {
        backends: BACKENDS,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    };
    let instance = wgpu::Instance::new(descriptor);
    let options = wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..Default::default()
    };
    let adapter = instance
        .request_adapter(&options)
        .await
        .map_err(|e| no_webgpu(format!("The browser has no WebGPU adapter to give ({e}).")))?;
    // cubecl takes the adapter's features for granted, so the device must have every one that cubecl uses.
    let used_by_cubecl = wgpu::Features::SHADER_F16
        | wgpu::Features::SHADER_F64
        | wgpu::Features::SHADER_INT64
        | wgpu::Features::SHADER_FLOAT32_ATOMIC
        | wgpu::Features::SUBGROUP
        | wgpu::Features::TIMESTAMP_QUERY;
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("latent-canvas"),
        required_features: adapter.features() & used_by_cubecl,
        required_limits: adapter.limits(),
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    let (device, queue) = adapter
        .request_device(&descriptor)
        .await
        .map_err(|e| no_webgpu(format!("The browser gave no WebGPU device ({e}).")))?;
    let info = adapter.get_info();
    let name = if info.name.is_empty() {
        info.driver
    } else {
        info.name
    };
    let setup = WgpuSetup {
        backend: info.backend,
        instance,
        adapter,
        device,
        queue,
    };
    let device = Device::wgpu_options()
        .memory_config(MemoryConfiguration::ExclusivePages)
        .setup(setup)
        .init()
        .map_err(|e| no_webgpu(format!("The engine cannot use this GPU ({e}).")))?;
    Ok((BurnEngine::wgpu(device), name))
}
