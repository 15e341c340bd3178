//! Events to JavaScript, and the pause in which a cancel can arrive.

use std::{cell::Cell, rc::Rc};

use js_sys::{Function, Promise};
use serde_json::json;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::to_object;
use crate::observer::{Event, Observer};

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
}

impl JsObserver {
    pub(super) fn new(on_event: Function, cancelled: Rc<Cell<bool>>) -> Self {
        Self {
            on_event,
            cancelled,
        }
    }
}

impl Observer for JsObserver {
    fn notify(&mut self, event: Event<'_>) {
        let value = match event {
            Event::Download {
                received_bytes,
                total_bytes,
            } => {
                json!({ "stage": "download", "loaded": received_bytes, "total": total_bytes })
            }
            Event::Prepare => json!({ "stage": "prepare" }),
            Event::Encode => json!({ "stage": "encode" }),
            Event::Denoise { step, steps, .. } => {
                json!({ "stage": "denoise", "step": step, "steps": steps })
            }
            Event::Decode => json!({ "stage": "decode" }),
        };
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
