/**
 * One worker and the requests that wait for it. Every request settles: by the worker's answer, by its death, or by the
 * watchdog, which ends a worker that has said nothing for too long.
 */
import { cancelled, LatentError } from './errors.js';
import { lifelineName, watchLifeline } from './lifeline.js';
import { startFailure, startWorker } from './worker-start.js';

/**
 * How long a worker may be silent, in milliseconds, by what it is doing. `compute` is long on purpose: one step of a
 * large model on a slow processor is silent for minutes. May be changed by the embedder before the first load.
 */
export const timeouts = {
  start: 30_000,
  download: 60_000,
  compute: 30 * 60_000,
  cancel: 10_000,
  stop: 200,
};

const NETWORK_STAGES = ['engine', 'download'];

export class WorkerLink {
  /** The reason of its death; null while it lives. @type {LatentError|null} */
  failure = null;
  #worker = null;
  #origin = null;
  #pending = new Map();
  #nextId = 1;
  #stage = 'start';
  #ready = false;
  #timer = 0;
  #lifeline = lifelineName();
  #watching = new AbortController();

  /** @param {'cpu'|'webgpu'|'burn'} engine which of the modules the worker loads */
  constructor(engine) {
    try {
      this.#origin = startWorker();
    } catch (error) {
      this.failure = error;
      return;
    }
    this.#worker = this.#origin.worker;
    this.#worker.addEventListener('message', ({ data }) => this.#receive(data));
    this.#worker.addEventListener('messageerror', () => {
      this.#die(new LatentError('worker-failed', 'A message of the worker could not be read. Reload the page.'));
    });
    // Kept by the browser until the worker's script has run.
    this.#worker.postMessage({ type: 'start', engine, lifeline: this.#lifeline });
    this.#worker.addEventListener('error', (event) => {
      event.preventDefault();
      this.#die(this.#ready ? crash(event.message) : startFailure(this.#origin.url, this.#origin.wrapped, event.message));
    });
  }

  /**
   * @param {object} message with a `type` that the worker knows
   * @param {(event: object) => void} [onEvent] hears the progress of this request
   * @returns {{id: number, reply: Promise<any>}} the reply rejects with a LatentError
   */
  request(message, onEvent = () => {}) {
    const id = this.#nextId++;
    const reply = new Promise((resolve, reject) => {
      if (this.failure) {
        reject(this.failure);
        return;
      }
      this.#pending.set(id, { resolve, reject, onEvent });
      if (message.type === 'load' && this.#ready) this.#stage = 'download';
      this.#worker.postMessage({ ...message, id });
      this.#watch();
    });
    return { id, reply };
  }

  /** Asks the worker to end request `id`; if it does not within `timeouts.cancel`, the worker is ended. */
  cancel(id, error) {
    if (this.failure || !this.#pending.has(id)) return;
    this.#worker.postMessage({ type: 'cancel', id });
    setTimeout(() => {
      if (this.#pending.has(id)) this.#die(error);
    }, timeouts.cancel);
  }

  /** Ends the worker: it gets a moment to free the GPU, then it is gone. Whatever still waits rejects with `error`. */
  end(error) {
    this.#die(error, true);
  }

  #receive(data) {
    if (this.failure) return;
    if (data.type === 'event') this.#hear(data);
    else if (data.type === 'ready') this.#becomeReady();
    else if (data.type === 'panic') this.#die(crash(data.message));
    else if (data.type === 'gpu-failed') this.#die(new LatentError(data.code, data.message));
    else if (data.type === 'start-failed') this.#die(new LatentError('worker-failed', data.message));
    else this.#settle(data);
    this.#watch();
  }

  #becomeReady() {
    this.#ready = true;
    watchLifeline(this.#lifeline, this.#watching.signal, () => this.#die(crash('its worker ended without a word')));
    // What was waiting is a load, and that begins with the network.
    this.#stage = 'download';
  }

  #hear({ id, event }) {
    this.#stage = event.stage;
    // Events without an id tell of the engine's own start, for which all requests wait.
    const listeners = id === null ? [...this.#pending.values()] : [this.#pending.get(id)].filter(Boolean);
    for (const { onEvent } of listeners) onEvent(event);
  }

  #settle({ type, id, value, error }) {
    const request = this.#pending.get(id);
    if (!request) return;
    this.#pending.delete(id);
    this.#stage = 'compute';
    if (type === 'done') request.resolve(value);
    else request.reject(error.code === 'cancelled' ? cancelled() : new LatentError(error.code, error.message));
  }

  #watch() {
    clearTimeout(this.#timer);
    if (this.failure || this.#pending.size === 0) return;
    const starting = !this.#ready && this.#stage === 'start';
    const loading = NETWORK_STAGES.includes(this.#stage);
    const limit = starting ? timeouts.start : loading ? timeouts.download : timeouts.compute;
    this.#timer = setTimeout(() => {
      const doing = starting ? 'starting' : loading ? 'downloading' : `the stage "${this.#stage}"`;
      const advice = loading || starting ? 'Check the connection and try again.' : 'Try again with fewer steps or a smaller picture.';
      this.#die(new LatentError('timeout', `The engine gave no sign for ${Math.round(limit / 1000)} s while ${doing}, so it was stopped. ${advice}`));
    }, limit);
  }

  #die(error, gently = false) {
    if (this.failure) return;
    this.failure = error;
    clearTimeout(this.#timer);
    this.#watching.abort();
    const worker = this.#worker;
    if (gently) {
      worker.postMessage({ type: 'stop' });
      setTimeout(() => worker.terminate(), timeouts.stop);
    } else {
      worker.terminate();
    }
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

function crash(detail) {
  const said = detail ? `: ${detail}` : '';
  return new LatentError('panic', `The engine crashed${said}. It is restarted by the next generate(); if that fails too, please report it.`);
}
