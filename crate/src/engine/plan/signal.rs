//! A value that a callback brings: the futures of the GPU, natively and in a browser.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    is_closed: bool,
    waker: Option<Waker>,
}

/// Gives the value, or nothing when the callback was dropped without a call.
#[derive(Debug)]
pub(super) struct Signal<T>(Arc<Mutex<State<T>>>);

/// The callback's half.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<Mutex<State<T>>>);

/// Both halves.
pub(super) fn signal<T>() -> (Sender<T>, Signal<T>) {
    let state = Arc::new(Mutex::new(State {
        value: None,
        is_closed: false,
        waker: None,
    }));
    (Sender(Arc::clone(&state)), Signal(state))
}

impl<T> Sender<T> {
    pub(super) fn send(self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).value = Some(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Signal<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return Poll::Ready(state.value.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(signal: &mut Signal<T>) -> Poll<Option<T>> {
        Pin::new(signal).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_value_arrives_once_sent() {
        let (sender, mut signal) = signal();
        assert_eq!(poll(&mut signal), Poll::Pending);
        sender.send(3);
        assert_eq!(poll(&mut signal), Poll::Ready(Some(3)));
    }

    #[test]
    fn a_callback_that_never_comes_does_not_hang() {
        let (sender, mut signal) = signal::<()>();
        drop(sender);
        assert_eq!(poll(&mut signal), Poll::Ready(None));
    }
}
