/** Sharing, queueing, cancelling, moving and removing elements. With the fake engine. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { barePage, callElement, fakeSite, openPage, useBrowser } from './harness.mjs';

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite();
  site.bodies.set('/two.html', barePage('/latent-canvas.js', '<div id="a"><latent-canvas id="one"></latent-canvas></div><div id="b"><latent-canvas id="two"></latent-canvas></div>'));
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
/** Dedicated workers that live in the page. */
const workers = (page) => page.workers().length;

test('two elements share one download and one worker, and draw one after the other', async () => {
  const page = await two();
  const log = await page.evaluate(async () => {
    const log = [];
    const draw = async (id, options) => {
      const element = document.getElementById(id);
      element.addEventListener('progress', ({ detail }) => {
        if (detail.stage === 'queue') log.push(`${id} waits for ${detail.ahead}`);
        if (detail.stage === 'denoise' && detail.step === 0) log.push(`${id} begins`);
      });
      const { seed } = await element.generate(options);
      log.push(`${id} done ${seed}`);
    };
    await Promise.all([draw('one', { prompt: 'slow', steps: 3, seed: 1 }), draw('two', { prompt: 'x', steps: 2, seed: 2 })]);
    return log;
  });
  assert.deepEqual(log, ['two waits for 1', 'one begins', 'one done 1', 'two begins', 'two done 2']);
  assert.equal(workers(page), 1);
  for (const file of ['unet/weights.bin', 'vae/weights.bin', 'model_index.json', 'manifest.json']) {
    assert.equal(site.requests.filter((path) => path === `/models/emoji/${file}`).length, 1, file);
  }
  assert.deepEqual(site.requests.filter((path) => path.endsWith('.wasm')), ['/pkg/cpu/latent_canvas_bg.wasm']);
});

test('when one of two is cancelled while loading, the other goes on', async () => {
  const page = await two();
  site.faults.push({ match: 'unet/weights', bytesPerSecond: 300_000, times: 1 });
  const ended = await page.evaluate(async () => {
    const [one, two] = document.querySelectorAll('latent-canvas');
    const first = one.generate({ prompt: 'x', steps: 1, seed: 1 }).catch((error) => error.code);
    const second = two.generate({ prompt: 'x', steps: 1, seed: 2 });
    setTimeout(() => one.cancel(), 200);
    return [await first, (await second).seed, one.state, two.state];
  });
  // The first had nothing loaded when it was cancelled.
  assert.deepEqual(ended, ['cancelled', 2, 'idle', 'ready']);
  assert.equal(workers(page), 1);
});

test('cancelling the only load ends the worker at once', async () => {
  const page = await two();
  site.faults.push({ match: 'unet/weights', bytesPerSecond: 20_000, times: 1 });
  const code = await page.evaluate(async () => {
    const one = document.getElementById('one');
    const loading = one.load().catch((error) => error.code);
    await new Promise((resolve) => one.addEventListener('progress', ({ detail }) => detail.stage === 'download' && resolve()));
    one.cancel();
    return loading;
  });
  assert.equal(code, 'cancelled');
  await page.waitForTimeout(400);
  assert.equal(workers(page), 0);
  site.faults.length = 0;
  assert.equal((await callElement(page, { args: { prompt: 'x', steps: 1 } })).code, null);
});

test('cancel() and an aborted signal end a picture within a step, and the next one works', async () => {
  const page = await two();
  const ended = await page.evaluate(async () => {
    const one = document.getElementById('one');
    const ended = [];
    one.addEventListener('error', ({ detail }) => ended.push(`event ${detail.code}`));
    const run = async (stop, options = {}) => {
      const generating = one.generate({ prompt: 'slow', steps: 200, ...options });
      await new Promise((resolve) => one.addEventListener('progress', ({ detail }) => detail.step === 2 && resolve()));
      const start = performance.now();
      stop();
      ended.push(one.state);
      await generating.catch((error) => ended.push(error.code));
      ended.push(performance.now() - start < 300);
    };
    await run(() => one.cancel());
    const controller = new AbortController();
    await run(() => controller.abort(), { signal: controller.signal });
    await one.generate({ prompt: 'x', steps: 1, signal: AbortSignal.abort() }).catch((error) => ended.push(error.code));
    ended.push((await one.generate({ prompt: 'x', steps: 1, seed: 4 })).seed, one.state);
    one.cancel();
    ended.push(one.state);
    return ended;
  });
  assert.deepEqual(ended, [
    'cancelling', 'event cancelled', 'cancelled', true,
    'generating', 'event cancelled', 'cancelled', true,
    'event cancelled', 'cancelled',
    4, 'ready', 'ready',
  ]);
});

test('a waiting picture can be cancelled, and a busy element says so', async () => {
  const page = await two();
  const ended = await page.evaluate(async () => {
    const [one, two] = document.querySelectorAll('latent-canvas');
    const first = one.generate({ prompt: 'slow', steps: 5, seed: 1 });
    const busy = one.generate({ prompt: 'x', steps: 1 }).catch((error) => error.code);
    const waiting = two.generate({ prompt: 'x', steps: 1 }).catch((error) => error.code);
    await new Promise((resolve) => two.addEventListener('progress', ({ detail }) => detail.stage === 'queue' && resolve()));
    two.cancel();
    return [await busy, await waiting, (await first).seed];
  });
  assert.deepEqual(ended, ['busy', 'cancelled', 1]);
});

