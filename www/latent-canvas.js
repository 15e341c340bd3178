/**
 * `<latent-canvas>`: turns a prompt into a picture inside the page. Importing this file defines the element; in Node
 * (server rendering) it imports and does nothing.
 *
 *   <script type="module" src="latent-canvas.js"></script>
 *   <latent-canvas prompt="red apple, flat style" controls></latent-canvas>
 *
 * Attributes, each with a property: model, width, height, steps, guidance-scale, seed, scheduler, prompt,
 * negative-prompt, engine (auto|cpu|webgpu|burn), budget, activations (auto|f32|f16), attention (auto|sliced),
 * vae (auto|whole|exact|blended), autotune (auto|on|off), loading (lazy|eager), alt, controls. Setting one never starts work; with
 * loading="eager" the model is loaded, and a given prompt drawn, when the element is connected.
 * Events, none of which bubbles: `progress` (detail: see progress.js), `image` (detail: the result of generate),
 * `error` (detail: {code, message}; once for each call that fails, also for a cancelled one), `statechange`.
 */
import { adoptProperties, REFLECTED, reflectAttributes } from './attributes.js';
import { Controls } from './controls.js';
import { Engine, modelUrl } from './engine.js';
import { asLatentError, cancelled, LatentError } from './errors.js';
import { chooseEngine } from './gpu-probe.js';
import { checkEngine, checkObject, checkOptions, checkPlanOptions, checkPlanWishes, checkSignal, checkText, PLAN_WISHES } from './options.js';
import { ProgressMeter } from './progress.js';
import { shadowStyle } from './shadow-style.js';
import { timeouts } from './worker-link.js';

export { LatentError };

/** Frameworks take an element out and put it back; only one that stays out this long is gone. */
const REMOVAL_GRACE_MS = 500;

const Base = globalThis.HTMLElement ?? class {};

/** @typedef {"idle"|"loading"|"ready"|"generating"|"cancelling"|"error"} State */

export class LatentCanvas extends Base {
  static version = '0.1.0';
  static observedAttributes = [...Object.values(REFLECTED).map(({ attribute }) => attribute), 'controls'];
  /** Milliseconds of silence after which a worker is given up, see worker-link.js. */
  static timeouts = timeouts;

  /** Defines the element once; a second copy of the script on a page leaves the first in charge. */
  static define(tag = 'latent-canvas') {
    if (!globalThis.customElements) return;
    const existing = customElements.get(tag);
    // A registry takes a class only once, so every other name gets one of its own.
    if (!existing) customElements.define(tag, tag === 'latent-canvas' ? this : class extends this {});
    else if (existing.version !== this.version) {
      console.warn(`<${tag}> is already defined with version ${existing.version}; version ${this.version} is not used. Load one of them only.`);
    }
  }

  #internals = this.attachInternals();
  #canvas = document.createElement('canvas');
  #slot = document.createElement('slot');
  #controls = null;
  /** @type {State} */
  #state = 'idle';
  #result = null;
  /** The controllers of the calls in progress. */
  #calls = new Set();
  #generating = false;
  /** The engine this element holds: { engine, requested, note } */
  #held = null;
  /** The engine that was asked for a plan last, held under a name of its own. */
  #asked = null;
  #asker = {};
  /** Aborted when the model is let go of, renewed for the next. */
  #presence = new AbortController();
  #removal = 0;
  #eagerDone = false;

  constructor() {
    super();
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [shadowStyle()];
    this.#canvas.part = 'image';
    this.#canvas.setAttribute('role', 'img');
    this.#canvas.hidden = true;
    root.append(this.#canvas, this.#slot);
    this.#markState(null, 'idle');
  }

  connectedCallback() {
    clearTimeout(this.#removal);
    adoptProperties(this);
    if (this.loading !== 'eager' || this.#eagerDone) return;
    this.#eagerDone = true;
    // Attributes and listeners of the same task still count. A failure is told by the `error` event.
    queueMicrotask(() => (this.prompt === '' ? this.load() : this.generate()).catch(() => {}));
  }

  disconnectedCallback() {
    clearTimeout(this.#removal);
    this.#removal = setTimeout(() => {
      if (!this.isConnected) this.unload();
    }, REMOVAL_GRACE_MS);
  }

  /** Its presence tells the browser that `moveBefore` needs neither of the callbacks above. */
  connectedMoveCallback() {}

  attributeChangedCallback(name) {
    if (name === 'alt') this.#label();
    else if (name === 'controls') this.#showControls();
  }

  /** @returns {State} also as `:state(...)` in CSS */
  get state() {
    return this.#state;
  }

  /** The last picture, as `generate()` resolved it; null before the first. */
  get result() {
    return this.#result;
  }

  /** What the loaded model says of itself; null while none is loaded. */
  get info() {
    return this.#held?.engine.info ?? null;
  }

  /**
   * Downloads and prepares the model. Elements with the same model and engine share one.
   *
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<object>} the model's info: name, engine, adapter, defaultWidth, defaultHeight, schedulers, ...
   * @throws {LatentError}
   */
  load(options) {
    return this.#call(options, 'loading', async (caller) => {
      const held = await this.#hold(caller.signal);
      return held.engine.load(caller);
    });
  }

