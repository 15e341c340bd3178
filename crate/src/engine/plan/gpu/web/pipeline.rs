//! Layouts, bind groups and pipelines of WebGPU. Pipelines compile in the browser's own threads, several at once, while weights arrive.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    rc::Rc,
    sync::Arc,
    task::Poll,
};

use js_sys::Array;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::spawn_local;

use super::{
    BindGroup, Compiled, Device, Inner, Layout, Refused, binding::Dict, lost::Wakers, message,
};
use crate::{
    engine::plan::gpu::{Pipeline, buffer::Range, fault::Fault},
    kernels::Storage,
};

/// Pipelines that compile at once. A browser has that many threads for it, and keeps the source of each until it is done.
const MAX_COMPILING: usize = 12;

/// What is to be compiled.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    waiting: VecDeque<Arc<Pipeline>>,
    running: usize,
    done: Rc<Wakers>,
}

impl Device {
    pub(in crate::engine::plan::gpu) fn layout(&self, label: &str, storages: &[Storage]) -> Layout {
        const COMPUTE: u32 = 4;
        let entries = Array::new();
        for (storage, binding) in storages.iter().chain([&Storage::Step]).zip(0..) {
            let kind = Dict::new();
            kind.set_type(match storage {
                Storage::Arena => "storage",
                Storage::Weight => "read-only-storage",
                Storage::Step => "uniform",
            });
            let entry = Dict::new();
            entry.set_binding(binding);
            entry.set_visibility(COMPUTE);
            entry.set_buffer(&kind);
            entries.push(&entry);
        }
        let descriptor = Dict::new();
        descriptor.set_label(label);
        descriptor.set_entries(&entries);
        self.0.device.create_bind_group_layout(&descriptor)
    }

    pub(in crate::engine::plan::gpu) fn bind_group(
        &self,
        label: &str,
        layout: &Layout,
        ranges: &[Range<'_>],
    ) -> BindGroup {
        let entries = Array::new();
        for (range, binding) in ranges.iter().zip(0..) {
            let resource = Dict::new();
            resource.set_buffer(range.buffer);
            resource.set_offset(range.offset as f64);
            resource.set_size(range.bytes as f64);
            let entry = Dict::new();
            entry.set_binding(binding);
            entry.set_resource(&resource);
            entries.push(&entry);
        }
        let descriptor = Dict::new();
        descriptor.set_label(label);
        descriptor.set_layout(layout);
        descriptor.set_entries(&entries);
        self.0.device.create_bind_group(&descriptor)
    }

    /// Compiles a pipeline as soon as its turn comes.
    pub(in crate::engine::plan::gpu) fn request_pipeline(&self, pipeline: &Arc<Pipeline>) {
        let mut compiler = self.0.compiler.borrow_mut();
        compiler.waiting.push_back(Arc::clone(pipeline));
        if compiler.running < MAX_COMPILING {
            compiler.running += 1;
            let inner = Rc::clone(&self.0);
            spawn_local(async move { inner.compile_waiting().await });
        }
    }

    /// Waits until pipelines that were requested are compiled, or the device is lost.
    pub(in crate::engine::plan::gpu) fn compile(
        &self,
        pipelines: &[Arc<Pipeline>],
    ) -> impl Future<Output = ()> {
        poll_fn(|context| {
            let is_done = pipelines.iter().all(|p| p.compiled.get().is_some());
            if is_done || self.0.lost.poll(context.waker()) {
                return Poll::Ready(());
            }
            self.0.compiler.borrow().done.add(context.waker());
            Poll::Pending
        })
    }

    /// Compiles without a wait on this side. What is wrong with it is noted later, as a fault.
    pub(in crate::engine::plan::gpu) fn compile_now(
        &self,
        pipeline: &Pipeline,
        fault: &Fault,
    ) -> Result<Compiled, String> {
        let inner = &self.0;
        let (compiled, refused) = inner.guarded(|| {
            let descriptor = inner.descriptor(pipeline);
            inner.device.create_compute_pipeline(&descriptor)
        });
        let (fault, label) = (fault.clone(), pipeline.label);
        spawn_local(async move {
            match refused.first().await {
                Some(Refused::OutOfMemory) => fault.note_out_of_memory(),
                Some(Refused::Call(why)) => fault.note_refused(format!("{label}: {why}")),
                None => {}
            }
        });
        compiled.map_err(|error| message(&error))
    }
}

impl Inner {
    /// One of several tasks that share the work.
    async fn compile_waiting(self: Rc<Self>) {
        loop {
            let next = self.compiler.borrow_mut().waiting.pop_front();
            let Some(pipeline) = next else { break };
            if pipeline.compiled.get().is_none() {
                let compiled = self.compile(&pipeline).await;
                // it may have been compiled without a wait meanwhile, to the same end
                let _ = pipeline.compiled.set(compiled);
            }
            self.done().wake();
        }
        self.compiler.borrow_mut().running -= 1;
    }

    fn done(&self) -> Rc<Wakers> {
        Rc::clone(&self.compiler.borrow().done)
    }

    async fn compile(&self, pipeline: &Pipeline) -> Result<Compiled, String> {
        let (promise, refused) = self.guarded(|| {
            let descriptor = self.descriptor(pipeline);
            self.device.create_compute_pipeline_async(&descriptor)
        });
        let promise = promise.map_err(|error| message(&error))?;
        let compiled = self.until(promise).await;
        // what is wrong with the source is told by the scope; the promise only says that it was of no use
        match refused.first().await {
            Some(Refused::Call(why)) => return Err(why),
            Some(Refused::OutOfMemory) => self.fault.note_out_of_memory(),
            None => {}
        }
        compiled
            .map(JsCast::unchecked_into)
            .map_err(|error| message(&error))
    }

    fn descriptor(&self, pipeline: &Pipeline) -> Dict {
        let layout = Dict::new();
        layout.set_label(pipeline.label);
        layout.set_bind_group_layouts(&Array::of1(&pipeline.layout));
        let module = Dict::new();
        module.set_label(pipeline.label);
        module.set_code(&pipeline.source);
        let module: JsValue = self.device.create_shader_module(&module);
        let compute = Dict::new();
        compute.set_module(&module);
        compute.set_entry_point(pipeline.entry_point);
        let descriptor = Dict::new();
        descriptor.set_label(pipeline.label);
        descriptor.set_layout(&self.device.create_pipeline_layout(&layout));
        descriptor.set_compute(&compute);
        descriptor
    }
}
