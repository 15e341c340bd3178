/**
 * One row on one engine, in a realm of its own: its GPU buffers are counted apart from all others', and go when the worker is ended.
 * Messages in: {id, call, arguments}; out: {id, result} or {id, error}.
 */
import { countGpuBytes, gpuBytes, usedAdapterInfo } from '/www/gpu-bytes.js';
import { makeOnnxSubject } from './onnx.mjs';

let failure = null;
countGpuBytes((code, message) => {
  failure = `${code}: ${message}`;
});

async function read(path, as) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: status ${response.status}`);
  return response[as]();
}

/** An engine of this project: `plan` or `burn-wgpu`, each a wasm module of its own. */
async function makeWasmSubject(engine, row) {
  const module = await import(`/${engine}/latent_canvas_bench.js`);
  await module.default();
  const config = row.folder ? await read(`/${row.folder}/config.json`, 'text') : '';
  const path = row.folder ? `/${row.folder}/${row.weightsFile}` : `/data/${row.name}.safetensors`;
  const weights = row.folder || row.madeWeights ? new Uint8Array(await read(path, 'arrayBuffer')) : new Uint8Array();
  return module.Bench.create(engine, row.name, config, weights);
}

let subject;

const calls = {
  async create(engine, row) {
    subject = engine === 'onnxruntime-web' ? await makeOnnxSubject(row, read) : await makeWasmSubject(engine, row);
  },
  begin: () => subject.begin(),
  /** @returns {Promise<Float32Array>} the result, channels last */
  run: (times) => subject.run(times),
  /** @returns {Promise<object[]>} the kernel calls with their times, of the plan engine alone */
  calls: async () => JSON.parse((await subject.calls?.()) ?? '[]'),
  figures() {
    const { vendor, architecture, device, description } = usedAdapterInfo() ?? {};
    return { peakBytes: gpuBytes().peak, adapter: [vendor, architecture, device, description].filter(Boolean).join(' ') };
  },
};

self.onmessage = async ({ data: { id, call, arguments: list } }) => {
  try {
    const result = await calls[call](...list);
    if (failure) throw new Error(failure);
    self.postMessage({ id, result });
  } catch (error) {
    self.postMessage({ id, error: String(error?.message ?? error).slice(0, 600) });
  }
};
