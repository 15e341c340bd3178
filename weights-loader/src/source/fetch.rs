//! A file on a web server, through the browser's `fetch`; works in a window and in a worker.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::http::{RangeCut, Reply, range_header};
use super::{ByteSource, ChunkSink, range_buffer};
use crate::LoadError;

/// How long a transfer may deliver nothing before it is given up.
pub const STALL_MS: u32 = 30_000;

// `fetch` and the timers are globals of both scopes; web-sys has them only as methods of one or the other.
#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_name = fetch)]
    fn global_fetch(request: &web_sys::Request) -> js_sys::Promise;
    #[wasm_bindgen(js_name = setInterval)]
    fn set_interval(callback: &js_sys::Function, ms: u32) -> JsValue;
    #[wasm_bindgen(js_name = clearInterval)]
    fn clear_interval(id: &JsValue);
}

/// A file behind a URL. No cookies and no referrer are sent.
#[derive(Debug, Clone)]
pub struct FetchSource {
    url: String,
    stall_ms: u32,
    known_length: Cell<Option<u64>>,
}

impl FetchSource {
    /// `url` is absolute, or relative to the page or worker script. Nothing is fetched yet.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            stall_ms: STALL_MS,
            known_length: Cell::new(None),
        }
    }

    /// Gives up after so many milliseconds without a byte, instead of [`STALL_MS`].
    #[must_use]
    pub fn with_stall_ms(mut self, stall_ms: u32) -> Self {
        self.stall_ms = stall_ms;
        self
    }

    /// Sends the request; with a range, its one `Range` header needs no preflight (Fetch standard, 2.2.2).
    async fn open(&self, range: Option<&Range<u64>>) -> Result<Transfer, LoadError> {
        let abort =
            AbortOnDrop(web_sys::AbortController::new().map_err(|e| network(&self.url, &e))?);
        let init = web_sys::RequestInit::new();
        init.set_credentials(web_sys::RequestCredentials::Omit);
        init.set_referrer_policy(web_sys::ReferrerPolicy::NoReferrer);
        init.set_signal(Some(&abort.0.signal()));
        if let Some(range) = range {
            // browsers disagree on storing parts, and some answer a part from a whole that has changed since
            init.set_cache(web_sys::RequestCache::NoStore);
            let headers = web_sys::Headers::new().map_err(|e| network(&self.url, &e))?;
            headers
                .set("Range", &range_header(range))
                .map_err(|e| network(&self.url, &e))?;
            init.set_headers_headers(&headers);
        }
        let request = web_sys::Request::new_with_str_and_init(&self.url, &init)
            .map_err(|e| network(&self.url, &e))?;
        let stall = StallTimer::new(abort.0.clone(), self.stall_ms);
        let response: web_sys::Response = stall
            .watch(&self.url, global_fetch(&request))
            .await?
            .dyn_into()
            .map_err(|e| network(&self.url, &e))?;
        let reply = reply_of(&response);
        Ok(Transfer {
            url: self.url.clone(),
            response,
            reply,
            stall,
            _abort: abort,
        })
    }
}

impl ByteSource for FetchSource {
    fn name(&self) -> &str {
        &self.url
    }

    fn known_length(&self) -> Option<u64> {
        self.known_length.get()
    }

    /// Asks for the first byte alone if no reply has told the length before.
    async fn length(&self) -> Result<Option<u64>, LoadError> {
        if let Some(length) = self.known_length.get() {
            return Ok(Some(length));
        }
        let transfer = self.open(Some(&(0..1))).await?;
        let length = match transfer.reply.status {
            200 => transfer.reply.body_length(),
            206 => transfer.reply.range_total(),
            // the first byte of an empty file cannot be had
            416 if transfer.reply.range_total() == Some(0) => Some(0),
            status => {
                return Err(LoadError::Http {
                    url: self.url.clone(),
                    status,
                });
            }
        };
        self.known_length.set(length);
        Ok(length)
    }

    async fn stream(&self, sink: &mut ChunkSink<'_>) -> Result<u64, LoadError> {
        let transfer = self.open(None).await?;
        transfer.reply.check_whole(&self.url)?;
        self.known_length.set(transfer.reply.body_length());
        let mut delivered = 0u64;
        transfer
            .for_each_chunk(&mut |chunk| {
                delivered += chunk.len() as u64;
                sink(chunk).map(|()| true)
            })
            .await?;
        transfer.reply.check_body(&self.url, delivered)?;
        Ok(delivered)
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, LoadError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let transfer = self.open(Some(&range)).await?;
        let mut cut: RangeCut = transfer.reply.cut(&self.url, &range)?;
        let mut out = range_buffer(&self.url, &range)?;
        transfer
            .for_each_chunk(&mut |chunk| cut.push(&self.url, chunk, &mut out))
            .await?;
        cut.finish(&self.url, &range)?;
        Ok(out)
    }
}

