/**
 * How a page learns that a worker has ended without a word (the browser may end one to save memory): the worker holds a
 * lock for as long as it lives, and whoever waits for that lock gets it at the worker's end. Web Locks exist on secure
 * pages only; elsewhere, and in frames with an opaque origin, the watchdog alone has to do.
 */

/** @returns {string} a name that no other worker has */
export function lifelineName() {
  return `latent-canvas worker ${Date.now()} ${Math.random()}`;
}

/** In the worker: takes the lock and never gives it back. Resolves when it is held, or cannot be. */
export function holdLifeline(name) {
  return new Promise((resolve) => {
    const held = () => {
      resolve();
      return new Promise(() => {});
    };
    if (!navigator.locks) resolve();
    else navigator.locks.request(name, held).catch(() => resolve());
  });
}

/**
 * In the page, once the worker holds its lock.
 * @param {string} name
 * @param {AbortSignal} signal ends the waiting
 * @param {() => void} ended
 */
export function watchLifeline(name, signal, ended) {
  navigator.locks?.request(name, { signal }, ended).catch(() => {});
}
