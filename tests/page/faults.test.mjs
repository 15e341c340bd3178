/**
 * Whatever goes wrong, the promise rejects with a stable code and a sentence, exactly one error event fires, nothing
 * is left unhandled, and the next attempt works. With the fake engine.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { asked, callElement, fakeSite, openPage, useBrowser } from './harness.mjs';

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite();
});
after(() => site.close());

const GOOD = { prompt: 'a frog', steps: 3, seed: 1 };
const HTML = '<!doctype html><title>Not the file</title>';

async function failsWith(page, call, code, says) {
  const ended = await callElement(page, call);
  assert.equal(ended.code, code, `${ended.code}: ${ended.message}`);
  assert.match(ended.message, says);
  assert.deepEqual(ended.errors, [{ code: ended.code, message: ended.message }], 'one error event');
  assert.equal(ended.images.length, 0);
  assert.deepEqual(page.record.errors, [], 'nothing unhandled');
}

describe('options are refused before any download', () => {
  const cases = [
    ['empty prompt', { prompt: '' }, /empty/],
    ['prompt of spaces', { prompt: ' \n\t' }, /empty/],
    ['prompt that is no text', { prompt: 7 }, /text/],
    ['width 0', { width: 0 }, /multiple of 8/],
    ['width 100', { width: 100 }, /96 or 104/],
    ['width 1032', { width: 1032 }, /1024/],
    ['width -8', { width: -8 }, /from 8/],
    ['height 100', { height: 100 }, /height is 100/],
    ['height NaN', { height: NaN }, /height is not a number/],
    ['steps 0', { steps: 0 }, /from 1 to 1000/],
    ['steps 1001', { steps: 1001 }, /from 1 to 1000/],
    ['steps 2.5', { steps: 2.5 }, /whole/],
    ['guidance NaN', { guidanceScale: NaN }, /guidance scale is not a number/],
    ['guidance -1', { guidanceScale: -1 }, /from 0 to 1000/],
    ['guidance 1e30', { guidanceScale: 1e30 }, /from 0 to 1000/],
    ['guidance Infinity', { guidanceScale: Infinity }, /guidance scale is Infinity/],
    ['seed -2', { seed: -2 }, /-1 for a random/],
    ['seed 2^32', { seed: 2 ** 32 }, /4294967295/],
    ['seed 0.5', { seed: 0.5 }, /whole/],
    ['unknown scheduler', { scheduler: 'karras' }, /pndm, ddim, euler/],
  ];
  for (const [name, wrong, says] of cases) {
    test(name, async () => {
      const page = await openPage(browser.current, `${site.url}bare.html`);
      site.requests.length = 0;
      await failsWith(page, { args: { ...GOOD, ...wrong } }, 'invalid-argument', says);
      assert.deepEqual(asked(site), []);
      await page.context().close();
    });
  }
  test('attributes that are no numbers, unknown engine, impossible model', async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    const bad = async (set, says) => {
      await failsWith(page, { set, args: { prompt: 'x' } }, 'invalid-argument', says);
    };
    await bad({ width: 'wide' }, /width is not a number/);
    await bad({ width: null, steps: '' }, /steps is not a number/);
    await bad({ steps: 2, engine: 'quantum' }, /auto, cpu, webgpu/);
    await bad({ engine: 'cpu', model: 'http://[' }, /not a URL/);
    await bad({ model: 'file:///etc/' }, /http or https/);
    assert.equal((await callElement(page, { set: { model: null }, args: GOOD })).code, null);
  });
});

describe('the engine fails', () => {
  const cases = [
    ['panic', 'panic', /crashed: panicked at step 1/],
    ['trap', 'panic', /crashed: unreachable/],
    ['ends', 'panic', /ended without a word/],
    ['coded out-of-memory', 'out-of-memory', /prompt wished/],
    ['coded device-lost', 'device-lost', /prompt wished/],
    ['coded not-finite', 'not-finite', /prompt wished/],
  ];
  for (const [prompt, code, says] of cases) {
    test(`${prompt}, then the next picture works`, async () => {
      const page = await openPage(browser.current, `${site.url}bare.html`);
      await failsWith(page, { args: { ...GOOD, prompt } }, code, says);
      assert.equal((await callElement(page, { args: GOOD })).code, null);
      await page.context().close();
    });
  }
  test('after a lost device the worker is replaced, after other errors it is kept', async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    const first = async (prompt) => {
      await callElement(page, { args: { ...GOOD, prompt } });
      await page.waitForTimeout(300);
      return page.workers().length;
    };
    assert.equal(await first('coded not-finite'), 1);
    assert.equal(await first('coded device-lost'), 0);
    assert.equal(await first('a frog'), 1);
  });
  test('panic while loading', async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    await failsWith(page, { set: { model: '/panics/' }, args: GOOD }, 'panic', /panicked at load/);
    assert.equal((await callElement(page, { set: { model: null }, args: GOOD })).code, null);
  });
  test('an engine that never answers is given up', async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    await failsWith(page, { args: { ...GOOD, prompt: 'never' }, timeouts: { compute: 300 } }, 'timeout', /fewer steps/);
    assert.equal((await callElement(page, { args: GOOD, timeouts: { compute: 60_000 } })).code, null);
  });
  test('a step that blocks the worker does not block cancel', async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    const ms = await page.evaluate(async () => {
      const element = document.querySelector('latent-canvas');
      customElements.get('latent-canvas').timeouts.cancel = 300;
      const generating = element.generate({ prompt: 'hog', steps: 2 });
      await new Promise((resolve) => element.addEventListener('progress', ({ detail }) => detail.stage === 'denoise' && resolve()));
      await new Promise((resolve) => setTimeout(resolve, 100));
      const start = performance.now();
      element.cancel();
      return generating.then(() => -1, (error) => (error.code === 'cancelled' ? performance.now() - start : -2));
    });
    assert.ok(ms >= 0 && ms < 1500, String(ms));
    assert.equal((await callElement(page, { args: GOOD })).code, null);
  });
});

describe('the network fails, and the next attempt works', () => {
  const cases = [
    ['worker.js is missing', { match: 'worker.js', status: 404 }, 'worker-failed', /worker\.js did not start/],
    ['a part of the worker is missing', { match: 'gpu-bytes.js', status: 404 }, 'worker-failed', /did not start/],
    ['worker.js is a page', { match: 'worker.js', html: HTML }, 'worker-failed', /did not start/],
    ['the engine script is missing', { match: 'pkg/cpu/latent_canvas.js', status: 404 }, 'worker-failed', /pkg\/ must lie beside/],
    ['wasm is missing', { match: '.wasm', status: 404 }, 'worker-failed', /answered 404/],
    ['wasm is a page', { match: '.wasm', html: HTML }, 'worker-failed', /not WebAssembly/],
    ['wasm is cut', { match: '.wasm', cutAfter: 12 }, 'worker-failed', /could not be started/],
    ['wasm stalls', { match: '.wasm', stall: true }, 'timeout', /starting/, { start: 400 }],
    ['worker.js stalls', { match: 'worker.js', stall: true }, 'timeout', /starting/, { start: 400 }],
    ['manifest is missing', { match: 'manifest.json', status: 404 }, 'http', /404/],
    ['manifest is a page', { match: 'manifest.json', html: HTML }, 'config', /not JSON/],
    ['weights are missing', { match: 'unet/weights', status: 404 }, 'http', /404/],
    ['server error', { match: 'unet/weights', status: 503 }, 'http', /503/],
    ['weights are a page', { match: 'unet/weights', html: HTML }, 'truncated', /not 200000/],
    ['weights are cut', { match: 'unet/weights', cutAfter: 70_000 }, 'network', /unet\/weights/],
    ['weights stall', { match: 'unet/weights', stall: true }, 'timeout', /downloading/, { download: 400 }],
  ];
  for (const [name, fault, code, says, timeouts = {}] of cases) {
    test(name, async () => {
      const page = await openPage(browser.current, `${site.url}bare.html`);
      site.faults.push(fault);
      await failsWith(page, { args: GOOD, timeouts }, code, says);
      site.faults.length = 0;
      const again = await callElement(page, { args: GOOD, timeouts: { start: 30_000, download: 60_000 } });
      assert.equal(again.code, null, again.message);
      await page.context().close();
    });
  }
  test('a slow download is not a stalled one', async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    site.faults.push({ match: 'unet/weights', bytesPerSecond: 150_000 });
    const ended = await callElement(page, { args: GOOD, timeouts: { download: 700 } });
    site.faults.length = 0;
    assert.equal(ended.code, null, ended.message);
  });
});
