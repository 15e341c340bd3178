/** The element by itself: attributes, events, results. With the fake engine. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { callElement, fakeSite, openPage, useBrowser } from './harness.mjs';

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite();
});
after(() => site.close());

const bare = (settings) => openPage(browser.current, `${site.url}bare.html`, settings);

test('a prompt becomes a picture: events, pixels, PNG, label, state', async () => {
  const page = await bare();
  const ended = await callElement(page, { args: { prompt: 'a frog', seed: 5, steps: 4, width: 96, height: 64 } });
  assert.equal(ended.code, null, ended.message);
  assert.equal(ended.seed, 5);
  assert.equal(ended.errors.length, 0);
  assert.equal(ended.images.length, 1);
  const [image] = ended.images;
  assert.deepEqual([image.seed, image.width, image.height, image.tokens.count], [5, 96, 64, 2]);
  assert.deepEqual([image.report.engine, image.report.requestedEngine, image.report.adapter], ['fake-cpu', 'auto', null]);
  assert.match(image.report.engineNote, /software.*CPU engine/);
  for (const stage of ['engine', 'download', 'prepare', 'encode', 'denoise', 'decode']) assert.ok(ended.stages.includes(stage), stage);

  const shown = await page.evaluate(async () => {
    const element = document.querySelector('latent-canvas');
    const canvas = element.shadowRoot.querySelector('canvas');
    const bitmap = await createImageBitmap(await element.toBlob());
    const drawn = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d');
    drawn.drawImage(bitmap, 0, 0);
    const pixels = (context) => [...context.getImageData(0, 0, 96, 64).data];
    const canvasPixels = pixels(canvas.getContext('2d'));
    return {
      size: [canvas.width, canvas.height],
      same: pixels(drawn).every((value, i) => value === canvasPixels[i]),
      role: canvas.getAttribute('role'),
      label: canvas.getAttribute('aria-label'),
      state: element.state,
      matches: element.matches(':state(ready)'),
      info: element.info.name,
    };
  });
  assert.deepEqual(shown, {
    size: [96, 64],
    same: true,
    role: 'img',
    label: 'Image generated from the prompt: a frog',
    state: 'ready',
    matches: true,
    info: 'fake',
  });
  assert.deepEqual(page.record.errors, []);
});

test('attributes give the options, alt the label, and the model its own size', async () => {
  const page = await bare();
  await page.evaluate(() => {
    const element = document.querySelector('latent-canvas');
    element.setAttribute('prompt', 'owl');
    element.setAttribute('seed', '11');
    element.setAttribute('steps', '2');
    element.setAttribute('guidance-scale', '3');
    element.alt = 'an owl';
  });
  const ended = await callElement(page, {});
  assert.deepEqual([ended.code, ended.seed, ended.images[0].width], [null, 11, 64]);
  const seen = await page.evaluate(() => {
    const element = document.querySelector('latent-canvas');
    const { prompt, seed, steps, guidanceScale, width, scheduler, engine, loading } = element;
    const blue = element.shadowRoot.querySelector('canvas').getContext('2d').getImageData(0, 0, 1, 1).data[2];
    return { prompt, seed, steps, guidanceScale, width, scheduler, engine, loading, blue, alt: element.getAttribute('alt'), label: element.shadowRoot.querySelector('canvas').ariaLabel };
  });
  const blue = (11 * 37 + 3 * 11) % 256;
  const expected = { prompt: 'owl', seed: 11, steps: 2, guidanceScale: 3, width: null, scheduler: null, engine: 'auto', loading: 'lazy', blue, alt: 'an owl', label: 'an owl' };
  assert.deepEqual(seen, expected);
});

test('properties set before the definition are adopted', async () => {
  site.bodies.set('/late.html', '<!doctype html><title>late</title><body><latent-canvas></latent-canvas></body>');
  const page = await openPage(browser.current, `${site.url}late.html`);
  const seen = await page.evaluate(async (script) => {
    const element = document.querySelector('latent-canvas');
    Object.assign(element, { prompt: 'early', steps: 3, guidanceScale: 1.5, controls: true });
    await import(script);
    return { own: Object.keys(element), attribute: element.getAttribute('guidance-scale'), prompt: element.prompt, steps: element.steps, controls: element.hasAttribute('controls') };
  }, `${site.url}latent-canvas.js`);
  assert.deepEqual(seen, { own: [], attribute: '1.5', prompt: 'early', steps: 3, controls: true });
});

test('lazy: not a byte of the model before load(); eager: loaded and drawn at once', async () => {
  site.requests.length = 0;
  const lazy = await bare();
  await lazy.evaluate(async () => {
    const element = document.querySelector('latent-canvas');
    Object.assign(element, { prompt: 'x', steps: 2 });
    await new Promise((resolve) => setTimeout(resolve, 400));
  });
  assert.deepEqual(site.requests.filter((path) => /models|pkg|worker\.js/.test(path)), []);
  const loaded = await callElement(lazy, { method: 'load' });
  assert.equal(loaded.code, null);
  assert.ok(site.requests.includes('/models/emoji/unet/weights.bin'));

  const eager = await openPage(browser.current, `${site.url}late.html`);
  const seed = await eager.evaluate(async (script) => {
    await import(script);
    const element = document.createElement('latent-canvas');
    element.setAttribute('loading', 'eager');
    element.setAttribute('prompt', 'x');
    element.setAttribute('seed', '3');
    const image = new Promise((resolve) => element.addEventListener('image', ({ detail }) => resolve(detail.seed)));
    document.body.append(element);
    return image;
  }, `${site.url}latent-canvas.js`);
  assert.equal(seed, 3);
});

test('an eager element that fails fires one error event and leaves no unhandled rejection', async () => {
  const page = await bare();
  const errors = await page.evaluate(async () => {
    const element = document.createElement('latent-canvas');
    Object.assign(element, { loading: 'eager', prompt: 'x', steps: 0 });
    const errors = [];
    element.addEventListener('error', ({ detail }) => errors.push(detail.code));
    document.body.append(element);
    await new Promise((resolve) => setTimeout(resolve, 300));
    return errors;
  });
  assert.deepEqual(errors, ['invalid-argument']);
  assert.deepEqual(page.record.errors, []);
});

test('a random seed is drawn, told, and different each time', async () => {
  const page = await bare();
  const seeds = new Set();
  for (let i = 0; i < 3; i++) {
    const { seed } = await callElement(page, { args: { prompt: 'x', steps: 1 } });
    assert.ok(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32);
    seeds.add(seed);
  }
  assert.equal(seeds.size, 3);
});

test('the time left is told only after two steps and shrinks to nothing', async () => {
  const page = await bare();
  const etas = await page.evaluate(async () => {
    const element = document.querySelector('latent-canvas');
    const etas = [];
    element.addEventListener('progress', ({ detail }) => detail.stage === 'denoise' && etas.push(detail.etaMs));
    await element.generate({ prompt: 'slow', steps: 6 });
    return etas;
  });
  assert.deepEqual(etas.slice(0, 2), [null, null]);
  assert.ok(etas[2] > 200 && etas[2] < 2000, String(etas[2]));
  assert.equal(etas.at(-1), 0);
});

test('controls: the built-in button draws, shows progress, cancels and shows errors', async () => {
  const page = await bare();
  await page.evaluate(() => Object.assign(document.querySelector('latent-canvas'), { prompt: 'slow', steps: 100, controls: true }));
  const button = page.locator('latent-canvas').getByRole('button');
  await button.click();
  await page.getByText('Drawing, step').waitFor();
  assert.equal(await button.textContent(), 'Cancel');
  await button.click();
  await page.waitForFunction(() => document.querySelector('latent-canvas').state === 'ready');
  assert.equal(await button.textContent(), 'Draw');
  await page.evaluate(() => (document.querySelector('latent-canvas').prompt = ''));
  await button.click();
  await page.getByText('The prompt is empty').waitFor();
  assert.deepEqual(page.record.errors, []);
});

test('unknown options are refused, tokens are counted, download() names the file', async () => {
  const page = await bare();
  const refused = await callElement(page, { args: { prompt: 'x', step: 3 } });
  assert.equal(refused.code, 'invalid-argument');
  assert.match(refused.message, /"step".*steps/);
  assert.equal(await page.evaluate(() => document.querySelector('latent-canvas').countTokens('a b')), null);
  await callElement(page, { args: { prompt: 'x', steps: 1, seed: 77 } });
  const tokens = await page.evaluate(() => document.querySelector('latent-canvas').countTokens('a b'));
  assert.deepEqual(tokens, { count: 2, limit: 75, truncatedText: null });
  const waiting = page.waitForEvent('download');
  await page.evaluate(() => document.querySelector('latent-canvas').download());
  assert.equal((await waiting).suggestedFilename(), 'latent-canvas-77.png');
});

test('a long message is as wide as the picture; a text in place of options is refused as what it is', async () => {
  const page = await bare();
  const widths = await page.evaluate(async () => {
    const element = document.querySelector('latent-canvas');
    element.controls = true;
    await element.generate({ prompt: 'x', steps: 1, seed: 1, width: 96, height: 64 });
    const before = element.offsetWidth;
    const message = await element.generate('a red apple').catch((error) => error.message);
    await element.generate({ prompt: 'x', nonsense: 1 }).catch(() => {});
    const shown = element.shadowRoot.querySelector('[part=message]').textContent;
    return { before, after: element.offsetWidth, message, shown };
  });
  assert.equal(widths.after, widths.before);
  assert.match(widths.message, /must be an object/);
  assert.match(widths.shown, /There is no option "nonsense"/);
});
