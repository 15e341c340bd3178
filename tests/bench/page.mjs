/** What bench.mjs calls in the page: a worker for each row and engine, told what to do and timed. Outputs stay here. */
const lanes = new Map();

class Lane {
  constructor() {
    this.worker = new Worker('worker.mjs', { type: 'module' });
    this.waiting = new Map();
    this.next = 0;
    this.worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.waiting.get(id);
      this.waiting.delete(id);
      if (error === undefined) resolve(result);
      else reject(new Error(error));
    };
    this.worker.onerror = (event) => {
      for (const { reject } of this.waiting.values()) reject(new Error(event.message ?? 'the worker failed'));
      this.waiting.clear();
    };
  }

  call(call, ...list) {
    return new Promise((resolve, reject) => {
      const id = this.next;
      this.next += 1;
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, call, arguments: list });
    });
  }
}

async function timed(work) {
  const start = performance.now();
  const result = await work();
  return [performance.now() - start, result];
}

window.bench = {
  /** Makes the engine and runs it for the first time. */
  async open(engine, row) {
    const lane = new Lane();
    lanes.set(engine, lane);
    const [loadMs] = await timed(() => lane.call('create', engine, row));
    const [firstMs] = await timed(async () => {
      await lane.call('begin');
      lane.output = await lane.call('run', 1);
    });
    const [beginMs] = await timed(() => lane.call('begin'));
    return { loadMs, firstMs, beginMs };
  },

  /** @returns {Promise<number>} ms of all calls together */
  async run(engine, times) {
    const lane = lanes.get(engine);
    const [ms] = await timed(() => lane.call('run', times));
    return ms;
  },

  calls: (engine) => lanes.get(engine).call('calls'),

  figures: (engine) => lanes.get(engine).call('figures'),

  /** @returns {number} the largest difference of two engines' first outputs, as a part of the largest value */
  difference(engine, reference) {
    const [got, expected] = [engine, reference].map((name) => lanes.get(name).output);
    if (got.length !== expected.length) throw new Error(`${got.length} values of ${engine}, ${expected.length} of ${reference}`);
    let largest = 0;
    let worst = 0;
    for (let i = 0; i < got.length; i += 1) {
      largest = Math.max(largest, Math.abs(expected[i]));
      // Math.max keeps a NaN
      worst = Math.max(worst, Math.abs(got[i] - expected[i]));
    }
    return worst / largest;
  },

  close(engine) {
    lanes.get(engine)?.worker.terminate();
    lanes.delete(engine);
  },
};
