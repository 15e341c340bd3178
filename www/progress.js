/** From the engine's events to what a progress bar shows: a fraction and an honest time left. */

/** With fewer measured steps an estimate would be a guess; the first steps also pay for warming up. */
const STEPS_BEFORE_ETA = 2;
/** The estimate follows the last few steps, so that it notices when the machine slows down. */
const STEPS_IN_MEAN = 5;

/**
 * @typedef {object} Progress
 * @property {"queue"|"engine"|"download"|"prepare"|"encode"|"denoise"|"decode"} stage
 * @property {number|null} fraction 0..1 of this stage; null where it cannot be known
 * @property {number|null} etaMs milliseconds until the last denoising step; null before two steps are measured
 * @property {number} [loaded] bytes, in the stages engine and download
 * @property {number|null} [total]
 * @property {number} [step] denoising steps done
 * @property {number} [steps]
 * @property {number} [ahead] jobs before this one, in the stage queue
 */

export class ProgressMeter {
  #durations = [];
  #lastStep = null;

  /** @returns {Progress} */
  read(event, now = performance.now()) {
    const fraction = fractionOf(event);
    if (event.stage !== 'denoise') return { ...event, fraction, etaMs: null };
    return { ...event, fraction, etaMs: this.#eta(event, now) };
  }

  #eta({ step, steps }, now) {
    const last = this.#lastStep;
    if (last && step > last.step) {
      this.#durations.push((now - last.now) / (step - last.step));
      this.#durations.splice(0, this.#durations.length - STEPS_IN_MEAN);
    }
    this.#lastStep = { step, now };
    if (this.#durations.length < STEPS_BEFORE_ETA) return null;
    const mean = this.#durations.reduce((sum, ms) => sum + ms, 0) / this.#durations.length;
    return Math.max(0, Math.round(mean * (steps - step)));
  }
}

function fractionOf({ stage, loaded, total, step, steps }) {
  if (stage === 'denoise' && steps > 0) return Math.min(1, step / steps);
  if (loaded !== undefined && total) return Math.min(1, loaded / total);
  return null;
}

/** The words for a stage, for a status line. */
export function describeProgress({ stage, loaded, total, step, steps, ahead }) {
  switch (stage) {
    case 'queue':
      return ahead === 1 ? 'Waiting for another picture' : `Waiting for ${ahead} other pictures`;
    case 'engine':
      return `Loading the engine${bytesOf(loaded, total)}`;
    case 'download':
      return `Downloading the model${bytesOf(loaded, total)}`;
    case 'prepare':
      return 'Preparing the model';
    case 'encode':
      return 'Reading the prompt';
    case 'denoise':
      return `Drawing, step ${step} of ${steps}`;
    case 'decode':
      return 'Developing the picture';
    default:
      return 'Working';
  }
}

function bytesOf(loaded, total) {
  if (loaded === undefined) return '';
  return total ? `, ${megabytes(loaded)} of ${megabytes(total)} MB` : `, ${megabytes(loaded)} MB`;
}

/** @returns {string} millions of bytes, with one decimal below ten */
export function megabytes(bytes) {
  const value = bytes / 1e6;
  return value < 10 ? value.toFixed(1) : String(Math.round(value));
}
