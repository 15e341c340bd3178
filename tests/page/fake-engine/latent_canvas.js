/**
 * A test double with the exports of the real engine, served in place of all folders of www/pkg/. It downloads the model's files as
 * the manifest lists them and draws a gradient that depends on the options. The prompt tells it how to misbehave:
 * "panic", "trap", "never", "ends", "slow", "hog" (a step that blocks the worker), "coded <code>".
 */
let panicListener = () => {};

export default async function init({ module_or_path }) {
  const { instance } = await WebAssembly.instantiateStreaming(module_or_path, {});
  return instance.exports;
}

export function set_panic_listener(listener) {
  panicListener = listener;
}

function coded(code, message) {
  return Object.assign(new Error(message), { code });
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

async function fetchBytes(url, onChunk) {
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw coded('network', `${url}: ${error.message}`);
  }
  if (!response.ok) throw coded('http', `${url} answered ${response.status}.`);
  const chunks = [];
  try {
    for await (const chunk of response.body) {
      chunks.push(chunk);
      onChunk(chunk.byteLength);
    }
  } catch (error) {
    throw coded('network', `${url}: ${error.message}`);
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

async function readManifest(model) {
  const bytes = await fetchBytes(`${model}manifest.json`, () => {});
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw coded('config', `${model}manifest.json is not JSON.`);
  }
}

async function download(model, onEvent) {
  const { files } = await readManifest(model);
  const total = files.reduce((sum, { length }) => sum + length, 0);
  let loaded = 0;
  for (const { path, length } of files) {
    const bytes = await fetchBytes(model + path, (count) => {
      loaded += count;
      onEvent({ stage: 'download', loaded, total });
    });
    if (bytes.byteLength !== length) throw coded('truncated', `${path} has ${bytes.byteLength} bytes, not ${length}.`);
  }
  return total;
}

async function openGpu() {
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw coded('no-webgpu', 'No adapter.');
  const device = await adapter.requestDevice();
  return { name: adapter.info.architecture, device, buffers: [device.createBuffer({ size: 4096, usage: GPUBufferUsage.STORAGE })] };
}

/** A plan of 256 bytes for each pixel, and half a megabyte of weights. */
export async function plan_memory({ model, width, height, steps, plan }) {
  const { files } = await readManifest(model);
  const [w, h] = [width ?? 64, height ?? 64];
  const peakBytes = 500_000 + 256 * w * h;
  const fits = plan.budget === undefined || Number(plan.budget) >= peakBytes;
  return {
    name: 'fake',
    width: w,
    height: h,
    calls: steps,
    fits,
    residency: fits ? 'all_stages' : null,
    peakBytes,
    reason: fits ? 'All of it stays.' : `It takes ${peakBytes} bytes, and ${plan.budget} are allowed.`,
    remedy: fits ? '' : 'Choose a smaller width and height.',
    downloadBytes: files.reduce((sum, { length }) => sum + length, 0),
    plan: {},
  };
}

export class Session {
  #plan = {};
  #cancelled = false;
  #gpu = null;
  info;

  static async load({ model, engine, plan, tuning }, onEvent) {
    const session = new Session();
    session.#plan = plan;
    session.#gpu = engine === 'cpu' ? null : await openGpu();
    const weightBytes = await download(model, onEvent);
    onEvent({ stage: 'prepare' });
    if (model.includes('panics')) {
      panicListener('panicked at load');
      await new Promise(() => {});
    }
    session.info = {
      name: 'fake',
      engine: `fake-${engine}`,
      adapter: session.#gpu?.name ?? null,
      defaultWidth: 64,
      defaultHeight: 64,
      defaultGuidanceScale: 2.5,
      sizeMultiple: 8,
      scheduler: 'pndm',
      schedulers: ['pndm', 'ddim', 'euler'],
      weightBytes,
      tuning: session.#gpu && { adapter: 'fake', text: tuning ? `${tuning.text}, known` : 'measured' },
    };
    return session;
  }

  count_tokens(text) {
    const words = text.split(/\s+/).filter(Boolean);
    return { count: words.length, limit: 75, truncatedText: words.length > 75 ? words.slice(75).join(' ') : null };
  }

  async generate(options, onEvent) {
    this.#cancelled = false;
    const { prompt, seed, steps, guidanceScale } = options;
    onEvent({ stage: 'encode' });
    if (prompt.startsWith('coded ')) throw coded(prompt.slice(6), 'As the prompt wished.');
    if (prompt === 'never') await new Promise(() => {});
    if (prompt === 'ends') {
      close(); // a worker that is gone without an error event
      await new Promise(() => {});
    }
    for (let step = 0; step < steps; step++) {
      onEvent({ stage: 'denoise', step, steps });
      await sleep(prompt === 'slow' ? 100 : 0);
      if (prompt === 'hog') this.#block(30_000);
      if (prompt === 'panic' && step === 1) {
        panicListener('panicked at step 1');
        await new Promise(() => {});
      }
      if (prompt === 'trap' && step === 1) throw new WebAssembly.RuntimeError('unreachable');
      if (this.#cancelled) throw coded('cancelled', 'Cancelled.');
    }
    onEvent({ stage: 'denoise', step: steps, steps });
    onEvent({ stage: 'decode' });
    const { width, height } = options;
    if (!(width > 0 && height > 0)) throw coded('invalid-argument', 'The engine wants a size.');
    const rgba = gradient(width, height, seed, guidanceScale);
    return {
      width,
      height,
      rgba,
      png: await encode(rgba, width, height),
      seed,
      tokens: this.count_tokens(prompt),
      latents: options.keepLatents ? new Float32Array((width / 8) * (height / 8) * 4) : null,
      report: { plan: this.#plan, plannedBytesPeak: this.#gpu && 4096 },
    };
  }

  cancel() {
    this.#cancelled = true;
  }

  free() {
    this.#gpu?.buffers.forEach((buffer) => buffer.destroy());
  }

  #block(ms) {
    const end = performance.now() + ms;
    while (performance.now() < end);
  }
}

function gradient(width, height, seed, guidanceScale) {
  const rgba = new Uint8ClampedArray(width * height * 4);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      rgba.set([(255 * x) / width, (255 * y) / height, (seed * 37 + guidanceScale * 11) % 256, 255], (y * width + x) * 4);
    }
  }
  return rgba;
}

async function encode(rgba, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext('2d').putImageData(new ImageData(rgba, width, height), 0, 0);
  return new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
}
