//! The functions of WebGPU that are called, as the browser has them: names, arguments and flags are those of the specification.
//!
//! web-sys has them too, but only behind a flag of the compiler. Calls that throw where a page can do nothing wrong (no memory to ask
//! with, a mapping that was lost) are caught; others report through error scopes and never throw.

use js_sys::{Array, Function, Object, Promise};
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// Milliseconds since the page or worker began.
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    pub(in crate::engine::plan::gpu) fn now_ms() -> f64;

    pub(super) type JsGlobal;
    #[wasm_bindgen(method, getter, js_name = isSecureContext)]
    pub(super) fn is_secure_context(this: &JsGlobal) -> Option<bool>;
    #[wasm_bindgen(method, getter)]
    pub(super) fn navigator(this: &JsGlobal) -> Option<JsNavigator>;

    pub(super) type JsNavigator;
    #[wasm_bindgen(method, getter)]
    pub(super) fn gpu(this: &JsNavigator) -> Option<JsGpu>;

    pub(super) type JsGpu;
    #[wasm_bindgen(method, catch, js_name = requestAdapter)]
    pub(super) fn request_adapter(this: &JsGpu, options: &Dict) -> Result<Promise, JsValue>;

    pub(super) type JsAdapter;
    #[wasm_bindgen(method, getter)]
    pub(super) fn info(this: &JsAdapter) -> Option<JsAdapterInfo>;
    #[wasm_bindgen(method, getter)]
    pub(super) fn limits(this: &JsAdapter) -> Object;
    #[wasm_bindgen(method, getter)]
    pub(super) fn features(this: &JsAdapter) -> JsFeatures;
    #[wasm_bindgen(method, getter, js_name = isFallbackAdapter)]
    pub(super) fn is_fallback_adapter(this: &JsAdapter) -> Option<bool>;
    #[wasm_bindgen(method, catch, js_name = requestDevice)]
    pub(super) fn request_device(this: &JsAdapter, descriptor: &Dict) -> Result<Promise, JsValue>;

    pub(super) type JsAdapterInfo;
    #[wasm_bindgen(method, getter)]
    pub(super) fn vendor(this: &JsAdapterInfo) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    pub(super) fn architecture(this: &JsAdapterInfo) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    pub(super) fn device(this: &JsAdapterInfo) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    pub(super) fn description(this: &JsAdapterInfo) -> Option<String>;
    #[wasm_bindgen(method, getter, js_name = isFallbackAdapter)]
    pub(super) fn is_fallback_adapter(this: &JsAdapterInfo) -> Option<bool>;

    pub(super) type JsFeatures;
    #[wasm_bindgen(method)]
    pub(super) fn has(this: &JsFeatures, name: &JsValue) -> bool;

    #[derive(Debug)]
    pub(super) type GpuDevice;
    #[wasm_bindgen(method, getter)]
    pub(super) fn queue(this: &GpuDevice) -> GpuQueue;
    #[wasm_bindgen(method, getter)]
    pub(super) fn lost(this: &GpuDevice) -> Promise;
    #[wasm_bindgen(method, setter, js_name = onuncapturederror)]
    pub(super) fn set_on_uncaptured_error(this: &GpuDevice, listener: Option<&JsValue>);
    #[wasm_bindgen(method, js_name = pushErrorScope)]
    pub(super) fn push_error_scope(this: &GpuDevice, filter: &str);
    #[wasm_bindgen(method, js_name = popErrorScope)]
    pub(super) fn pop_error_scope(this: &GpuDevice) -> Promise;
    #[wasm_bindgen(method)]
    pub(super) fn destroy(this: &GpuDevice);
    #[wasm_bindgen(method, catch, js_name = createBuffer)]
    pub(super) fn create_buffer(this: &GpuDevice, descriptor: &Dict) -> Result<Buffer, JsValue>;
    #[wasm_bindgen(method, js_name = createBindGroupLayout)]
    pub(super) fn create_bind_group_layout(this: &GpuDevice, descriptor: &Dict) -> BindGroupLayout;
    #[wasm_bindgen(method, js_name = createBindGroup)]
    pub(super) fn create_bind_group(this: &GpuDevice, descriptor: &Dict) -> BindGroup;
    #[wasm_bindgen(method, js_name = createPipelineLayout)]
    pub(super) fn create_pipeline_layout(this: &GpuDevice, descriptor: &Dict) -> JsValue;
    #[wasm_bindgen(method, js_name = createShaderModule)]
    pub(super) fn create_shader_module(this: &GpuDevice, descriptor: &Dict) -> JsValue;
    #[wasm_bindgen(method, catch, js_name = createComputePipeline)]
    pub(super) fn create_compute_pipeline(
        this: &GpuDevice,
        descriptor: &Dict,
    ) -> Result<ComputePipeline, JsValue>;
    #[wasm_bindgen(method, catch, js_name = createComputePipelineAsync)]
    pub(super) fn create_compute_pipeline_async(
        this: &GpuDevice,
        descriptor: &Dict,
    ) -> Result<Promise, JsValue>;
    #[wasm_bindgen(method, js_name = createQuerySet)]
    pub(super) fn create_query_set(this: &GpuDevice, descriptor: &Dict) -> QuerySet;
    #[wasm_bindgen(method, js_name = createCommandEncoder)]
    pub(super) fn create_command_encoder(this: &GpuDevice, descriptor: &Dict) -> CommandEncoder;

    #[derive(Debug)]
    pub(super) type GpuQueue;
    #[wasm_bindgen(method)]
    pub(super) fn submit(this: &GpuQueue, commands: &Array);
    #[wasm_bindgen(method, js_name = onSubmittedWorkDone)]
    pub(super) fn on_submitted_work_done(this: &GpuQueue) -> Promise;
    #[wasm_bindgen(method, catch, js_name = writeBuffer)]
    pub(super) fn write_buffer(
        this: &GpuQueue,
        buffer: &Buffer,
        offset: f64,
        bytes: &[u8],
    ) -> Result<(), JsValue>;

    #[derive(Debug)]
    pub(in crate::engine::plan::gpu) type Buffer;
    #[wasm_bindgen(method)]
    pub(in crate::engine::plan::gpu) fn destroy(this: &Buffer);
    #[wasm_bindgen(method, js_name = mapAsync)]
    pub(super) fn map_async(this: &Buffer, mode: u32, offset: f64, bytes: f64) -> Promise;
    #[wasm_bindgen(method, catch, js_name = getMappedRange)]
    pub(super) fn get_mapped_range(
        this: &Buffer,
        offset: f64,
        bytes: f64,
    ) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method)]
    pub(super) fn unmap(this: &Buffer);

    #[derive(Debug)]
    pub(in crate::engine::plan::gpu) type BindGroupLayout;
    #[derive(Debug)]
    pub(in crate::engine::plan) type BindGroup;
    #[derive(Debug)]
    pub(in crate::engine::plan::gpu) type ComputePipeline;

    #[derive(Debug)]
    pub(in crate::engine::plan) type QuerySet;
    #[wasm_bindgen(method)]
    pub(in crate::engine::plan) fn destroy(this: &QuerySet);

    #[derive(Debug)]
    pub(super) type CommandEncoder;
    #[wasm_bindgen(method, js_name = beginComputePass)]
    pub(super) fn begin_compute_pass(this: &CommandEncoder, descriptor: &Dict) -> ComputePass;
    #[wasm_bindgen(method, js_name = copyBufferToBuffer)]
    pub(super) fn copy_buffer_to_buffer(
        this: &CommandEncoder,
        source: &Buffer,
        source_offset: f64,
        target: &Buffer,
        target_offset: f64,
        bytes: f64,
    );
    #[wasm_bindgen(method, js_name = resolveQuerySet)]
    pub(super) fn resolve_query_set(
        this: &CommandEncoder,
        queries: &QuerySet,
        first: u32,
        count: u32,
        target: &Buffer,
        offset: f64,
    );
    #[wasm_bindgen(method)]
    pub(super) fn finish(this: &CommandEncoder) -> JsValue;

    pub(super) type ComputePass;
    #[wasm_bindgen(method, js_name = setPipeline)]
    pub(super) fn set_pipeline(this: &ComputePass, pipeline: &ComputePipeline);
    #[wasm_bindgen(method, js_name = setBindGroup)]
    pub(super) fn set_bind_group(this: &ComputePass, index: u32, group: &BindGroup);
    #[wasm_bindgen(method, js_name = dispatchWorkgroups)]
    pub(super) fn dispatch_workgroups(this: &ComputePass, x: u32, y: u32, z: u32);
    #[wasm_bindgen(method)]
    pub(super) fn end(this: &ComputePass);

    pub(super) type JsErrorEvent;
    #[wasm_bindgen(method, getter)]
    pub(super) fn error(this: &JsErrorEvent) -> JsError;

    /// `GPUError`, or what a call threw or a promise rejected with.
    pub(super) type JsError;
    #[wasm_bindgen(method, getter)]
    pub(super) fn message(this: &JsError) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    pub(super) fn constructor(this: &JsError) -> Function;

    pub(super) type JsLost;
    #[wasm_bindgen(method, getter)]
    pub(super) fn reason(this: &JsLost) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    pub(super) fn message(this: &JsLost) -> Option<String>;

    /// Any of WebGPU's dictionaries: a descriptor, or a part of one.
    #[wasm_bindgen(js_name = Object)]
    pub(super) type Dict;
    #[wasm_bindgen(constructor, js_class = "Object")]
    pub(super) fn new() -> Dict;
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_label(this: &Dict, value: &str);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_size(this: &Dict, value: f64);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_offset(this: &Dict, value: f64);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_usage(this: &Dict, value: u32);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_count(this: &Dict, value: u32);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_binding(this: &Dict, value: u32);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_visibility(this: &Dict, value: u32);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_type(this: &Dict, value: &str);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_code(this: &Dict, value: &str);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_buffer(this: &Dict, value: &JsValue);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_resource(this: &Dict, value: &Dict);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_entries(this: &Dict, value: &Array);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_layout(this: &Dict, value: &JsValue);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_module(this: &Dict, value: &JsValue);
    #[wasm_bindgen(method, setter)]
    pub(super) fn set_compute(this: &Dict, value: &Dict);
    #[wasm_bindgen(method, setter, js_name = entryPoint)]
    pub(super) fn set_entry_point(this: &Dict, value: &str);
    #[wasm_bindgen(method, setter, js_name = bindGroupLayouts)]
    pub(super) fn set_bind_group_layouts(this: &Dict, value: &Array);
    #[wasm_bindgen(method, setter, js_name = powerPreference)]
    pub(super) fn set_power_preference(this: &Dict, value: &str);
    #[wasm_bindgen(method, setter, js_name = requiredLimits)]
    pub(super) fn set_required_limits(this: &Dict, value: &Object);
    #[wasm_bindgen(method, setter, js_name = requiredFeatures)]
    pub(super) fn set_required_features(this: &Dict, value: &Array);
    #[wasm_bindgen(method, setter, js_name = querySet)]
    pub(super) fn set_query_set(this: &Dict, value: &QuerySet);
    #[wasm_bindgen(method, setter, js_name = timestampWrites)]
    pub(super) fn set_timestamp_writes(this: &Dict, value: &Dict);
    #[wasm_bindgen(method, setter, js_name = beginningOfPassWriteIndex)]
    pub(super) fn set_beginning_of_pass_write_index(this: &Dict, value: u32);
    #[wasm_bindgen(method, setter, js_name = endOfPassWriteIndex)]
    pub(super) fn set_end_of_pass_write_index(this: &Dict, value: u32);
}
