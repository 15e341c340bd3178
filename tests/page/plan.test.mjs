/** What a picture will take, told before the download; wishes of the plan; the line on the page. With the fake engine. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { asked, barePage, callElement, fakeSite, openPage, useBrowser } from './harness.mjs';

/** The page takes the software adapter for a graphics card; the worker, which sees the real one, uses it. */
const HARDWARE = `
  Object.defineProperty(GPUAdapter.prototype, 'info', { get: () => ({ vendor: 'acme', architecture: 'a1' }) });
  Object.defineProperty(GPUAdapter.prototype, 'isFallbackAdapter', { get: () => false });`;

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite();
  site.bodies.set('/two.html', barePage('/latent-canvas.js', '<latent-canvas id="one"></latent-canvas><latent-canvas id="two"></latent-canvas>'));
});
after(() => site.close());
beforeEach(() => {
  site.requests.length = 0;
});

const two = async () => {
  const page = await openPage(browser.current, `${site.url}two.html`);
  await page.evaluate(() => customElements.whenDefined('latent-canvas').then(() => {}));
  return page;
};
const weights = () => asked(site).filter((path) => path.includes('weights'));

describe('planMemory()', () => {
  test('tells before the download, fires no event, and changes no state', async () => {
    const page = await two();
    const seen = await page.evaluate(async () => {
      const one = document.getElementById('one');
      const events = [];
      for (const type of ['progress', 'error', 'statechange', 'image']) one.addEventListener(type, () => events.push(type));
      Object.assign(one, { engine: 'webgpu', width: 128, steps: 7 });
      const ahead = await one.planMemory({ height: 64 });
      return { ahead, events, state: one.state, info: one.info };
    });
    const { width, height, calls, fits, peakBytes, downloadBytes } = seen.ahead;
    assert.deepEqual([width, height, calls, fits, peakBytes, downloadBytes], [128, 64, 7, true, 500_000 + 256 * 128 * 64, 250_003]);
    assert.deepEqual([seen.events, seen.state, seen.info], [[], 'idle', null]);
    assert.deepEqual(weights(), []);
    // The picture uses the same worker and the same module.
    assert.equal((await callElement(page, { args: { prompt: 'x' } })).code, null);
    assert.equal(asked(site).filter((path) => path.endsWith('.wasm')).length, 1);
    assert.equal(page.workers().length, 1);
    await page.evaluate(() => document.getElementById('one').unload());
    await page.waitForTimeout(400);
    assert.equal(page.workers().length, 0);
    await page.context().close();
  });

  test('is null with an engine that does not plan, which is not started for it', async () => {
    const page = await two();
    const answers = await page.evaluate(async () => {
      const one = document.getElementById('one');
      const answers = [];
      for (const engine of ['cpu', 'burn', 'auto']) answers.push(await Object.assign(one, { engine }).planMemory());
      return answers;
    });
    assert.deepEqual(answers, [null, null, null]);
    assert.deepEqual(asked(site).filter((path) => path.endsWith('.wasm')), []);
    await page.context().close();
  });

  test('asked while a picture is drawn, with another limit: the picture is drawn', async () => {
    const page = await two();
    const ended = await page.evaluate(async () => {
      const one = document.getElementById('one');
      one.engine = 'webgpu';
      const drawing = one.generate({ prompt: 'slow', steps: 6, seed: 3 });
      await new Promise((resolve) => one.addEventListener('progress', ({ detail }) => detail.step === 1 && resolve()));
      one.budget = '1000';
      const { fits, reason, remedy } = await one.planMemory();
      return { fits, reason, remedy, seed: (await drawing).seed };
    });
    assert.deepEqual([ended.fits, ended.seed], [false, 3]);
    assert.match(ended.reason, /1000 are allowed/);
    assert.match(ended.remedy, /smaller width/);
    await page.context().close();
  });

  test('what it cannot plan is refused by its promise alone', async () => {
    const page = await two();
    const codes = await page.evaluate(async () => {
      const one = document.getElementById('one');
      let events = 0;
      one.addEventListener('error', () => (events += 1));
      const settle = (options) => one.planMemory(options).then(() => null, ({ code }) => code);
      const codes = [await settle({ width: 12 }), await settle({ sampler: 'x' }), await settle({ steps: 0 })];
      one.engine = 'webgpu';
      one.model = '/nowhere/';
      return [...codes, await settle(), events];
    });
    assert.deepEqual(codes, ['invalid-argument', 'invalid-argument', 'invalid-argument', 'http', 0]);
    await page.context().close();
  });
});

