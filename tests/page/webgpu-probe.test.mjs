/** No WebGPU, and why: each cause has its own message, nothing is downloaded, and the CPU engine is offered. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { asked, callElement, fakeSite, openPage, useBrowser } from './harness.mjs';

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite();
});
after(() => site.close());

const fakeGpu = (gpu, secure = true) => `
  Object.defineProperty(Navigator.prototype, 'gpu', { configurable: true, get: () => (${gpu}) });
  Object.defineProperty(globalThis, 'isSecureContext', { value: ${secure} });`;

const CASES = [
  ['an insecure page', fakeGpu('undefined', false), 'insecure-context', /https/],
  ['a browser without it', fakeGpu('undefined'), 'no-webgpu', /browser has no WebGPU/],
  ['no adapter', fakeGpu('{ requestAdapter: async () => null }'), 'no-webgpu', /graphics adapter.*driver/],
  ['an adapter request that fails', fakeGpu("{ requestAdapter: async () => { throw new Error('GPU process gone') } }"), 'no-webgpu', /GPU process gone/],
];

for (const [name, init, code, says] of CASES) {
  test(`${name}: engine=webgpu is the error ${code}, engine=auto takes the CPU and says so`, async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`, { init });
    site.requests.length = 0;
    const refused = await callElement(page, { set: { engine: 'webgpu' }, args: { prompt: 'x', steps: 1 } });
    assert.equal(refused.code, code);
    assert.match(refused.message, says);
    assert.match(refused.message, /engine "cpu"/);
    assert.equal(refused.errors.length, 1);
    assert.deepEqual(asked(site), []);
    const auto = await callElement(page, { set: { engine: 'auto' }, args: { prompt: 'x', steps: 1 } });
    const { report } = auto.images[0];
    assert.deepEqual([report.engine, report.requestedEngine], ['fake-cpu', 'auto']);
    assert.match(report.engineNote, says);
    assert.match(report.engineNote, /CPU engine is used/);
    await page.context().close();
  });
}

test('engine=auto takes a real adapter, and forgets a failure', async () => {
  const hardware = `{ requestAdapter: async () => globalThis.noGpu ? null : ({ info: { vendor: 'acme', architecture: 'a1' } }) }`;
  const page = await openPage(browser.current, `${site.url}bare.html`, { init: fakeGpu(hardware) });
  const choose = (noGpu) =>
    page.evaluate(async (noGpu) => {
      globalThis.noGpu = noGpu;
      const { chooseEngine } = await import('/gpu-probe.js');
      return (await chooseEngine('auto')).engine;
    }, noGpu);
  assert.equal(await choose(true), 'cpu');
  assert.equal(await choose(false), 'webgpu');
});

test('the page says so beside the choice of the engine', async () => {
  const page = await openPage(browser.current, site.url, { init: fakeGpu('{ requestAdapter: async () => null }') });
  await page.getByText(/gave no graphics adapter.*The CPU engine is used/).waitFor();
});
