/**
 * The dedicated worker: holds the wasm module and one loaded model. The only file that knows the engine's exports.
 *
 * In:  {type: "start", engine, lifeline}, then {type: "load", id, model, plan}, {type: "plan", id, model, plan, options},
 *      {type: "generate", id, options}, {type: "count", id, text}, {type: "cancel", id}, {type: "stop"}.
 * Out: {type: "ready"}, {type: "start-failed", message}, {type: "panic", message}, {type: "event", id, event},
 *      {type: "gpu-failed", code, message}, {type: "done", id, value}, {type: "failed", id, error: {code, message}}.
 */
import { countGpuBytes, destroyDevices, gpuBytes, restartPeak, usedAdapterInfo } from './gpu-bytes.js';
import { adapterName } from './gpu-probe.js';
import { holdLifeline } from './lifeline.js';
import { Stopwatch } from './stopwatch.js';
import { fetchWasm } from './wasm-fetch.js';

/** Download progress arrives with every network packet; the page needs no more than this. */
const PROGRESS_INTERVAL_MS = 100;

countGpuBytes((code, message) => postMessage({ type: 'gpu-failed', code, message }));

let kind = null;
let started = null;
let session = null;
let loadReport = null;
let running = null;
let memory = null;

function startOnce(message) {
  kind = message.engine;
  started = holdLifeline(message.lifeline).then(start);
  started.then(
    () => postMessage({ type: 'ready' }),
    (error) => postMessage({ type: 'start-failed', message: error.message }),
  );
}

/** Each engine is a module of its own: the smallest is a fraction of the largest, and nobody needs two. */
async function start() {
  const folder = new URL(`./pkg/${kind}/`, import.meta.url);
  const glue = new URL('latent_canvas.js', folder);
  let engine;
  try {
    engine = await import(glue.href);
  } catch (cause) {
    throw new Error(`The engine's script ${glue.href} could not be loaded (${cause.message}): the folder pkg/ must lie beside worker.js and be served as JavaScript.`);
  }
  const report = progressSender(null);
  const response = await fetchWasm(new URL('latent_canvas_bg.wasm', folder), report);
  try {
    const exports = await engine.default({ module_or_path: response });
    memory = exports?.memory ?? null;
  } catch (cause) {
    if (/unsafe-eval|content security policy/i.test(cause.message)) {
      throw new Error("The page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to script-src.");
    }
    throw new Error(`The engine could not be started (${cause.message}): use a current browser, and check that pkg/${kind}/latent_canvas_bg.wasm is the file that belongs to this version.`);
  }
  engine.set_panic_listener((message) => postMessage({ type: 'panic', message }));
  return engine;
}

/** Passes events on; of the many download events only some, and always the last. */
function progressSender(id, watch = null) {
  let last = 0;
  return (event) => {
    watch?.enter(event.stage);
    const partial = event.loaded !== undefined && event.loaded !== event.total;
    const now = performance.now();
    if (partial && now - last < PROGRESS_INTERVAL_MS) return;
    last = now;
    postMessage({ type: 'event', id, event });
  };
}

async function load({ id, model, plan, tuning }) {
  const { Session } = await started;
  session?.free();
  session = null;
  const watch = new Stopwatch();
  session = await Session.load({ model, engine: kind, plan, tuning }, progressSender(id, watch));
  loadReport = watch.stop();
  return info();
}

/** What the model says of itself; the adapter by the name that the browser gives it, which the module may not know. */
function info() {
  const told = session.info;
  return { ...told, adapter: told.adapter === null ? null : told.adapter || adapterName(usedAdapterInfo()) };
}

/** What a picture will take; needs no loaded model, and asks for no GPU. */
async function plan({ model, plan: wishes, options }) {
  const { plan_memory: planMemory } = await started;
  return planMemory({ model, plan: wishes, ...options });
}

async function generate({ id, options }) {
  const watch = new Stopwatch();
  running = id;
  restartPeak();
  try {
    const { engine, adapter, defaultWidth, defaultHeight, defaultGuidanceScale } = info();
    const chosen = {
      ...options,
      width: options.width ?? defaultWidth,
      height: options.height ?? defaultHeight,
      guidanceScale: options.guidanceScale ?? defaultGuidanceScale,
    };
    const result = await session.generate(chosen, progressSender(id, watch));
    const { download, prepare, total: load } = loadReport;
    const milliseconds = { load, download: download ?? 0, prepare: prepare ?? 0, ...watch.stop() };
    return {
      width: result.width,
      height: result.height,
      rgba: owned(result.rgba),
      png: owned(result.png),
      seed: result.seed,
      tokens: result.tokens,
      latents: owned(result.latents),
      report: {
        ...result.report,
        engine,
        adapter,
        guidanceScale: chosen.guidanceScale,
        milliseconds,
        gpuBytesPeak: gpuBytes().peak,
        gpuBytesLive: gpuBytes().live,
        wasmMemoryBytes: memory?.buffer.byteLength ?? null,
      },
    };
  } finally {
    running = null;
  }
}

/** A view into wasm memory cannot be handed over and would change under the reader. */
function owned(array) {
  if (!array) return null;
  return array.buffer === memory?.buffer ? array.slice() : array;
}

function needSession() {
  if (!session) throw Object.assign(new Error('No model is loaded.'), { code: 'worker-failed' });
}

const handlers = {
  load,
  plan,
  generate(message) {
    needSession();
    return generate(message);
  },
  count({ text }) {
    needSession();
    return session.count_tokens(text);
  },
};

async function answer(message) {
  try {
    const value = await handlers[message.type](message);
    const transfer = [value.rgba, value.png, value.latents].filter(Boolean).map((array) => array.buffer);
    postMessage({ type: 'done', id: message.id, value }, [...new Set(transfer)]);
  } catch (error) {
    if (typeof error?.code === 'string') {
      postMessage({ type: 'failed', id: message.id, error: { code: error.code, message: error.message } });
    } else {
      // A trap or a bug in the glue: the module's state cannot be trusted any more.
      postMessage({ type: 'panic', message: String(error?.message ?? error) });
    }
  }
}

function stop() {
  session?.cancel();
  destroyDevices();
  close();
}

addEventListener('message', ({ data }) => {
  if (data.type === 'start') startOnce(data);
  else if (data.type === 'stop') stop();
  else if (data.type === 'cancel') {
    if (running === data.id) session.cancel();
  } else {
    // A failed start has its own message.
    started.then(() => answer(data), () => {});
  }
});

addEventListener('unhandledrejection', (event) => {
  event.preventDefault();
  postMessage({ type: 'panic', message: String(event.reason?.message ?? event.reason) });
});
