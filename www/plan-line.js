/** The line that tells, before anything large is downloaded, what a picture will take of the graphics card. */

/** A number that is being typed is planned when it is there. */
const DELAY_MS = 300;

/** @returns {string} rounded up: a limit of what is shown is enough */
export function mebibytes(bytes) {
  return `${(Math.ceil((bytes * 10) / 2 ** 20) / 10).toFixed(1)} MiB`;
}

/** @param {object} ahead what `planMemory` resolves to */
export function describePlan({ fits, residency, peakBytes, reason, remedy }) {
  if (!fits) return `This picture does not fit. ${reason} ${remedy}`;
  const taking = `This picture takes ${mebibytes(peakBytes)} of GPU memory.`;
  if (residency === 'all_stages') return taking;
  return `${taking} To stay within that, the model's parts take turns, and each picture fetches them again.`;
}

/** What was counted while a picture was drawn, beside what was promised. @returns {string|null} null without a plan */
export function describeMemory({ plannedBytesPeak, gpuBytesPeak }) {
  if (plannedBytesPeak === null) return null;
  const counted = `${mebibytes(gpuBytesPeak)} of GPU memory`;
  return gpuBytesPeak === plannedBytesPeak ? `${counted}, as planned` : `${counted}, ${mebibytes(plannedBytesPeak)} planned`;
}

export class PlanLine {
  #node;
  #ask;
  #timer = 0;
  #asked = 0;

  /**
   * @param {HTMLElement} node
   * @param {() => Promise<object|null>} ask what `planMemory` resolves to; null where there is nothing to plan
   */
  constructor(node, ask) {
    this.#node = node;
    this.#ask = ask;
  }

  /** Asks again, soon. */
  update() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#show(), DELAY_MS);
  }

  async #show() {
    const number = (this.#asked += 1);
    // What is wrong with the server or the values is told when a picture is asked for.
    const ahead = await this.#ask().catch(() => null);
    if (number !== this.#asked) return;
    this.#node.hidden = ahead === null;
    this.#node.textContent = ahead ? describePlan(ahead) : '';
    this.#node.classList.toggle('notice', ahead?.fits === false);
  }
}
