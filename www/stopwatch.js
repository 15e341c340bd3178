/** Milliseconds by stage. A stage lasts from the first event that names it to the first that names another. */
export class Stopwatch {
  #start = performance.now();
  #since = this.#start;
  #stage = null;
  #times = {};

  enter(stage) {
    if (stage === this.#stage) return;
    this.#close();
    this.#stage = stage;
  }

  /** @returns {Record<string, number>} the stages and `total` */
  stop() {
    this.#close();
    this.#stage = null;
    return { ...this.#times, total: Math.round(performance.now() - this.#start) };
  }

  #close() {
    const now = performance.now();
    if (this.#stage) this.#times[this.#stage] = (this.#times[this.#stage] ?? 0) + Math.round(now - this.#since);
    this.#since = now;
  }
}
