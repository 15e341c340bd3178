/**
 * Which engine can run here. WebGPU counts as present only when an adapter was really obtained; a browser may have
 * `navigator.gpu` and still give none. A negative answer is never kept: the next call asks again.
 */
import { LatentError } from './errors.js';

/** A broken graphics process may leave `requestAdapter` unanswered. */
const ADAPTER_TIMEOUT_MS = 10_000;

/** Adapters that compute on the CPU by way of a graphics driver; our own CPU engine is faster there. */
const SOFTWARE_ADAPTER = /swiftshader|llvmpipe|lavapipe|softpipe|basic render/i;

const ASK_FOR_CPU = 'The CPU engine works here: choose engine "cpu".';

/**
 * @typedef {object} Probe
 * @property {boolean} available an adapter was obtained
 * @property {boolean} software the adapter is a software one
 * @property {string|null} adapter its name
 * @property {LatentError|null} error why there is none (`insecure-context` or `no-webgpu`)
 */

function absent(code, message) {
  return { available: false, software: false, adapter: null, error: new LatentError(code, `${message} ${ASK_FOR_CPU}`) };
}

/** @param {GPUAdapterInfo} [info] browsers leave most of it empty */
export function adapterName(info) {
  const words = [info?.vendor, info?.architecture, info?.device, info?.description].filter(Boolean);
  return words.length > 0 ? [...new Set(words)].join(' ') : 'unnamed adapter';
}

function withTimeout(promise, ms) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, ms, null);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** @returns {Promise<Probe>} never rejects */
export async function probeWebGpu() {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu) {
    if (globalThis.isSecureContext === false) {
      return absent('insecure-context', 'WebGPU is only offered to secure pages: open this page by https, or on localhost.');
    }
    return absent('no-webgpu', 'This browser has no WebGPU: use a current Chrome, Edge, Safari or Firefox that has it switched on.');
  }
  let adapter = null;
  let why = '';
  try {
    adapter = await withTimeout(gpu.requestAdapter(), ADAPTER_TIMEOUT_MS);
  } catch (error) {
    why = ` (${error.message})`;
  }
  if (!adapter) {
    return absent('no-webgpu', `The browser has WebGPU but gave no graphics adapter${why}: update the graphics driver or switch on hardware acceleration.`);
  }
  const name = adapterName(adapter.info);
  const software = adapter.info?.isFallbackAdapter === true || adapter.isFallbackAdapter === true || SOFTWARE_ADAPTER.test(name);
  return { available: true, software, adapter: name, error: null };
}

/**
 * @param {'auto'|'cpu'|'webgpu'|'burn'} requested
 * @returns {Promise<{engine: 'cpu'|'webgpu'|'burn', note: string|null}>} `note` says, in a sentence, why `auto` took the CPU
 * @throws {LatentError} `insecure-context` or `no-webgpu`, for `webgpu` and `burn` without an adapter
 */
export async function chooseEngine(requested) {
  if (requested === 'cpu') return { engine: 'cpu', note: null };
  const probe = await probeWebGpu();
  if (requested !== 'auto') {
    if (probe.error) throw probe.error;
    return { engine: requested, note: null };
  }
  if (probe.available && !probe.software) return { engine: 'webgpu', note: null };
  const note = probe.software
    ? `The only graphics adapter here is a software one (${probe.adapter}), so the CPU engine is used.`
    : probe.error.message.replace(ASK_FOR_CPU, 'The CPU engine is used.');
  return { engine: 'cpu', note };
}