/// A reply whose body has not been read yet. Dropping it cancels the transfer.
struct Transfer {
    url: String,
    response: web_sys::Response,
    reply: Reply,
    stall: StallTimer,
    _abort: AbortOnDrop,
}

impl Transfer {
    /// Hands every chunk to `take` until the body ends, `take` fails, or it answers that it has enough.
    async fn for_each_chunk(
        &self,
        take: &mut dyn FnMut(&[u8]) -> Result<bool, LoadError>,
    ) -> Result<(), LoadError> {
        let Some(body) = self.response.body() else {
            return Ok(());
        };
        let reader: web_sys::ReadableStreamDefaultReader = body
            .get_reader()
            .dyn_into()
            .map_err(|e| network(&self.url, &e))?;
        // One buffer for the whole transfer. No view of it is ever held in JavaScript: the next allocation may move
        // wasm memory, and such a view would be empty from then on.
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let result: web_sys::ReadableStreamReadResult = self
                .stall
                .watch(&self.url, reader.read())
                .await?
                .unchecked_into();
            if result.get_done().unwrap_or(false) {
                return Ok(());
            }
            let chunk: js_sys::Uint8Array = result
                .get_value()
                .dyn_into()
                .map_err(|e| network(&self.url, &e))?;
            buffer.resize(chunk.length() as usize, 0);
            chunk.copy_to(&mut buffer);
            if !take(&buffer)? {
                return Ok(());
            }
        }
    }
}

/// Aborts the request when the transfer is dropped, whatever the reason; after its end that does nothing.
struct AbortOnDrop(web_sys::AbortController);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Aborts a request that delivers nothing for too long.
struct StallTimer {
    stall_ms: u32,
    /// Half periods that have passed since the current wait began. Two end it. One timer of the full period would also
    /// strike when the thread itself was busy for so long while the bytes lay ready.
    strikes: Rc<Cell<u32>>,
    callback: Closure<dyn FnMut()>,
}

impl StallTimer {
    fn new(abort: web_sys::AbortController, stall_ms: u32) -> Self {
        let strikes = Rc::new(Cell::new(0));
        let counted = strikes.clone();
        let callback = Closure::new(move || {
            counted.set(counted.get() + 1);
            if counted.get() == 2 {
                abort.abort();
            }
        });
        Self {
            stall_ms,
            strikes,
            callback,
        }
    }

    /// Waits for `promise`; an abort makes it fail, and the strikes tell whether this timer was the reason.
    async fn watch(&self, url: &str, promise: js_sys::Promise) -> Result<JsValue, LoadError> {
        self.strikes.set(0);
        let _running = Interval(set_interval(
            self.callback.as_ref().unchecked_ref(),
            self.stall_ms.div_ceil(2),
        ));
        JsFuture::from(promise).await.map_err(|e| {
            if self.strikes.get() >= 2 {
                let why = format!("no data came for {} ms", self.stall_ms);
                LoadError::Network {
                    url: url.to_owned(),
                    why,
                }
            } else {
                network(url, &e)
            }
        })
    }
}

/// Ends the timer when a wait is over, or when its future is dropped.
struct Interval(JsValue);

impl Drop for Interval {
    fn drop(&mut self) {
        clear_interval(&self.0);
    }
}

fn reply_of(response: &web_sys::Response) -> Reply {
    let headers = response.headers();
    let header = |name: &str| headers.get(name).ok().flatten();
    Reply {
        status: response.status(),
        content_length: header("Content-Length"),
        content_encoding: header("Content-Encoding"),
        content_range: header("Content-Range"),
        all_headers_visible: response.type_() == web_sys::ResponseType::Basic,
    }
}

/// What the platform threw, as an error. `fetch` tells neither a refused connection from a CORS refusal nor a lost one.
fn network(url: &str, thrown: &JsValue) -> LoadError {
    let why = thrown
        .dyn_ref::<js_sys::Error>()
        .map(|error| String::from(error.message()))
        .or_else(|| {
            js_sys::Reflect::get(thrown, &"message".into())
                .ok()?
                .as_string()
        })
        .unwrap_or_else(|| format!("{thrown:?}"));
    LoadError::Network {
        url: url.to_owned(),
        why,
    }
}
