//! The one conversion of an [`Error`] to JavaScript.

use js_sys::Reflect;
use wasm_bindgen::JsValue;

use crate::Error;

/// A JavaScript `Error` whose `code` is stable; the message is for people.
pub(super) fn to_js(error: &Error) -> JsValue {
    let js = js_sys::Error::new(&error.sentence());
    // Setting a property of a fresh Error cannot fail.
    let _ = Reflect::set(
        &js,
        &JsValue::from_str("code"),
        &JsValue::from_str(error.code()),
    );
    js.into()
}
