/**
 * A loaded model on one engine, shared by all elements of the page that name the same model, engine and wishes of its plan: one
 * worker, one download, one job at a time.
 */
import { LatentError, cancelled } from './errors.js';
import { savedTuning, saveTuning } from './tuning.js';
import { WorkerLink } from './worker-link.js';

/** After these the worker is of no more use: its device is gone, or its memory is full and does not shrink. */
const ENDS_WORKER = ['device-lost', 'out-of-memory'];

/** @type {Map<string, Engine>} */
const engines = new Map();

export class Engine {
  #key;
  #model;
  #kind;
  #plan;
  #holders = new Set();
  #link = null;
  /** The load in progress or done: { promise, listeners, waiting }; null before the first and after a failure. */
  #load = null;
  #queue = [];
  #running = false;

  /** @private use `Engine.of` */
  constructor(key, { model, kind, plan }) {
    this.#key = key;
    this.#model = model;
    this.#kind = kind;
    this.#plan = plan;
  }

  /**
   * @param {object} what
   * @param {string} what.model absolute URL of the model's folder, with a final slash
   * @param {'cpu'|'webgpu'|'burn'} what.kind
   * @param {Record<string, string>} what.plan wishes, as `checkPlanWishes` returns them
   * @param {object} holder whoever needs it; must be given to `release` once
   */
  static of(what, holder) {
    const key = JSON.stringify([what.kind, what.model, what.plan]);
    let engine = engines.get(key);
    if (!engine) {
      engine = new Engine(key, what);
      engines.set(key, engine);
    }
    engine.#holders.add(holder);
    return engine;
  }

  /** What the model says of itself; null unless it is loaded now. */
  get info() {
    return this.#link && !this.#link.failure ? (this.#load?.info ?? null) : null;
  }

