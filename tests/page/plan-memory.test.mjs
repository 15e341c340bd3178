/** The memory of the plan engine in the page: what is promised is what is counted, and all of it comes back. With the real engine. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, beforeEach, test } from 'node:test';
import { callElement, openPage, realSite, useBrowser, WWW } from './harness.mjs';
import { heapBytes } from './heap.mjs';

const TINY = { model: '/tiny/', engine: 'webgpu' };
const SMALL = { prompt: 'a b c', scheduler: 'ddim', steps: 1, seed: 1, width: 16, height: 16 };
const GENERATIONS = 20;
/** Of the JavaScript heaps between the fifth picture and the last: compiled code and caches come and go. */
const HEAP_TOLERANCE_BYTES = 300_000;

const browser = useBrowser();
let site;
before(async () => {
  site = await realSite();
});
after(() => site.close());
beforeEach(() => {
  site.requests.length = 0;
});

const open = async () => {
  const page = await openPage(browser.current, `${site.url}bare.html`);
  await page.evaluate(() => customElements.whenDefined('latent-canvas').then(() => {}));
  return page;
};
const weights = () => site.requests.filter((path) => path.endsWith('.safetensors'));

test('the bundled model at its own size: promised before the download, and counted to the byte', async () => {
  const page = await open();
  const ahead = await page.evaluate(() => Object.assign(document.querySelector('latent-canvas'), { engine: 'webgpu', steps: 1 }).planMemory());
  assert.deepEqual([ahead.fits, ahead.residency, ahead.width, ahead.height, ahead.downloadBytes], [true, 'all_stages', 128, 128, 28_061_222]);
  assert.deepEqual(weights(), []);
  const ended = await callElement(page, { args: { prompt: 'a frog', seed: 1 } });
  assert.equal(ended.code, null, ended.message);
  const [{ report }] = ended.images;
  assert.equal(report.plannedBytesPeak, ahead.peakBytes);
  assert.equal(report.gpuBytesPeak, ahead.peakBytes);
  assert.equal(report.gpuBytesLive, report.weightBytes);
  assert.deepEqual(report.plan, ahead.plan);
  await page.context().close();
});

test(`${GENERATIONS} pictures in a row: GPU memory, wasm memory and JavaScript heaps return to the same values`, async () => {
  const page = await open();
  const draw = (seed) =>
    page.evaluate(async ({ set, options }) => {
      const element = Object.assign(document.querySelector('latent-canvas'), set);
      const { report } = await element.generate(options);
      return [report.gpuBytesLive, report.gpuBytesPeak, report.wasmMemoryBytes];
    }, { set: TINY, options: { ...SMALL, seed } });
  const counts = [];
  const heaps = [];
  for (let i = 0; i < GENERATIONS; i += 1) {
    counts.push(await draw(i % 3));
    if (i === 4 || i === GENERATIONS - 1) heaps.push(await heapBytes(page, { collect: true }));
  }
  for (const count of counts.slice(2)) assert.deepEqual(count, counts[1]);
  assert.deepEqual(counts[0].slice(0, 2), counts[1].slice(0, 2));
  for (const realm of ['page', 'workers']) {
    const grown = heaps[1][realm] - heaps[0][realm];
    assert.ok(grown < HEAP_TOLERANCE_BYTES, `${realm}: ${heaps[0][realm]} bytes, then ${heaps[1][realm]}`);
  }
  // A HEAD for the length and a GET, of each file once.
  assert.equal(weights().length, 6);
  await page.context().close();
});

test('a picture of another size, one that is cancelled, one with its stages in turn: afterwards only the weights are there', async () => {
  const page = await open();
  const seen = await page.evaluate(async ({ set, options }) => {
    const element = Object.assign(document.querySelector('latent-canvas'), set);
    const live = async (more) => {
      const { report } = await element.generate({ ...options, ...more });
      return [report.gpuBytesLive, report.gpuBytesPeak === report.plannedBytesPeak];
    };
    const seen = { first: await live(), larger: await live({ width: 32, guidanceScale: 1 }) };
    const cancelled = element.generate({ ...options, steps: 50 }).catch(({ code }) => code);
    await new Promise((resolve) => element.addEventListener('progress', ({ detail }) => detail.step === 1 && resolve()));
    element.cancel();
    seen.code = await cancelled;
    seen.after = await live();
    const { plan } = await element.planMemory(options);
    element.budget = plan.stage_by_stage.peak_bytes;
    seen.turns = [await live(), await live()];
    return seen;
  }, { set: TINY, options: SMALL });
  assert.equal(seen.code, 'cancelled');
  const { first } = seen;
  assert.equal(first[1], true);
  assert.deepEqual([seen.larger, seen.after], [first, first]);
  // Of the stages in turn the last one's weights are there.
  assert.equal(seen.turns[0][1], true);
  assert.ok(seen.turns[0][0] < first[0]);
  assert.deepEqual(seen.turns[1], seen.turns[0]);
  await page.context().close();
});

