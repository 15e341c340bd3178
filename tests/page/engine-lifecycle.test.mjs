/** The real engine over a longer time: many pictures, several elements, an end at every stage. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { barePage, callElement, openPage, realSite, useBrowser } from './harness.mjs';

const GOOD = { prompt: 'a frog', steps: 2, seed: 1, width: 64, height: 64 };
const THREE = ['one', 'two', 'three'].map((id) => `<latent-canvas id="${id}" engine="cpu"></latent-canvas>`).join('');

const browser = useBrowser();
let site;
before(async () => {
  site = await realSite();
  site.bodies.set('/three.html', barePage('/latent-canvas.js', THREE));
});
after(() => site.close());
beforeEach(() => {
  site.requests.length = 0;
  site.faults.length = 0;
});

const open = async () => {
  const page = await openPage(browser.current, `${site.url}three.html`);
  await page.evaluate(() => customElements.whenDefined('latent-canvas').then(() => {}));
  return page;
};

test('five pictures in a row: each seed has its own picture, and memory does not grow', async () => {
  const page = await open();
  const seen = await page.evaluate(async (options) => {
    const one = document.getElementById('one');
    const seen = [];
    for (const seed of [1, 2, 1, 2, 1]) {
      const { report } = await one.generate({ ...options, seed });
      const canvas = one.shadowRoot.querySelector('canvas');
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', data));
      seen.push({ hash: hash.join(' '), memory: report.wasmMemoryBytes });
    }
    return seen;
  }, GOOD);
  const hashes = seen.map(({ hash }) => hash);
  assert.equal(new Set(hashes).size, 2);
  assert.deepEqual(hashes, [hashes[0], hashes[1], hashes[0], hashes[1], hashes[0]]);
  assert.equal(seen[4].memory, seen[1].memory, seen.map(({ memory }) => memory).join(' '));
  await page.context().close();
});

test('three elements at once: one download, one worker, three pictures', async () => {
  const page = await open();
  const seeds = await page.evaluate(async (options) => {
    const elements = [...document.querySelectorAll('latent-canvas')];
    const results = await Promise.all(elements.map((element, i) => element.generate({ ...options, seed: i + 1 })));
    return results.map(({ seed }) => seed);
  }, GOOD);
  assert.deepEqual(seeds, [1, 2, 3]);
  assert.equal(page.workers().length, 1);
  const heavy = site.requests.filter((path) => /\.(safetensors|wasm)$/.test(path));
  assert.equal(heavy.length, 4, heavy.join(' '));
  assert.equal(new Set(heavy).size, 4);
  await page.context().close();
});

/** Where a picture is cancelled, and what makes that moment long enough to hit. */
const STAGES = [
  ['engine', { match: '.wasm', bytesPerSecond: 2_000_000, times: 1 }],
  ['download', { match: 'unet/diffusion', bytesPerSecond: 4_000_000, times: 1 }],
  ['prepare', null],
  ['encode', null],
  ['denoise', null],
  ['decode', null],
];
for (const [stage, fault] of STAGES) {
  test(`cancelled in the stage ${stage}: one event, and the next picture works`, async () => {
    const page = await open();
    if (fault) site.faults.push(fault);
    const ended = await page.evaluate(
      async ({ options, stage }) => {
        const one = document.getElementById('one');
        const events = [];
        one.addEventListener('error', ({ detail }) => events.push(detail.code));
        one.addEventListener('image', () => events.push('image'));
        one.addEventListener('progress', ({ detail }) => detail.stage === stage && one.cancel());
        const code = await one.generate({ ...options, steps: 4 }).then(() => null, (error) => error.code);
        return { code, events, state: one.state };
      },
      { options: GOOD, stage },
    );
    assert.deepEqual([ended.code, ended.events], ['cancelled', ['cancelled']]);
    const again = await callElement(page, { selector: '#two', args: GOOD });
    assert.equal(again.code, null, again.message);
    assert.deepEqual(page.record.errors, []);
    await page.context().close();
  });
}

test('removed in the middle of the download: the worker is gone, the download with it, a new element works', async () => {
  const page = await open();
  site.faults.push({ match: 'unet/diffusion', bytesPerSecond: 1_000_000, times: 1 });
  const code = await page.evaluate(async (options) => {
    const one = document.getElementById('one');
    const drawing = one.generate(options).then(() => null, (error) => error.code);
    await new Promise((resolve) => one.addEventListener('progress', ({ detail }) => detail.stage === 'download' && resolve()));
    one.remove();
    return drawing;
  }, GOOD);
  assert.equal(code, 'cancelled');
  await page.waitForTimeout(400);
  assert.equal(page.workers().length, 0);
  const again = await callElement(page, { selector: '#two', args: GOOD });
  assert.equal(again.code, null, again.message);
  assert.deepEqual(page.record.errors, []);
  await page.context().close();
});
