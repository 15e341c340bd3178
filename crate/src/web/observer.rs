//! Events to JavaScript, and the time each stage took.

use std::{cell::Cell, rc::Rc};

use js_sys::{Date, Function, Promise};
use serde_json::{Map, Value, json};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::to_object;
use crate::observer::{Event, Observer};

/// Between two download events at least this long: the page has nothing from more.
const DOWNLOAD_EVENT_MS: f64 = 100.0;

#[wasm_bindgen]
extern "C" {
    // A worker and a window both have it; web-sys knows two separate ones.
    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(callback: &Function, milliseconds: i32) -> JsValue;
}

/// Calls a JavaScript function at every event.
pub(super) struct JsObserver {
    on_event: Function,
    cancelled: Rc<Cell<bool>>,
    milliseconds: Map<String, Value>,
    stage: Option<(&'static str, f64)>,
    last_download_ms: f64,
}

impl JsObserver {
    pub(super) fn new(on_event: Function, cancelled: Rc<Cell<bool>>) -> Self {
        Self {
            on_event,
            cancelled,
            milliseconds: Map::new(),
            stage: None,
            last_download_ms: 0.0,
        }
    }

    /// Milliseconds per stage, up to now.
    pub(super) fn into_milliseconds(mut self) -> Value {
        self.end_stage();
        Value::Object(self.milliseconds)
    }

    fn end_stage(&mut self) {
        if let Some((name, since)) = self.stage.take() {
            self.milliseconds
                .insert(name.to_owned(), json!(Date::now() - since));
        }
    }

    fn enter(&mut self, name: &'static str) {
        if self.stage.is_none_or(|(current, _)| current != name) {
            self.end_stage();
            self.stage = Some((name, Date::now()));
        }
    }
}

impl Observer for JsObserver {
    fn notify(&mut self, event: Event<'_>) {
        let (name, value) = match event {
            Event::Download {
                received_bytes,
                total_bytes,
            } => {
                let now = Date::now();
                let last = total_bytes == Some(received_bytes);
                if now - self.last_download_ms < DOWNLOAD_EVENT_MS && !last {
                    return;
                }
                self.last_download_ms = now;
                (
                    "download",
                    json!({ "stage": "download", "loaded": received_bytes, "total": total_bytes }),
                )
            }
            Event::Prepare => ("prepare", json!({ "stage": "prepare" })),
            Event::Encode => ("encode", json!({ "stage": "encode" })),
            Event::Denoise { step, steps, .. } => (
                "denoise",
                json!({ "stage": "denoise", "step": step, "steps": steps }),
            ),
            Event::Decode => ("decode", json!({ "stage": "decode" })),
        };
        self.enter(name);
        // A listener that throws does not end the work: the listener is the page's, the work is the user's.
        let _ = self.on_event.call1(&JsValue::NULL, &to_object(&value));
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    async fn breathe(&mut self) {
        // A timer, not a resolved promise: only a new task lets the worker's message handler run.
        let promise = Promise::new(&mut |resolve, _reject| {
            set_timeout(&resolve, 0);
        });
        // The promise above never rejects.
        let _ = JsFuture::from(promise).await;
    }
}