  /**
   * Tells what a picture will take, before the model is downloaded: only the engine (less than half a megabyte) and the model's small
   * config files are fetched.
   *
   * No event tells of it, and `cancel()` lets it be.
   *
   * @param {object} [options] as of `generate()`; what decides the memory are width, height, steps, guidanceScale, scheduler
   * @returns {Promise<{fits: boolean, residency: string|null, peakBytes: number, reason: string, remedy: string, downloadBytes: number|null,
   *   name: string, width: number, height: number, calls: number, plan: object}|null>} null with an engine that does not plan: cpu, burn
   * @throws {LatentError} not for a picture that does not fit
   */
  async planMemory(options) {
    try {
      adoptProperties(this);
      const { width, height, steps, guidanceScale, scheduler } = this;
      const settings = checkPlanOptions({ width, height, steps, guidanceScale, scheduler, ...checkObject(options ?? {}) });
      const engine = await this.#ask();
      return await engine.planMemory(settings);
    } catch (error) {
      throw asLatentError(error);
    }
  }

  /**
   * Draws one picture.
   *
   * @param {object} [options] in place of the attributes, for this call: prompt, negativePrompt, seed, steps, guidanceScale,
   *   width, height, scheduler; and keepLatents (the result holds the final latents), signal
   * @returns {Promise<{blob: Blob, seed: number, width: number, height: number, tokens: object, latents: Float32Array|null, report: object}>}
   * @throws {LatentError}
   */
  generate(options) {
    return this.#call(options, 'generating', async (caller, overrides) => {
      if (this.#generating) {
        throw new LatentError('busy', 'This element is drawing already: wait for it, or call cancel() first.');
      }
      this.#generating = true;
      try {
        adoptProperties(this);
        const settings = checkOptions({ ...this.#settings(), ...overrides });
        const held = await this.#hold(caller.signal);
        const answer = await held.engine.generate(settings, caller);
        this.#show(answer, settings, held);
      } finally {
        this.#generating = false;
      }
      // Last, so that a listener may ask for the next picture.
      const result = this.#result;
      this.dispatchEvent(new CustomEvent('image', { detail: result }));
      return result;
    });
  }

  /** Ends what is in progress; the promises reject with code `cancelled` within one step. */
  cancel() {
    if (this.#calls.size === 0) return;
    this.#enter('cancelling');
    for (const controller of this.#calls) controller.abort();
  }

  /** Cancels, and lets go of the model; when no other element uses it, its worker and memory are freed. */
  unload() {
    this.cancel();
    this.#presence.abort();
    this.#presence = new AbortController();
    this.#held?.engine.release(this);
    this.#held = null;
    this.#letGoOfAsked();
    if (this.#calls.size === 0) this.#enter('idle');
  }

  /** Tokens without the start and end that the model adds. @returns {Promise<{count: number, limit: number, truncatedText: string|null}|null>} null while no model is loaded */
  async countTokens(text) {
    return this.#held ? this.#held.engine.countTokens(checkText('text', text)) : null;
  }

  /** @returns {Promise<Blob>} the last picture as PNG; its text chunk `parameters` tells how it was made */
  async toBlob() {
    if (!this.#result) throw new LatentError('invalid-argument', 'There is no picture yet: call generate() first.');
    return this.#result.blob;
  }

  /** Saves the last picture as a file. @param {string} [name] */
  async download(name) {
    const blob = await this.toBlob();
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = name ?? `latent-canvas-${this.#result.seed}.png`;
    link.click();
    // The browser reads the address after the click has returned.
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  /** The options that the attributes give. */
  #settings() {
    const { prompt, negativePrompt, seed, steps, guidanceScale, width, height, scheduler } = this;
    return { prompt, negativePrompt, seed, steps, guidanceScale, width, height, scheduler };
  }

  /** Runs one call: state, progress, cancellation, and one `error` event if it fails. */
  async #call(options, state, body) {
    const controller = new AbortController();
    const abort = () => controller.abort();
    let signal = null;
    const meter = new ProgressMeter();
    const onEvent = (event) => {
      if (!controller.signal.aborted) this.#progress(meter.read(event));
    };
    const outer = this.#calls.size > 0;
    this.#calls.add(controller);
    if (!outer) this.#enter(state);
    let failure = null;
    try {
      const { signal: given, ...overrides } = checkObject(options ?? {});
      signal = checkSignal(given);
      signal?.addEventListener('abort', abort, { once: true });
      if (signal?.aborted) abort();
      if (controller.signal.aborted) throw cancelled();
      return await body({ onEvent, signal: controller.signal }, overrides);
    } catch (error) {
      failure = asLatentError(error);
      throw failure;
    } finally {
      this.#calls.delete(controller);
      signal?.removeEventListener('abort', abort);
      if (this.#calls.size === 0) this.#enter(this.#after(failure));
      if (failure) this.#report(failure);
    }
  }

  #after(failure) {
    if (failure && failure.code !== 'cancelled') return 'error';
    return this.info ? 'ready' : 'idle';
  }

  #report(error) {
    this.#controls?.showError(error);
    this.dispatchEvent(new CustomEvent('error', { detail: { code: error.code, message: error.message } }));
  }

  #progress(progress) {
    this.#controls?.showProgress(progress);
    this.dispatchEvent(new CustomEvent('progress', { detail: progress }));
  }

  #enter(state) {
    if (state === this.#state) return;
    const from = this.#state;
    this.#markState(from, state);
    this.#state = state;
    this.#controls?.showState(state);
    this.dispatchEvent(new CustomEvent('statechange', { detail: { from, to: state } }));
  }

  #markState(from, to) {
    try {
      this.#internals.states.delete(from);
      this.#internals.states.add(to);
    } catch {
      // Browsers before `:state()`, and those that want dashes in the name, go without; `state` tells the same.
    }
  }

