//! The exports to the page that measures in Chromium: one [`Bench`] is a row on the engine of this module.

// wasm-bindgen wants its exports public, in a module that no Rust code is to use.
#![allow(unreachable_pub)]

use js_sys::Float32Array;
use latent_canvas::Error;
use wasm_bindgen::prelude::*;

use crate::{rows::row, subject::Subject};

fn to_js(error: &Error) -> JsValue {
    JsValue::from(js_sys::Error::new(&error.to_string()))
}

/// A row on an engine.
#[wasm_bindgen]
pub struct Bench {
    subject: Subject,
}

#[wasm_bindgen]
impl Bench {
    /// `config` is the text of the network's config, `weights` a safetensors file; both empty where the row has none.
    pub async fn create(
        engine: String,
        name: String,
        config: String,
        weights: Vec<u8>,
    ) -> Result<Bench, JsValue> {
        console_error_panic_hook::set_once();
        let make = async {
            let job = row(&name)?.job(&config)?;
            Subject::new(&engine, &job, &weights).await
        };
        let subject = make.await.map_err(|error| to_js(&error))?;
        Ok(Bench { subject })
    }

    /// The adapter's name, as the engine tells it.
    pub fn adapter(&self) -> String {
        self.subject.adapter().to_owned()
    }

    /// What is computed once a picture.
    pub async fn begin(&mut self) -> Result<(), JsValue> {
        self.subject.begin().await.map_err(|error| to_js(&error))
    }

    /// Every kernel call with its time, as JSON; an empty list for an engine that cannot tell.
    pub async fn calls(&mut self) -> Result<String, JsValue> {
        match &mut self.subject {
            #[cfg(feature = "plan")]
            Subject::Plan(subject) => {
                let calls = subject.calls().await.map_err(|error| to_js(&error))?;
                serde_json::to_string(&calls).map_err(|error| JsValue::from_str(&error.to_string()))
            }
            #[cfg(feature = "burn-wgpu")]
            Subject::Burn(_) => Ok("[]".to_owned()),
        }
    }

    /// Does the work `times` times and gives the last result, channels last.
    pub async fn run(&mut self, times: usize) -> Result<Float32Array, JsValue> {
        let values = self.subject.run(times).await;
        let values = values.map_err(|error| to_js(&error))?;
        Ok(Float32Array::from(&values[..]))
    }
}
