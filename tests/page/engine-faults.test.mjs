/** Real faults in front of the real engine: the code, one error event, nothing unhandled, and the next picture works. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { callElement, openPage, realSite, useBrowser, WWW } from './harness.mjs';

const MODEL = '/models/emoji/';
const UNET = 'unet/diffusion_pytorch_model.safetensors';
const GOOD = { prompt: 'a frog', steps: 1, seed: 1, width: 64, height: 64 };
const HTML = '<!doctype html><title>Not the file</title>';

const browser = useBrowser();
let site;
before(async () => {
  site = await realSite();
});
after(() => site.close());
afterEach(() => {
  site.faults.length = 0;
  for (const path of [...site.bodies.keys()]) if (path.startsWith(MODEL)) site.bodies.delete(path);
});

const readText = (path) => readFileSync(join(WWW, 'models/emoji', path), 'utf8');
const readJson = (path) => JSON.parse(readText(path));
const replace = (path, body) => site.bodies.set(MODEL + path, typeof body === 'string' ? body : JSON.stringify(body));
/** Without a manifest the files are taken as they are. */
const dropManifest = () => site.faults.push({ match: 'manifest.json', status: 404 });

/** Changes a config file, and takes away the manifest that would tell. */
const changeConfig = (path, changes) => (dropManifest(), replace(path, { ...readJson(path), ...changes }));
const { num_hidden_layers: textLayers } = readJson('text_encoder/config.json');

const CASES = [
  ['weights are missing', () => site.faults.push({ match: UNET, status: 404 }), 'http', /404 for .*unet.*Check the model's address/],
  ['the whole model is missing', () => site.faults.push({ match: MODEL, status: 404 }), 'http', /404 for .*model_index\.json/],
  ['weights are a page', () => site.faults.push({ match: UNET, html: HTML }), 'header', /safetensors.*web page.*check the address/],
  ['weights are a page, without a manifest', () => (dropManifest(), site.faults.push({ match: UNET, html: HTML })), 'header', /safetensors.*web page/],
  ['weights are cut', () => site.faults.push({ match: UNET, cutAfter: 4_000_000 }), 'network', /safetensors failed.*Check the network/],
  ['a config is a page', () => (dropManifest(), replace('unet/config.json', HTML)), 'text', /unet\/config\.json.*web page/],
  ['a config is no JSON', () => (dropManifest(), replace('unet/config.json', 'no JSON')), 'config', /unet\/config\.json.*not a JSON object/],
  ['a config has another length', () => replace('unet/config.json', '{}'), 'truncated', /unet\/config\.json has 2 bytes/],
  ['a config has other bytes', () => replace('unet/config.json', readText('unet/config.json').replace('1', '2')), 'checksum-mismatch', /unet\/config\.json.*SHA-256/],
  ['another kind of model', () => changeConfig('model_index.json', { _class_name: 'FluxPipeline' }), 'config', /model_index\.json.*FluxPipeline/],
  ['a tensor has the wrong shape', () => changeConfig('unet/config.json', { block_out_channels: [64, 128, 256] }), 'shape-mismatch', /tensor \S+ has the shape \[/],
  ['tensors are missing', () => changeConfig('text_encoder/config.json', { num_hidden_layers: textLayers + 1 }), 'missing-tensor', new RegExp(`lacks tensors.*layers\\.${textLayers}`)],
  ['the file has more tensors than the model', () => changeConfig('text_encoder/config.json', { num_hidden_layers: 2 }), 'unused-tensor', /layers\.2/],
];

for (const [name, arrange, code, says] of CASES) {
  test(name, async () => {
    const page = await openPage(browser.current, `${site.url}bare.html`);
    arrange();
    const ended = await callElement(page, { set: { engine: 'cpu' }, args: GOOD });
    assert.equal(ended.code, code, ended.message);
    assert.match(ended.message, says);
    // For people: a sentence, and not too long to read.
    assert.match(ended.message, /^[A-Z].*\.$/);
    assert.ok(ended.message.length < 450, ended.message);
    assert.deepEqual(ended.errors, [{ code, message: ended.message }]);
    assert.deepEqual(page.record.errors, []);
    site.faults.length = 0;
    for (const path of [...site.bodies.keys()]) if (path.startsWith(MODEL)) site.bodies.delete(path);
    const again = await callElement(page, { args: GOOD });
    assert.equal(again.code, null, again.message);
    await page.context().close();
  });
}

test('cancel within one step, then the same seed gives the same pixels', async () => {
  const page = await openPage(browser.current, `${site.url}bare.html`);
  const seen = await page.evaluate(async (options) => {
    await customElements.whenDefined('latent-canvas');
    const element = document.querySelector('latent-canvas');
    element.engine = 'cpu';
    const pixels = () => {
      const canvas = element.shadowRoot.querySelector('canvas');
      return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    };
    await element.generate({ ...options, steps: 2 });
    const first = pixels();
    let stepMs = 0;
    let last = performance.now();
    element.addEventListener('progress', ({ detail }) => {
      if (detail.stage !== 'denoise') return;
      if (detail.step > 1) stepMs = Math.max(stepMs, performance.now() - last);
      last = performance.now();
    });
    const long = element.generate({ ...options, steps: 200 });
    await new Promise((resolve) => element.addEventListener('progress', ({ detail }) => detail.step === 4 && resolve()));
    const start = performance.now();
    element.cancel();
    const code = await long.catch((error) => error.code);
    const waitedMs = performance.now() - start;
    await element.generate({ ...options, steps: 2 });
    const second = pixels();
    return { code, waitedMs, stepMs, same: first.every((value, i) => value === second[i]) };
  }, GOOD);
  assert.equal(seen.code, 'cancelled');
  assert.ok(seen.waitedMs < 3 * seen.stepMs + 200, `waited ${seen.waitedMs} ms, a step takes ${seen.stepMs} ms`);
  assert.equal(seen.same, true);
});

test('the tokenizer counts and tells what was cut', async () => {
  const page = await openPage(browser.current, `${site.url}bare.html`);
  await callElement(page, { set: { engine: 'cpu' }, method: 'load' });
  const tokens = await page.evaluate(async () => {
    const element = document.querySelector('latent-canvas');
    return [await element.countTokens('a frog'), await element.countTokens('frog '.repeat(90))];
  });
  assert.deepEqual([tokens[0].count, tokens[0].limit, tokens[0].truncatedText], [3, 75, null]);
  assert.match(tokens[1].truncatedText, /frog/);
});