  /** Holds the engine for the present attributes; the one held before is released when it is another. */
  async #hold(signal) {
    const { what, requested, note } = await this.#choose(signal);
    const engine = Engine.of(what, this);
    if (this.#held?.engine !== engine) this.#held?.engine.release(this);
    if (this.#asked !== engine) this.#letGoOfAsked();
    this.#held = { engine, requested, note };
    return this.#held;
  }

  /** The same for a question, which must not disturb a picture that is being drawn on another engine. */
  async #ask() {
    const { what } = await this.#choose(this.#presence.signal);
    const engine = Engine.of(what, this.#asker);
    if (this.#asked !== engine) this.#letGoOfAsked();
    this.#asked = engine;
    return engine;
  }

  #letGoOfAsked() {
    this.#asked?.release(this.#asker);
    this.#asked = null;
  }

  /** What the present attributes ask for. */
  async #choose(signal) {
    const requested = checkEngine(this.engine);
    const wishes = Object.fromEntries(PLAN_WISHES.map((name) => [name, this[name]]));
    const plan = checkPlanWishes(wishes, requested);
    const model = modelUrl(this.model);
    const { engine: kind, note } = await chooseEngine(requested);
    // Removed or cancelled meanwhile: nobody would release what is taken now.
    if (signal.aborted) throw cancelled();
    const ignored = kind === 'webgpu' ? [] : Object.keys(plan);
    const more = ignored.length > 0 ? ` It does not plan its memory, so this had no effect: ${ignored.join(', ')}.` : '';
    return { what: { model, kind, plan: kind === 'webgpu' ? plan : {} }, requested, note: note && note + more };
  }

  #show({ width, height, rgba, png, seed, tokens, latents, report }, options, { requested, note }) {
    this.#canvas.width = width;
    this.#canvas.height = height;
    this.#canvas.getContext('2d').putImageData(new ImageData(rgba, width, height), 0, 0);
    this.#canvas.hidden = false;
    this.#slot.hidden = true;
    const blob = new Blob([png], { type: 'image/png' });
    const full = { ...report, requestedEngine: requested, engineNote: note };
    this.#result = { blob, seed, width, height, tokens, latents, prompt: options.prompt, report: full };
    this.#label();
  }

  #label() {
    const label = this.alt || (this.#result ? `Image generated from the prompt: ${this.#result.prompt}` : '');
    this.#canvas.setAttribute('aria-label', label);
  }

  #showControls() {
    this.#controls?.root.remove();
    this.#controls = null;
    if (!this.controls) return;
    this.#controls = new Controls({
      onStart: () => this.generate().catch(() => {}),
      onCancel: () => this.cancel(),
    });
    this.#controls.showState(this.#state);
    this.shadowRoot.append(this.#controls.root);
  }
}

reflectAttributes(LatentCanvas.prototype);
LatentCanvas.define();
