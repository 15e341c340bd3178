/**
 * Counts the bytes of the GPU buffers of this realm, at `createBuffer` and `destroy`. Imported by the worker before
 * the engine, so that whatever the engine allocates, by whatever library, is seen. A buffer that is only dropped and
 * left to the garbage collector stays counted, as its memory stays used.
 */
const sizes = new WeakMap();
const devices = new Set();
let live = 0;
let peak = 0;
let onFailure = () => {};
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

/** What a page can do nothing about, in words for people. */
function watch(device) {
  device.lost.then(({ reason, message }) => {
    const ours = !devices.delete(device) || reason === 'destroyed';
    if (!ours) onFailure('device-lost', `The GPU was lost (${message || reason}). Generate again; if it happens every time, choose the CPU engine.`);
  });
  // Without this, work whose buffers could not be made goes on and ends as a black picture.
  device.addEventListener('uncapturederror', ({ error }) => {
    if (error instanceof GPUOutOfMemoryError) {
      onFailure('out-of-memory', 'The GPU has no memory left for this picture. Choose a smaller width and height, close other tabs, or choose the CPU engine.');
    }
  });
}

/**
 * Starts counting; does nothing where there is no WebGPU.
 * @param {(code: string, message: string) => void} failed hears that a device was lost, but not by {@link destroyDevices},
 *   or that it is out of memory: promises that wait for the GPU may then never settle by themselves
 */
export function countGpuBytes(failed) {
  onFailure = failed;
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
    watch(device);
    return device;
  });
}

/** @returns {{live: number, peak: number}} bytes now, and the most there were since {@link restartPeak} */
export function gpuBytes() {
  return { live, peak };
}

/** The most bytes are counted anew from here. */
export function restartPeak() {
  peak = live;
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
