//! The only exports to JavaScript. One [`Session`] is a model on an engine; it lives in a dedicated worker.

// wasm-bindgen wants its exports public, in a module that no Rust code is to use.
#![allow(unreachable_pub)]

#[cfg(feature = "plan")]
mod ahead;
mod engine;
mod error;
mod fetch_folder;
mod observer;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use js_sys::{Function, JSON, Object, Promise, Reflect, Uint8Array, Uint8ClampedArray};
use serde::Deserialize;
use serde_json::json;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use crate::{
    Error, Result,
    pipeline::{self, GenerateOptions, Generated, StableDiffusionPipeline, stages::Stages},
    schedulers::SchedulerKind,
    tokenizer::{ClipTokenizer, Encoding},
};
use engine::{LoadOptions, ModuleStages};
use error::to_js;
use fetch_folder::FetchFolder;
use observer::JsObserver;

/// Calls `listener` with a panic's message. After a panic this module must not be called again: end the worker.
#[wasm_bindgen]
pub fn set_panic_listener(listener: Function) {
    // The hook must be Send and Sync; this module is never shared between threads, so the listener stays in a thread-local.
    thread_local!(static LISTENER: Cell<Option<Function>> = const { Cell::new(None) });
    LISTENER.set(Some(listener));
    std::panic::set_hook(Box::new(|info| {
        console_error_panic_hook::hook(info);
        if let Some(listener) = LISTENER.take() {
            // Nothing can be done about a listener that throws while the engine goes down.
            let _ = listener.call1(&JsValue::NULL, &JsValue::from_str(&info.to_string()));
        }
    }));
}

/// What [`Session::generate`] is given.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsGenerateOptions {
    prompt: String,
    negative_prompt: String,
    seed: f64,
    steps: f64,
    guidance_scale: f32,
    width: f64,
    height: f64,
    scheduler: Option<String>,
    keep_latents: bool,
}

impl JsGenerateOptions {
    fn to_strict(&self) -> Result<GenerateOptions> {
        Ok(GenerateOptions {
            prompt: self.prompt.clone(),
            negative_prompt: self.negative_prompt.clone(),
            seed: whole("seed", self.seed)?,
            num_inference_steps: whole("steps", self.steps)? as usize,
            guidance_scale: self.guidance_scale,
            width: whole("width", self.width)? as usize,
            height: whole("height", self.height)? as usize,
            scheduler: self
                .scheduler
                .as_deref()
                .map(str::parse::<SchedulerKind>)
                .transpose()?,
        })
    }
}

/// A JavaScript number that must be a whole one from 0 to 2^32 - 1.
fn whole(name: &str, value: f64) -> Result<u32> {
    if value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        Ok(value as u32)
    } else {
        Err(Error::invalid(
            name,
            format!(
                "must be a whole number from 0 to {}, and is {value}",
                u32::MAX
            ),
        ))
    }
}

fn parse_options<T: for<'de> Deserialize<'de>>(options: &JsValue) -> Result<T> {
    let text = JSON::stringify(options)
        .ok()
        .and_then(|text| text.as_string())
        .unwrap_or_default();
    serde_json::from_str(&text)
        .map_err(|e| Error::invalid("options", format!("cannot be used: {e}")))
}

fn to_object(value: &serde_json::Value) -> JsValue {
    JSON::parse(&value.to_string()).unwrap_or(JsValue::NULL)
}

fn set(object: &Object, key: &str, value: &JsValue) {
    // Setting a property of a plain object of ours cannot fail.
    let _ = Reflect::set(object, &JsValue::from_str(key), value);
}

fn tokens_json(encoding: &Encoding) -> serde_json::Value {
    json!({ "count": encoding.token_count, "limit": encoding.limit, "truncatedText": encoding.truncated_text })
}

/// A loaded model on an engine.
#[wasm_bindgen]
pub struct Session {
    /// Away while a picture is drawn.
    pipeline: Rc<RefCell<Option<Pipeline>>>,
    tokenizer: Rc<ClipTokenizer>,
    info: serde_json::Value,
    adapter: Option<String>,
    cancelled: Rc<Cell<bool>>,
}

type Pipeline = StableDiffusionPipeline<ModuleStages>;

#[wasm_bindgen]
impl Session {
    /// Makes the engine and loads a model: `{model, engine, ...}`. `on_event` hears of the download.
    ///
    /// # Errors
    /// An `Error` with a stable `code`.
    pub async fn load(options: JsValue, on_event: Function) -> Result<Session, JsValue> {
        Self::load_strict(&options, on_event)
            .await
            .map_err(|error| to_js(&error))
    }

    /// What the page shows about the model and the engine.
    #[wasm_bindgen(getter)]
    #[must_use]
    pub fn info(&self) -> JsValue {
        to_object(&self.info)
    }

