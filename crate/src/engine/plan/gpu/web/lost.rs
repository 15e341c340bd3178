//! The end of a device. A browser may leave promises of a lost device open, so nothing waits for a promise alone.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use js_sys::Promise;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;

/// Wakes tasks when something happens that several may wait for.
#[derive(Debug, Default)]
pub(super) struct Wakers(RefCell<Vec<Waker>>);

impl Wakers {
    pub(super) fn add(&self, waker: &Waker) {
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn remove(&self, waker: &Waker) {
        self.0.borrow_mut().retain(|known| !known.will_wake(waker));
    }

    pub(super) fn wake(&self) {
        let wakers = self.0.take();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Whether a device is gone, and who wants to know.
#[derive(Debug, Default)]
pub(super) struct Lost {
    is_lost: Cell<bool>,
    wakers: Wakers,
}

impl Lost {
    pub(super) fn tell(&self) {
        self.is_lost.set(true);
        self.wakers.wake();
    }

    /// Whether it is gone; if not, the task is woken when it goes.
    pub(super) fn poll(&self, waker: &Waker) -> bool {
        if !self.is_lost.get() {
            self.wakers.add(waker);
        }
        self.is_lost.get()
    }
}

/// A promise that is given up when the device is gone.
#[derive(Debug)]
pub(in crate::engine::plan::gpu) struct UnlessLost {
    /// It handles a rejection whether or not anybody waits.
    promise: JsFuture,
    lost: Rc<Lost>,
    waker: Option<Waker>,
}

impl UnlessLost {
    pub(super) fn new(promise: Promise, lost: &Rc<Lost>) -> Self {
        Self {
            promise: JsFuture::from(promise),
            lost: Rc::clone(lost),
            waker: None,
        }
    }
}

impl Future for UnlessLost {
    type Output = Result<JsValue, JsValue>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(settled) = Pin::new(&mut self.promise).poll(context) {
            return Poll::Ready(settled);
        }
        if self.lost.poll(context.waker()) {
            return Poll::Ready(Err(js_sys::Error::new("the device was lost").into()));
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for UnlessLost {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            self.lost.wakers.remove(waker);
        }
    }
}
