//! What a picture will take, told before the model is downloaded.

use std::collections::BTreeMap;

use js_sys::Promise;
use serde::Deserialize;
use serde_json::json;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::future_to_promise;

use super::{
    engine::{LIMITS, read_wishes},
    error::to_js,
    fetch_folder::FetchFolder,
    parse_options, to_object, whole,
};
use crate::{
    Result,
    pipeline::{PictureWishes, plan_ahead},
    schedulers::SchedulerKind,
};

/// What [`plan_memory`] is given; what is null is the model's own.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AheadOptions {
    model: String,
    width: Option<f64>,
    height: Option<f64>,
    steps: f64,
    guidance_scale: Option<f32>,
    scheduler: Option<String>,
    #[serde(default)]
    plan: BTreeMap<String, String>,
}

/// The GPU memory of a picture, from the model's small config files alone: a promise of
/// `{name, width, height, calls, fits, residency, peakBytes, reason, remedy, downloadBytes, plan}`. Takes no GPU.
#[wasm_bindgen]
pub fn plan_memory(options: JsValue) -> Promise {
    future_to_promise(async move { plan(&options).await.map_err(|error| to_js(&error)) })
}

async fn plan(options: &JsValue) -> Result<JsValue> {
    let options: AheadOptions = parse_options(options)?;
    let side = |name, value: Option<f64>| value.map(|value| whole(name, value)).transpose();
    let picture = PictureWishes {
        width: side("width", options.width)?.map(|side| side as usize),
        height: side("height", options.height)?.map(|side| side as usize),
        num_inference_steps: whole("steps", options.steps)? as usize,
        guidance_scale: options.guidance_scale,
        scheduler: options
            .scheduler
            .as_deref()
            .map(str::parse::<SchedulerKind>)
            .transpose()?,
    };
    let folder = FetchFolder::new(&options.model)?;
    let ahead = plan_ahead(folder, &picture, &read_wishes(&options.plan)?, &LIMITS).await?;
    Ok(to_object(&json!(ahead)))
}
