/** A GPU that goes away in the middle of a picture: an error at once, nothing pending, and the page goes on working. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { openPage, realSite, useBrowser } from './harness.mjs';

const PICTURE = { prompt: 'a frog', steps: 50, seed: 1, width: 64, height: 64 };

const browser = useBrowser();
let site;
before(async () => {
  site = await realSite();
});
after(() => site.close());

const read = (path) => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return ''; // a process that ended meanwhile
  }
};

/** Ends the GPU process of the browser that this process started, as a crash of the driver would. */
function killGpuProcess() {
  const parent = (pid) => Number(read(`/proc/${pid}/stat`).split(') ').pop().split(' ')[1]);
  const isOurs = (pid) => pid > 1 && (pid === process.pid || isOurs(parent(pid)));
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number);
  const gpu = pids.find((pid) => read(`/proc/${pid}/cmdline`).includes('--type=gpu-process') && isOurs(pid));
  assert.ok(gpu, 'the browser has a GPU process');
  process.kill(gpu, 'SIGKILL');
}

for (const [engine, next] of [['webgpu', 'webgpu'], ['burn', 'cpu']]) {
  test(`engine ${engine}: a lost device rejects the picture with its own code, and the next picture works, on ${next}`, async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    await page.evaluate(async ({ options, engine }) => {
      await customElements.whenDefined('latent-canvas');
      const element = document.querySelector('latent-canvas');
      element.engine = engine;
      globalThis.errors = [];
      element.addEventListener('error', ({ detail }) => globalThis.errors.push(detail.code));
      const denoising = new Promise((resolve) => {
        element.addEventListener('progress', ({ detail }) => detail.stage === 'denoise' && resolve());
      });
      globalThis.ended = element.generate(options).then(
        () => ({ code: null }),
        ({ code, message }) => ({ code, message, at: performance.now() }),
      );
      await Promise.race([denoising, globalThis.ended]);
    }, { options: PICTURE, engine });

    const lost = Date.now();
    killGpuProcess();
    const ended = await page.evaluate(() => globalThis.ended);
    assert.equal(ended.code, 'device-lost', ended.message);
    assert.match(ended.message, /^The GPU was lost .*Generate again/);
    assert.ok(Date.now() - lost < 5000, `${Date.now() - lost} ms`);
    assert.deepEqual(await page.evaluate(() => globalThis.errors), ['device-lost']);
    assert.deepEqual(page.record.errors, []);

    const report = await page.evaluate(async ({ options, next }) => {
      const element = document.querySelector('latent-canvas');
      element.engine = next;
      return (await element.generate({ ...options, steps: 1 })).report;
    }, { options: PICTURE, next });
    assert.equal(report.engine, { cpu: 'burn-flex', webgpu: 'plan' }[next]);
    await page.context().close();
  });
}

test('taken away by the page itself, in the middle of a picture: only the cancel is told', async () => {
  const page = await openPage(browser.current, `${site.url}bare.html`);
  const errors = await page.evaluate(async (options) => {
    await customElements.whenDefined('latent-canvas');
    const element = Object.assign(document.querySelector('latent-canvas'), { engine: 'webgpu', model: '/tiny/' });
    const errors = [];
    element.addEventListener('error', ({ detail }) => errors.push(detail.code));
    const drawing = element.generate(options).catch(() => {});
    await new Promise((resolve) => element.addEventListener('progress', ({ detail }) => detail.step === 1 && resolve()));
    element.unload();
    await drawing;
    await new Promise((resolve) => setTimeout(resolve, 500));
    return errors;
  }, { ...PICTURE, width: 16, height: 16 });
  assert.deepEqual(errors, ['cancelled']);
  assert.deepEqual(page.record.errors, []);
  await page.context().close();
});
