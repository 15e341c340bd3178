/**
 * Keeps what was measured on a GPU: which kernels are fastest there. Where storage is denied it is measured again with every load.
 */
const KEY = 'latent-canvas tuning';

/** @returns {{adapter: string, text: string}|null} what was kept, of whatever adapter */
export function savedTuning() {
  try {
    const { adapter, text } = JSON.parse(localStorage.getItem(KEY)) ?? {};
    return typeof adapter === 'string' && typeof text === 'string' ? { adapter, text } : null;
  } catch {
    return null;
  }
}

/** @param {{adapter: string, text: string}|null|undefined} tuning as the module gives it; nothing where nothing was measured */
export function saveTuning(tuning) {
  if (!tuning) return;
  try {
    localStorage.setItem(KEY, JSON.stringify(tuning));
  } catch {
    // Private windows and sandboxed frames have no storage; nothing else depends on it.
  }
}
