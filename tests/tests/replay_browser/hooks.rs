//! A look at the browser's own functions from outside: what the program calls, and what it does when they fail.

use js_sys::{Function, eval};
use wasm_bindgen::{JsCast, JsValue};

/// Runs a script in the worker's global scope.
pub(crate) fn js(script: &str) -> JsValue {
    eval(script).unwrap_or_else(|error| panic!("{script}: {error:?}"))
}

/// The number that a script gives.
pub(crate) fn number(script: &str) -> f64 {
    js(script).as_f64().unwrap_or_else(|| panic!("{script}"))
}

/// A function that is replaced until this is dropped.
pub(crate) struct Hook(Function);

impl Hook {
    /// Replaces `owner.name`, as in `GPUDevice.prototype.createBuffer`. The body has `call(...args)`, which is the browser's function, the
    /// `args` it was given, and `this`.
    pub(crate) fn new(path: &str, body: &str) -> Self {
        let (owner, name) = path.rsplit_once('.').unwrap();
        let script = format!(
            "(() => {{
                const original = {owner}.{name};
                {owner}.{name} = function (...args) {{
                    const call = (...given) => original.apply(this, given);
                    {body}
                }};
                return () => {{ {owner}.{name} = original; }};
            }})()"
        );
        Self(js(&script).unchecked_into())
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.0.call0(&JsValue::NULL).unwrap();
    }
}

/// Counts the bytes of all buffers in `self.counted`, as the browser is asked for them and told to free them.
pub(crate) fn count_buffers() -> [Hook; 2] {
    js("self.counted = { live: 0, peak: 0 }");
    [
        Hook::new(
            "GPUDevice.prototype.createBuffer",
            "counted.live += args[0].size;
             counted.peak = Math.max(counted.peak, counted.live);
             return call(...args);",
        ),
        Hook::new(
            "GPUBuffer.prototype.destroy",
            "if (!this.isCounted) { counted.live -= this.size; this.isCounted = true; }
             return call(...args);",
        ),
    ]
}

/// Counts calls of a function in `self.calls`.
pub(crate) fn count_calls(path: &str) -> Hook {
    js("self.calls ??= {}");
    Hook::new(
        path,
        &format!("calls['{path}'] = (calls['{path}'] ?? 0) + 1; return call(...args);"),
    )
}

/// Calls so far of what [`count_calls`] hooked.
pub(crate) fn calls(path: &str) -> f64 {
    number(&format!("calls['{path}'] ?? 0"))
}

/// Keeps the devices that are made in `self.device`.
pub(crate) fn keep_device() -> Hook {
    Hook::new(
        "GPUAdapter.prototype.requestDevice",
        "return call(...args).then((device) => (self.device = device));",
    )
}
