//! From the browser to a device: what there is, or why there is none.

use js_sys::{Array, Object, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::{
    binding::{Dict, GpuDevice, JsAdapter, JsGlobal},
    message,
};
use crate::{Error, Result, engine::plan::gpu::limits::raised, kernels::Limits};

/// What an adapter says of itself.
#[derive(Debug)]
pub(in crate::engine::plan::gpu) struct Adapter {
    pub(in crate::engine::plan::gpu) name: String,
    pub(in crate::engine::plan::gpu) is_software: bool,
}

impl Adapter {
    pub(super) fn new(adapter: &JsAdapter) -> Self {
        let info = adapter.info();
        let said = info.as_ref().map(|info| {
            [
                info.vendor(),
                info.architecture(),
                info.device(),
                info.description(),
            ]
        });
        let said = said.into_iter().flatten().flatten();
        let fallback = info.and_then(|info| info.is_fallback_adapter());
        Self {
            name: said
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join(" "),
            is_software: fallback.or(adapter.is_fallback_adapter()).unwrap_or(false),
        }
    }
}

/// The fastest adapter.
pub(super) async fn request() -> Result<JsAdapter> {
    let global: JsGlobal = js_sys::global().unchecked_into();
    let Some(gpu) = global.navigator().and_then(|navigator| navigator.gpu()) else {
        let why = if global.is_secure_context() == Some(true) {
            "This browser has no WebGPU."
        } else {
            "WebGPU is offered to secure pages only: https, or localhost."
        };
        return Err(no_webgpu(why.to_owned()));
    };
    let options = Dict::new();
    options.set_power_preference("high-performance");
    let adapter = settled(gpu.request_adapter(&options)).await;
    let adapter =
        adapter.map_err(|error| no_webgpu(format!("There is no WebGPU adapter ({error}).")))?;
    if adapter.is_null() || adapter.is_undefined() {
        let why = "There is no WebGPU adapter: the graphics card or its driver is not supported, or hardware acceleration is off.";
        return Err(no_webgpu(why.to_owned()));
    }
    Ok(adapter.unchecked_into())
}

/// A device with the limits that are needed, and whether it has timestamps.
pub(super) async fn device(adapter: &JsAdapter, needed: &Limits) -> Result<(GpuDevice, bool)> {
    let limits = adapter.limits();
    let offered = |limit: &str| {
        let value = Reflect::get(&limits, &JsValue::from_str(limit));
        value.ok().and_then(|value| value.as_f64()).unwrap_or(0.0) as u64
    };
    let required_limits = Object::new();
    for (limit, value) in raised(needed, offered)? {
        set(&required_limits, limit, value as f64);
    }
    let timestamps = "timestamp-query";
    let has_timestamps = adapter.features().has(&JsValue::from_str(timestamps));
    let descriptor = Dict::new();
    descriptor.set_label("latent-canvas");
    descriptor.set_required_limits(&required_limits);
    if has_timestamps {
        descriptor.set_required_features(&Array::of1(&JsValue::from_str(timestamps)));
    }
    let device = settled(adapter.request_device(&descriptor)).await;
    let device =
        device.map_err(|error| no_webgpu(format!("The adapter gave no device ({error}).")))?;
    Ok((device.unchecked_into(), has_timestamps))
}

fn no_webgpu(why: String) -> Error {
    Error::NoWebGpu { why }
}

/// The value of a promise, or the message of what it rejects with or the call threw.
async fn settled(promise: Result<Promise, JsValue>) -> Result<JsValue, String> {
    let promise = promise.map_err(|error| message(&error))?;
    let value = JsFuture::from(promise).await;
    value.map_err(|error| message(&error))
}

/// Sets a property whose name is not known before.
fn set(object: &Object, name: &str, value: f64) {
    // a new object takes every property
    let _ = Reflect::set(object, &JsValue::from_str(name), &JsValue::from_f64(value));
}