  /** When the last holder leaves, the worker ends and its memory is free. */
  release(holder) {
    this.#holders.delete(holder);
    if (this.#holders.size > 0) return;
    if (engines.get(this.#key) === this) engines.delete(this.#key);
    this.#drop(cancelled());
  }

  /**
   * Loads the model, or joins the load that is in progress.
   *
   * @param {{onEvent: (event: object) => void, signal: AbortSignal}} caller
   * @returns {Promise<object>} the model's info
   */
  load({ onEvent, signal }) {
    if (signal.aborted) return Promise.reject(cancelled());
    if (this.#link?.failure) this.#load = null;
    const load = (this.#load ??= this.#startLoad());
    if (load.info) return Promise.resolve(load.info);
    load.listeners.add(onEvent);
    load.waiting += 1;
    return new Promise((resolve, reject) => {
      const leave = () => {
        load.listeners.delete(onEvent);
        load.waiting -= 1;
        reject(cancelled());
        // The engine cannot interrupt a load; ending the worker does.
        if (load.waiting === 0 && !load.info && this.#load === load) this.#drop(cancelled());
      };
      signal.addEventListener('abort', leave, { once: true });
      const done = () => {
        signal.removeEventListener('abort', leave);
        load.listeners.delete(onEvent);
      };
      load.promise.finally(done).then(resolve, reject);
    });
  }

  /**
   * Waits for its turn, loads the model if need be, and draws one picture.
   *
   * @param {object} options as `checkOptions` returns them
   * @param {{onEvent: (event: object) => void, signal: AbortSignal}} caller
   * @returns {Promise<object>} what the worker answers: pixels, PNG, seed, tokens, report
   */
  async generate(options, caller) {
    await this.load(caller);
    // Cancelled between the answer of the load and this line: an abort that is over fires no event any more.
    if (caller.signal.aborted) throw cancelled();
    return new Promise((resolve, reject) => {
      const job = { options, caller, resolve, reject };
      const leave = () => {
        const place = this.#queue.indexOf(job);
        if (place < 0) return;
        this.#queue.splice(place, 1);
        reject(cancelled());
      };
      caller.signal.addEventListener('abort', leave, { once: true });
      this.#queue.push(job);
      const ahead = this.#queue.length - (this.#running ? 0 : 1);
      if (ahead > 0) caller.onEvent({ stage: 'queue', ahead });
      this.#runNext();
    });
  }

  /** @returns {Promise<{count: number, limit: number, truncatedText: string|null}|null>} null while no model is loaded */
  countTokens(text) {
    if (!this.info) return Promise.resolve(null);
    return this.#link.request({ type: 'count', text }).reply;
  }

  /**
   * What a picture will take, before anything large is downloaded.
   *
   * @param {object} options as `checkPlanOptions` returns them
   * @returns {Promise<object|null>} null with an engine that does not plan
   */
  async planMemory(options) {
    if (this.#kind !== 'webgpu') return null;
    return this.#needLink().request({ type: 'plan', model: this.#model, plan: this.#plan, options }).reply;
  }

  #needLink() {
    if (!this.#link || this.#link.failure) {
      this.#link = new WorkerLink(this.#kind);
      this.#load = null;
    }
    return this.#link;
  }

  #startLoad() {
    const link = this.#needLink();
    const load = { listeners: new Set(), waiting: 0, info: null, promise: null };
    const relay = (event) => {
      for (const listener of load.listeners) listener(event);
    };
    const { reply } = link.request({ type: 'load', model: this.#model, plan: this.#plan, tuning: savedTuning() }, relay);
    load.promise = reply.then(
      (info) => {
        load.info = info;
        saveTuning(info.tuning);
        return info;
      },
      (error) => {
        // A failure is never kept: the next call starts afresh.
        if (this.#load === load) this.#load = null;
        throw error;
      },
    );
    // Every caller hears of a failure through its own promise; this one may be left without any.
    load.promise.catch(() => {});
    return load;
  }

  async #runNext() {
    if (this.#running) return;
    const job = this.#queue.shift();
    if (!job) return;
    this.#running = true;
    try {
      // The worker may have died while this job waited.
      await this.load(job.caller);
      job.resolve(await this.#draw(job));
    } catch (error) {
      if (ENDS_WORKER.includes(error.code)) this.#drop(error);
      job.reject(error);
    } finally {
      this.#running = false;
      this.#runNext();
    }
  }

  #draw({ options, caller: { onEvent, signal } }) {
    if (signal.aborted) return Promise.reject(cancelled());
    const link = this.#link;
    const { id, reply } = link.request({ type: 'generate', options }, onEvent);
    const stop = () => link.cancel(id, cancelled());
    signal.addEventListener('abort', stop, { once: true });
    // Stages that take turns are measured with the first picture.
    const kept = reply.then((picture) => {
      saveTuning(picture.report.tuning);
      return picture;
    });
    return kept.finally(() => signal.removeEventListener('abort', stop));
  }

  #drop(error) {
    this.#load = null;
    const link = this.#link;
    this.#link = null;
    link?.end(error);
  }
}

/**
 * The absolute URL of a model folder.
 *
 * @param {string|null} model attribute value, relative to the document; null for the bundled model
 * @throws {LatentError} `invalid-argument`
 */
export function modelUrl(model) {
  const [text, base] = model ? [model, document.baseURI] : ['./models/emoji/', import.meta.url];
  let url;
  try {
    url = new URL(text, base);
  } catch (cause) {
    throw new LatentError('invalid-argument', `The model "${text}" is not a URL: give the folder that holds model_index.json.`, { cause });
  }
  if (!/^https?:$/.test(url.protocol)) {
    throw new LatentError('invalid-argument', `The model ${url.href} cannot be fetched: give an http or https URL.`);
  }
  // The names of files are put behind the address, and fetch refuses a password in it.
  if (url.search || url.hash || url.username || url.password) {
    throw new LatentError('invalid-argument', `The model ${url.href} is no folder: give its URL without "?", "#" and password.`);
  }
  if (!url.pathname.endsWith('/')) url.pathname += '/';
  return url.href;
}
