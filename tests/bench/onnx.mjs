/** A row on onnxruntime-web's WebGPU execution provider. Inputs and outputs stay on the GPU; the last output alone is read. */

/** `[batch, height, width, channels]` values to `[batch, channels, height, width]`. */
function channelsFirst(values, [batch, height, width, channels]) {
  const out = new Float32Array(values.length);
  const pixels = height * width;
  for (let b = 0; b < batch; b += 1) {
    for (let p = 0; p < pixels; p += 1) {
      for (let c = 0; c < channels; c += 1) out[(b * channels + c) * pixels + p] = values[(b * pixels + p) * channels + c];
    }
  }
  return out;
}

/** The reverse, for `dims` of an image's tensor; values of tokens are channels last already. */
function channelsLast(values, dims) {
  if (dims.length !== 4) return values;
  const [batch, channels, height, width] = dims;
  const out = new Float32Array(values.length);
  const pixels = height * width;
  for (let b = 0; b < batch; b += 1) {
    for (let p = 0; p < pixels; p += 1) {
      for (let c = 0; c < channels; c += 1) out[(b * pixels + p) * channels + c] = values[(b * channels + c) * pixels + p];
    }
  }
  return out;
}

/**
 * @param {object} row as the program `bench --export` describes it
 * @param {(path: string, as: string) => Promise<*>} read
 */
export async function makeOnnxSubject(row, read) {
  const ort = await import('/onnxruntime-web/ort.webgpu.min.mjs');
  ort.env.wasm.wasmPaths = '/onnxruntime-web/';
  // the page is not isolated; only glue runs in wasm
  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = 'error';
  const session = await ort.InferenceSession.create(new Uint8Array(await read(`/data/${row.name}.onnx`, 'arrayBuffer')), {
    executionProviders: ['webgpu'],
    graphOptimizationLevel: 'all',
    preferredOutputLocation: 'gpu-buffer',
  });
  const device = await ort.env.webgpu.device;
  const toGpu = (values, dims) => {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    const buffer = device.createBuffer({ size: Math.ceil(values.byteLength / 16) * 16, usage: STORAGE | COPY_SRC | COPY_DST });
    device.queue.writeBuffer(buffer, 0, values);
    return ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims });
  };

  const all = new Float32Array(await read(`/data/${row.name}.inputs`, 'arrayBuffer'));
  const feeds = {};
  let start = 0;
  for (const { name, shape, image } of row.inputs) {
    const [batch, height, width, channels] = shape;
    const values = all.subarray(start, start + batch * height * width * channels);
    start += values.length;
    if (name === 'timestep_sinusoid') {
      // the exported network makes its own
      feeds.timestep = toGpu(Float32Array.of(row.timestep), [1]);
    } else if (image) {
      feeds[name] = toGpu(channelsFirst(values, shape), [batch, channels, height, width]);
    } else {
      feeds[name] = toGpu(values, [batch, width, channels]);
    }
  }

  return {
    begin: async () => {},
    async run(times) {
      for (let i = 1; i < times; i += 1) (await session.run(feeds)).output.dispose();
      const { output } = await session.run(feeds);
      const values = await output.getData(true);
      return channelsLast(values, output.dims);
    },
  };
}
