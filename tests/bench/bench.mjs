/**
 * The engines side by side in one session of headless Chromium, on the same adapter, one after the other. Started by `./build.sh bench`,
 * which made what is served here. Writes JSON; the program `bench --table` prints it.
 */
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launchBrowser } from '../page/browser.mjs';
import { serve } from '../page/server.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const ENGINES = ['plan', 'burn-wgpu', 'onnxruntime-web'];
/** The engine that the others are held against. */
const REFERENCE = 'plan';
/** A sample is so long at least, that the clocks can tell it. */
const SAMPLE_MS = 500;
const MOST_CALLS = 500;
/** An engine that has used this much on a row takes no more samples, but for one. */
const ROW_MS = 40_000;
/** Where the first call took so long, one call is long enough for a sample. */
const SLOW_MS = 10_000;

const { values: options } = parseArgs({
  options: {
    built: { type: 'string' },
    json: { type: 'string' },
    rows: { type: 'string' },
    engines: { type: 'string', default: ENGINES.join(',') },
    rounds: { type: 'string', default: '5' },
    calls: { type: 'boolean', default: false },
    'hardware-gpu': { type: 'boolean', default: false },
  },
});

/** The clock ticks of Linux are 1/100 s. */
const TICK_MS = 10;

function stat(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { parent: Number(fields[1]), cpuMs: (Number(fields[11]) + Number(fields[12])) * TICK_MS };
  } catch {
    return null;
  }
}

