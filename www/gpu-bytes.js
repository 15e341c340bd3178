/**
 * Counts the bytes of the GPU buffers of this realm, at `createBuffer` and `destroy`. Imported by the worker before
 * the engine, so that whatever the engine allocates, by whatever library, is seen. A buffer that is only dropped and
 * left to the garbage collector stays counted, as its memory stays used.
 */
const sizes = new WeakMap();
const devices = new Set();
let live = 0;
let peak = 0;
let adapterInfo = null;

function forget(buffer) {
  const size = sizes.get(buffer);
  if (size === undefined) return;
  sizes.delete(buffer);
  live -= size;
}

function wrap(prototype, name, around) {
  const original = prototype[name];
  prototype[name] = function (...args) {
    return around.call(this, original, args);
  };
}

/** Starts counting; does nothing where there is no WebGPU. */
export function countGpuBytes() {
  if (typeof GPUDevice === 'undefined') return;
  wrap(GPUDevice.prototype, 'createBuffer', function (original, args) {
    const buffer = original.apply(this, args);
    sizes.set(buffer, buffer.size);
    live += buffer.size;
    peak = Math.max(peak, live);
    return buffer;
  });
  wrap(GPUBuffer.prototype, 'destroy', function (original, args) {
    forget(this);
    return original.apply(this, args);
  });
  wrap(GPUAdapter.prototype, 'requestDevice', async function (original, args) {
    const device = await original.apply(this, args);
    devices.add(device);
    adapterInfo = this.info;
    device.lost.then(() => devices.delete(device));
    return device;
  });
}

/** @returns {{live: number, peak: number}} bytes now, and the most there ever were */
export function gpuBytes() {
  return { live, peak };
}

/** @returns {GPUAdapterInfo|null} of the adapter that gave the last device */
export function usedAdapterInfo() {
  return adapterInfo;
}

/** Destroys every device of this realm and with it every buffer: the memory is free when this returns. */
export function destroyDevices() {
  for (const device of devices) device.destroy();
  devices.clear();
  live = 0;
}
