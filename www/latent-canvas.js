/**
 * `<latent-canvas>`: turns a prompt into a picture inside the page. Importing this file defines the element; in Node
 * (server rendering) it imports and does nothing.
 *
 *   <script type="module" src="latent-canvas.js"></script>
 *   <latent-canvas prompt="red apple, flat style" controls></latent-canvas>
 *
 * Attributes, each with a property: model, width, height, steps, guidance-scale, seed, scheduler, prompt,
 * negative-prompt, engine (auto|cpu|webgpu), loading (lazy|eager), alt, controls. Setting one never starts work; with
 * loading="eager" the model is loaded, and a given prompt drawn, when the element is connected.
 * Events, none of which bubbles: `progress` (detail: see progress.js), `image` (detail: the result of generate),
 * `error` (detail: {code, message}; once for each call that fails, also for a cancelled one), `statechange`.
 */
import { adoptProperties, REFLECTED, reflectAttributes } from './attributes.js';
import { Controls } from './controls.js';
import { Engine, modelUrl } from './engine.js';
import { asLatentError, cancelled, LatentError } from './errors.js';
import { chooseEngine } from './gpu-probe.js';
import { checkEngine, checkOptions, checkSignal, checkText } from './options.js';
import { ProgressMeter } from './progress.js';
import { shadowStyle } from './shadow-style.js';
import { timeouts } from './worker-link.js';

export { LatentError };

/** Frameworks take an element out and put it back; only one that stays out this long is gone. */
const REMOVAL_GRACE_MS = 500;

/** What suits the bundled model; any other gets diffusers' default. */
const BUNDLED_GUIDANCE_SCALE = 2.5;
const DEFAULT_GUIDANCE_SCALE = 7.5;

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
  /** The engine this element holds: { engine, key, requested, note } */
  #held = null;
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
    this.#held?.engine.release(this);
    this.#held = null;
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
    const { prompt, negativePrompt, seed, steps, width, height, scheduler } = this;
    const guidanceScale = this.guidanceScale ?? (this.model ? DEFAULT_GUIDANCE_SCALE : BUNDLED_GUIDANCE_SCALE);
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
      const { signal: given, ...overrides } = options ?? {};
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

  /** The engine for the present attributes; the one held before is released when it is another. */
  async #hold(signal) {
    const requested = checkEngine(this.engine);
    const model = modelUrl(this.model);
    const { engine: kind, note } = await chooseEngine(requested);
    // Removed or cancelled meanwhile: nobody would release what is taken now.
    if (signal.aborted) throw cancelled();
    const key = `${kind} ${model}`;
    if (this.#held?.key !== key) {
      const previous = this.#held;
      this.#held = { key, engine: Engine.of(model, kind, this) };
      previous?.engine.release(this);
    }
    Object.assign(this.#held, { requested, note });
    return this.#held;
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