describe('wishes of the plan', () => {
  test('they reach the engine, and elements with other wishes have an engine of their own', async () => {
    const page = await two();
    const plans = await page.evaluate(async () => {
      const [one, other] = document.querySelectorAll('latent-canvas');
      one.setAttribute('engine', 'webgpu');
      for (const [name, value] of [['budget', '1.8GiB'], ['activations', 'f16'], ['attention', 'auto'], ['vae', 'blended']]) one.setAttribute(name, value);
      Object.assign(other, { engine: 'webgpu', budget: 2_000_000 });
      const draw = async (element) => (await element.generate({ prompt: 'x', steps: 1 })).report.plan;
      return [await draw(one), await draw(other)];
    });
    assert.deepEqual(plans, [{ budget: '1.8GiB', activations: 'f16', vae: 'blended' }, { budget: '2000000' }]);
    assert.equal(page.workers().length, 2);
    await page.context().close();
  });

  for (const [name, value, says] of [
    ['budget', '1.8', /budget is "1.8": give a size like/],
    ['budget', '2 TB', /budget/],
    ['activations', 'f8', /use auto, f32, f16/],
    ['attention', 'flash', /use auto, sliced/],
    ['vae', 'tiled', /use auto, whole, exact, blended/],
  ]) {
    test(`${name} "${value}" is refused before anything is fetched`, async () => {
      const page = await two();
      site.requests.length = 0;
      const ended = await callElement(page, { set: { engine: 'webgpu', [name]: value }, args: { prompt: 'x' } });
      assert.equal(ended.code, 'invalid-argument');
      assert.match(ended.message, says);
      assert.deepEqual(asked(site), []);
      await page.context().close();
    });
  }

  test('an engine that was chosen and does not plan refuses them; "auto" on the CPU says that they had no effect', async () => {
    const page = await two();
    for (const engine of ['cpu', 'burn']) {
      const ended = await callElement(page, { set: { engine, budget: '1GiB' }, args: { prompt: 'x', steps: 1 } });
      assert.equal(ended.code, 'invalid-argument');
      assert.match(ended.message, new RegExp(`budget can only be chosen with engine "webgpu" or "auto", and the engine is "${engine}"`));
    }
    const auto = await callElement(page, { set: { engine: 'auto' }, args: { prompt: 'x', steps: 1 } });
    const [{ report }] = auto.images;
    assert.equal(report.engine, 'fake-cpu');
    assert.match(report.engineNote, /CPU engine is used\. It does not plan its memory, so this had no effect: budget\.$/);
    await page.context().close();
  });
});

test('a picture that does not fit does not end the worker', async () => {
  const page = await two();
  const refused = await callElement(page, { set: { engine: 'webgpu' }, args: { prompt: 'coded does-not-fit', steps: 1 } });
  assert.deepEqual([refused.code, refused.errors.length], ['does-not-fit', 1]);
  assert.equal((await callElement(page, { args: { prompt: 'x', steps: 1 } })).code, null);
  assert.equal(weights().length, 2);
  await page.context().close();
});

test('the guidance scale is the model\'s own, at whatever address it lies', async () => {
  const page = await two();
  const scales = await page.evaluate(async () => {
    const one = document.getElementById('one');
    const scales = [];
    for (const model of [null, '/copy/']) {
      one.model = model;
      scales.push((await one.generate({ prompt: 'x', steps: 1 })).report.guidanceScale);
    }
    scales.push((await one.generate({ prompt: 'x', steps: 1, guidanceScale: 4 })).report.guidanceScale);
    return scales;
  });
  assert.deepEqual(scales, [2.5, 2.5, 4]);
  await page.context().close();
});

describe('the page', () => {
  const open = () => openPage(browser.current, site.url, { init: HARDWARE });
  test('tells the GPU memory of the picture before the first click, and what was counted after it', async () => {
    const page = await open();
    await page.getByText('This picture takes 4.5 MiB of GPU memory.').waitFor();
    await page.getByText('downloads the model: 0.3 MB').waitFor();
    assert.deepEqual(weights(), []);
    await page.selectOption('#size', '192x192');
    await page.getByText('This picture takes 9.5 MiB of GPU memory.').waitFor();
    await page.click('#generate');
    await page.getByText('Done in').waitFor();
    assert.match(await page.textContent('#facts'), /192 × 192 · WebGPU on .* · 0\.1 MiB of GPU memory, as planned$/);
    assert.deepEqual(page.record.errors, []);
    await page.context().close();
  });
  test('a limit that is too small is told with the remedy; without it, or on the CPU, all is well', async () => {
    const page = await open();
    await page.fill('#budget', '1000');
    const line = page.locator('#plan.notice');
    await line.waitFor();
    assert.match(await line.textContent(), /^This picture does not fit\. It takes 4694304 bytes, and 1000 are allowed\. Choose a smaller width and height\.$/);
    await page.selectOption('#engine', 'cpu');
    await page.locator('#plan').waitFor({ state: 'hidden' });
    await page.click('#generate');
    await page.getByText('Done in').waitFor();
    await page.selectOption('#engine', 'auto');
    await page.fill('#budget', '');
    await page.getByText('This picture takes 4.5 MiB of GPU memory.').waitFor();
    await page.fill('#budget', 'much');
    await page.click('#generate');
    await page.locator('[role=alert]', { hasText: /budget is "much": give a size like 900MiB or 1.8GiB/ }).waitFor();
    await page.context().close();
  });
});