test('freed, nothing is left, at once', async () => {
  const page = await open();
  const bytes = await page.evaluate(async ({ options, model }) => {
    const { countGpuBytes, gpuBytes } = await import('/gpu-bytes.js');
    const failures = [];
    countGpuBytes((code) => failures.push(code));
    const engine = await import('/pkg/webgpu/latent_canvas.js');
    await engine.default();
    const session = await engine.Session.load({ model, engine: 'webgpu' }, () => {});
    const loaded = gpuBytes().live;
    const drawing = session.generate({ ...options, negativePrompt: '', guidanceScale: 2, keepLatents: false }, () => {});
    await drawing;
    const drawn = gpuBytes().live;
    session.free();
    const freed = gpuBytes().live;
    // Its own end is no loss to tell of.
    await new Promise((resolve) => setTimeout(resolve, 300));
    return { loaded, drawn, freed, failures };
  }, { options: SMALL, model: `${site.url}tiny/` });
  assert.ok(bytes.loaded > 0);
  assert.deepEqual(bytes, { loaded: bytes.loaded, drawn: bytes.loaded, freed: 0, failures: [] });
  assert.deepEqual(page.record.errors, []);
  await page.context().close();
});

test('a limit that nothing keeps: the reason and the remedy, no weights fetched; a larger one, and the picture is drawn', async () => {
  const page = await open();
  const refused = await callElement(page, { set: { ...TINY, budget: '10kB' }, args: SMALL });
  assert.equal(refused.code, 'does-not-fit');
  assert.match(refused.message, /^The \w+ alone takes [\d.]+ MiB .* are allowed\. Allow [\d.]+ MiB/);
  assert.equal(refused.errors.length, 1);
  assert.deepEqual(weights(), []);
  assert.equal(page.workers().length, 1);
  const [, enough] = /Allow ([\d.]+ MiB)/.exec(refused.message);
  const drawn = await callElement(page, { set: { budget: enough }, args: SMALL });
  assert.equal(drawn.code, null, drawn.message);
  await page.context().close();
});

test('an adapter without shader-f16, a browser without a list of language features: nothing is asked for that is not there', async () => {
  const prelude = `
    const told = new BroadcastChannel('devices');
    Object.defineProperty(GPU.prototype, 'wgslLanguageFeatures', { get: () => undefined });
    Object.defineProperty(GPUAdapter.prototype, 'features', { get: () => new Set() });
    const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = function (descriptor) {
      told.postMessage({ features: [...(descriptor?.requiredFeatures ?? [])], limits: descriptor?.requiredLimits ?? {} });
      return request.call(this, descriptor);
    };`;
  site.bodies.set('/worker.js', prelude + readFileSync(`${WWW}/worker.js`, 'utf8'));
  const page = await open();
  await page.evaluate(() => {
    globalThis.devices = [];
    new BroadcastChannel('devices').onmessage = ({ data }) => globalThis.devices.push(data);
  });
  const ended = await callElement(page, { set: TINY, args: SMALL });
  site.bodies.delete('/worker.js');
  assert.equal(ended.code, null, ended.message);
  assert.equal(ended.images[0].report.plan.activations, 'f32');
  const devices = await page.evaluate(() => globalThis.devices);
  assert.deepEqual(devices, [{ features: [], limits: {} }]);
  await page.context().close();
});

test('tokens are counted as in diffusers, with the browser\'s normalization', async () => {
  const fixture = JSON.parse(readFileSync(new URL('../golden/tokenizer/emoji/cases.json', import.meta.url), 'utf8'));
  // The reference has Unicode 16. Ideographs that Unicode 17 added are letters in a newer browser and nothing in the reference.
  const cases = fixture.cases.filter(({ text }) => !/[\u{323b0}-\u{33479}]/u.test(text));
  assert.ok(cases.length > 200);
  const page = await open();
  const counted = await page.evaluate(async (texts) => {
    const element = Object.assign(document.querySelector('latent-canvas'), { engine: 'webgpu' });
    await element.load();
    return Promise.all(texts.map((text) => element.countTokens(text)));
  }, cases.map(({ text }) => text));
  const got = counted.map(({ count, truncatedText }) => [count, truncatedText]);
  assert.deepEqual(got, cases.map(({ token_count: count, cut }) => [count, cut]));
  await page.context().close();
});