    /// `{count, limit, truncatedText}` of a prompt.
    #[must_use]
    pub fn count_tokens(&self, text: &str) -> JsValue {
        to_object(&tokens_json(&self.tokenizer.encode(text)))
    }

    /// Draws a picture; a promise of `{width, height, rgba, png, seed, tokens, latents, report}`. One at a time.
    pub fn generate(&self, options: JsValue, on_event: Function) -> Promise {
        let place = Rc::clone(&self.pipeline);
        let cancelled = Rc::clone(&self.cancelled);
        cancelled.set(false);
        let adapter = self.adapter.clone();
        future_to_promise(async move {
            let busy = || Error::invalid("session", "must draw one picture at a time");
            let taken = place.borrow_mut().take();
            let mut pipeline = taken.ok_or_else(|| to_js(&busy()))?;
            let observer = JsObserver::new(on_event, cancelled);
            let result = draw(&mut pipeline, &options, observer, adapter).await;
            place.replace(Some(pipeline));
            result.map_err(|error| to_js(&error))
        })
    }

    /// Ends the running [`Self::generate`] within one step, with the code `cancelled`.
    pub fn cancel(&self) {
        self.cancelled.set(true);
    }
}

impl Session {
    async fn load_strict(options: &JsValue, on_event: Function) -> Result<Self> {
        let options: LoadOptions = parse_options(options)?;
        let folder = FetchFolder::new(&options.model)?;
        let (engine, adapter) = engine::open(&options).await?;
        let cancelled = Rc::new(Cell::new(false));
        let mut observer = JsObserver::new(on_event, Rc::clone(&cancelled));
        let pipeline = pipeline::load(engine, folder, &mut observer).await?;
        let size = pipeline.default_size();
        let info = json!({
            "name": pipeline.name(),
            "engine": pipeline.stages().engine(),
            "adapter": adapter,
            "defaultWidth": size,
            "defaultHeight": size,
            "defaultGuidanceScale": pipeline.default_guidance_scale(),
            "sizeMultiple": pipeline.size_multiple(),
            "scheduler": pipeline.default_scheduler().map(SchedulerKind::as_str),
            "schedulers": SchedulerKind::ALL.map(SchedulerKind::as_str),
            "weightBytes": pipeline.stages().weight_bytes(),
            "tuning": tuning(&pipeline, adapter.as_deref()),
        });
        Ok(Self {
            tokenizer: Rc::clone(pipeline.tokenizer()),
            pipeline: Rc::new(RefCell::new(Some(pipeline))),
            info,
            adapter,
            cancelled,
        })
    }
}

/// What a later load can be given instead of measuring again.
fn tuning(pipeline: &Pipeline, adapter: Option<&str>) -> Option<serde_json::Value> {
    let text = pipeline.stages().tuning()?;
    Some(json!({ "adapter": adapter?, "text": text }))
}

async fn draw(
    pipeline: &mut Pipeline,
    options: &JsValue,
    mut observer: JsObserver,
    adapter: Option<String>,
) -> Result<JsValue> {
    let options: JsGenerateOptions = parse_options(options)?;
    let strict = options.to_strict()?;
    let generated = pipeline.generate(&strict, &mut observer).await?;
    let png = generated.image.to_png(&generated.parameters)?;
    let stages = pipeline.stages();
    let promised = stages.memory_plan().zip(stages.residency());
    let report = json!({
        "engine": stages.engine(),
        "adapter": adapter,
        "model": pipeline.name(),
        "tokens": tokens_json(&generated.prompt_encoding),
        "weightBytes": stages.weight_bytes(),
        "plan": stages.memory_plan(),
        "tuning": tuning(pipeline, adapter.as_deref()),
        "residency": stages.residency(),
        "plannedBytesPeak": promised.map(|(plan, residency)| plan.peak(residency).peak_bytes),
    });
    Ok(result_object(
        &generated,
        &png,
        strict.seed,
        options.keep_latents,
        &report,
    ))
}

fn result_object(
    generated: &Generated,
    png: &[u8],
    seed: u32,
    keep_latents: bool,
    report: &serde_json::Value,
) -> JsValue {
    let object = Object::new();
    let image = &generated.image;
    set(&object, "width", &JsValue::from(image.width as u32));
    set(&object, "height", &JsValue::from(image.height as u32));
    set(
        &object,
        "rgba",
        &Uint8ClampedArray::from(image.rgba.as_slice()),
    );
    set(&object, "png", &Uint8Array::from(png));
    set(&object, "seed", &JsValue::from(seed));
    set(
        &object,
        "tokens",
        &to_object(&tokens_json(&generated.prompt_encoding)),
    );
    let latents = if keep_latents {
        js_sys::Float32Array::from(generated.latents.as_slice()).into()
    } else {
        JsValue::NULL
    };
    set(&object, "latents", &latents);
    set(
        &object,
        "parameters",
        &JsValue::from_str(&generated.parameters),
    );
    set(&object, "report", &to_object(report));
    object.into()
}