/** The GPU process among the descendants of this process; null where the system does not tell. */
function findGpuProcess() {
  const descends = (pid) => {
    for (let at = pid; at > 1; at = stat(at)?.parent ?? 0) if (at === process.pid) return true;
    return false;
  };
  try {
    const isGpu = (pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('--type=gpu-process') && descends(Number(pid));
    return readdirSync('/proc').filter((name) => /^\d+$/.test(name)).find((pid) => {
      try {
        return isGpu(pid);
      } catch {
        return false;
      }
    }) ?? null;
  } catch {
    return null;
  }
}

function median(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

/** Where the time goes: by kernel, and the slowest calls. */
function printCalls(calls) {
  const kernels = new Map();
  for (const { kernel, nanoseconds, macs } of calls) {
    const sum = kernels.get(kernel) ?? { count: 0, nanoseconds: 0, macs: 0 };
    kernels.set(kernel, { count: sum.count + 1, nanoseconds: sum.nanoseconds + nanoseconds, macs: sum.macs + macs });
  }
  const line = (name, { count = 1, nanoseconds, macs }) =>
    console.error(`    ${(nanoseconds / 1e6).toFixed(1).padStart(9)} ms ${(macs / 1e6).toFixed(1).padStart(9)} MMAC ${String(count).padStart(4)}  ${name}`);
  const slowest = (a, b) => b[1].nanoseconds - a[1].nanoseconds;
  for (const [name, sum] of [...kernels].sort(slowest)) line(name, sum);
  const each = calls.map((call) => [`${call.kernel} ${call.module} ${JSON.stringify(call.output)}`, call]);
  for (const [name, call] of each.sort(slowest).slice(0, 8)) line(name, call);
}

async function measureRow(page, row, gpuProcess, rounds) {
  const cpuMs = () => stat(gpuProcess())?.cpuMs ?? 0;
  const lanes = new Map();
  const engines = {};
  for (const engine of options.engines.split(',')) {
    try {
      const opened = await page.evaluate(([name, task]) => window.bench.open(name, task), [engine, row]);
      lanes.set(engine, { engine, wall: [], cpu: [], spent: opened.firstMs, ...opened });
      console.error(`  ${engine}: loaded in ${opened.loadMs.toFixed(0)} ms, first call ${opened.firstMs.toFixed(0)} ms`);
    } catch (error) {
      engines[engine] = { ...emptyFigures(), error: String(error.message).replace(/\s+/g, ' ').slice(0, 300) };
      console.error(`  ${engine}: ${engines[engine].error}`);
    }
  }
  const sample = async (lane) => {
    const times = lane.times ?? 1;
    const cpu = cpuMs();
    const wall = await page.evaluate(([name, count]) => window.bench.run(name, count), [lane.engine, times]);
    lane.spent += wall;
    return { wall: wall / times, cpu: (cpuMs() - cpu) / times };
  };
  for (const lane of lanes.values()) {
    const { wall } = lane.firstMs > SLOW_MS ? { wall: lane.firstMs } : await sample(lane);
    lane.times = Math.min(MOST_CALLS, Math.max(1, Math.ceil(SAMPLE_MS / wall)));
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const lane of lanes.values()) {
      if (round > 0 && lane.spent > ROW_MS) continue;
      const { wall, cpu } = await sample(lane);
      lane.wall.push(wall);
      lane.cpu.push(cpu);
    }
  }
  let adapter = '';
  for (const [engine, lane] of lanes) {
    const figures = await page.evaluate((name) => window.bench.figures(name), engine);
    adapter ||= figures.adapter;
    const compared = lanes.has(REFERENCE)
      ? await page.evaluate(([a, b]) => window.bench.difference(a, b), [engine, REFERENCE])
      : null;
    engines[engine] = {
      load_ms: lane.loadMs,
      first_ms: lane.firstMs,
      begin_ms: lane.beginMs,
      wall_ms: median(lane.wall),
      cpu_ms: median(lane.cpu),
      peak_bytes: figures.peakBytes,
      // JSON has no NaN
      difference: Number.isNaN(compared) ? Number.MAX_VALUE : compared,
      samples_ms: lane.wall,
    };
    console.error(`  ${engine}: ${engines[engine].wall_ms.toFixed(1)} ms, CPU ${engines[engine].cpu_ms.toFixed(1)} ms`);
  }
  if (options.calls && lanes.has(REFERENCE)) printCalls(await page.evaluate((name) => window.bench.calls(name), REFERENCE));
  for (const engine of options.engines.split(',')) await page.evaluate((name) => window.bench.close(name), engine);
  return { adapter, row: { name: row.name, title: row.title, macs: row.macs, engines } };
}

function emptyFigures() {
  return { load_ms: 0, first_ms: 0, begin_ms: 0, wall_ms: 0, cpu_ms: 0, samples_ms: [] };
}

async function main() {
  const data = join(options.built, 'data');
  const wanted = options.rows?.split(',');
  const rows = JSON.parse(readFileSync(join(data, 'rows.json'), 'utf8')).filter(({ name }) => !wanted || wanted.includes(name));
  const site = await serve({
    mounts: [
      { at: '/', dir: ROOT },
      { at: '/bench/', dir: HERE },
      { at: '/data/', dir: data },
      { at: '/plan/', dir: join(options.built, 'plan') },
      { at: '/burn-wgpu/', dir: join(options.built, 'burn-wgpu') },
      { at: '/onnxruntime-web/', dir: join(HERE, 'node_modules/onnxruntime-web/dist') },
    ],
  });
  const browser = await launchBrowser({ hardwareGpu: options['hardware-gpu'] });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    page.on('crash', () => console.error('the page crashed'));
    page.on('console', (message) => {
      if (message.type() === 'error') console.error(`  console: ${message.text().slice(0, 300)}`);
    });
    await page.goto(`${site.url}bench/page.html`);
    let found = null;
    // it starts when it is needed, and anew if it went down
    const gpuProcess = () => {
      if (!found || !stat(found)) found = findGpuProcess();
      return found;
    };
    const report = { place: 'chromium', adapter: '', software: !options['hardware-gpu'], rows: [] };
    for (const row of rows) {
      console.error(row.title);
      const { adapter, row: measured } = await measureRow(page, row, gpuProcess, Number(options.rounds));
      report.adapter ||= adapter;
      report.rows.push(measured);
      writeFileSync(options.json, JSON.stringify(report, null, 2));
    }
    report.software = /swiftshader|llvmpipe|lavapipe/i.test(report.adapter);
    writeFileSync(options.json, JSON.stringify(report, null, 2));
  } finally {
    await browser.close();
    await site.close();
  }
}

await main();