test('when the engine panics under one element, the one that waits is drawn by a new worker', async () => {
  const page = await two();
  const ended = await page.evaluate(async () => {
    const [one, two] = document.querySelectorAll('latent-canvas');
    const first = one.generate({ prompt: 'panic', steps: 5 }).catch((error) => error.code);
    const second = two.generate({ prompt: 'x', steps: 1, seed: 8 }).then(({ seed }) => seed);
    return Promise.all([first, second]);
  });
  assert.deepEqual(ended, ['panic', 8]);
});

test('moved during a run, in one tick or by moveBefore, the element finishes', async () => {
  const page = await two();
  const ended = await page.evaluate(async () => {
    const one = document.getElementById('one');
    const drawing = one.generate({ prompt: 'slow', steps: 12, seed: 6 });
    await new Promise((resolve) => one.addEventListener('progress', ({ detail }) => detail.step === 1 && resolve()));
    document.getElementById('b').append(one);
    document.getElementById('a').moveBefore?.(one, null);
    // Some frameworks take longer than a tick.
    one.remove();
    await new Promise((resolve) => setTimeout(resolve, 200));
    document.getElementById('b').append(one);
    const { seed } = await drawing;
    await new Promise((resolve) => setTimeout(resolve, 800));
    return [seed, one.shadowRoot.querySelector('canvas').hidden, one.state];
  });
  assert.deepEqual(ended, [6, false, 'ready']);
  assert.equal(workers(page), 1);
});

test('removed for good: within a second the run has ended and the worker is gone', async () => {
  const page = await two();
  const ended = await page.evaluate(async () => {
    const one = document.getElementById('one');
    const events = [];
    one.addEventListener('error', ({ detail }) => events.push(detail.code));
    const drawing = one.generate({ prompt: 'slow', steps: 500 });
    await new Promise((resolve) => one.addEventListener('progress', ({ detail }) => detail.step === 1 && resolve()));
    const start = performance.now();
    one.remove();
    const code = await drawing.catch((error) => error.code);
    return [events.length, code, performance.now() - start < 1000];
  });
  assert.deepEqual(ended, [1, 'cancelled', true]);
  await page.waitForTimeout(300);
  assert.equal(workers(page), 0);
  assert.deepEqual(page.record.errors, []);
});

test('removed while another element uses the engine: the worker stays', async () => {
  const page = await two();
  await callElement(page, { selector: '#one', args: { prompt: 'x', steps: 1 } });
  await callElement(page, { selector: '#two', args: { prompt: 'x', steps: 1 } });
  await page.evaluate(() => document.getElementById('one').remove());
  await page.waitForTimeout(1000);
  assert.equal(workers(page), 1);
  await page.evaluate(() => document.getElementById('two').unload());
  await page.waitForTimeout(400);
  assert.equal(workers(page), 0);
});

test("inside another component's shadow root the element is connected", async () => {
  const page = await two();
  const seed = await page.evaluate(async () => {
    const host = document.createElement('div');
    host.attachShadow({ mode: 'open' });
    document.body.append(host);
    const one = document.getElementById('one');
    const drawing = one.generate({ prompt: 'slow', steps: 12, seed: 9 });
    host.shadowRoot.append(one);
    return (await drawing).seed;
  });
  assert.equal(seed, 9);
});

test('GPU buffers: counted while the element lives, destroyed when it is gone', async () => {
  const page = await two();
  const ended = await callElement(page, { set: { engine: 'webgpu' }, args: { prompt: 'x', steps: 1 } });
  assert.equal(ended.code, null, ended.message);
  assert.deepEqual(site.requests.filter((path) => path.endsWith('.wasm')), ['/pkg/webgpu/latent_canvas_bg.wasm']);
  const { report } = ended.images[0];
  assert.deepEqual([report.engine, report.gpuBytesLive, report.gpuBytesPeak, report.engineNote], ['fake-webgpu', 4096, 4096, null]);
  const [worker] = page.workers();
  await worker.evaluate(() => {
    const destroy = GPUDevice.prototype.destroy;
    GPUDevice.prototype.destroy = function () {
      new BroadcastChannel('destroyed').postMessage('device');
      return destroy.call(this);
    };
  });
  const destroyed = await page.evaluate(async () => {
    const told = new Promise((resolve) => {
      new BroadcastChannel('destroyed').onmessage = ({ data }) => resolve(data);
    });
    document.getElementById('one').remove();
    return Promise.race([told, new Promise((resolve) => setTimeout(resolve, 1000, 'late'))]);
  });
  assert.equal(destroyed, 'device');
});

test('what was measured on the GPU with one load is given to the next, and another page', async () => {
  const page = await two();
  const load = () => {
    const element = document.querySelector('latent-canvas');
    element.engine = 'webgpu';
    return element.load().then(({ tuning }) => tuning.text);
  };
  assert.equal(await page.evaluate(load), 'measured');
  await page.reload();
  assert.equal(await page.evaluate(load), 'measured, known');
});
