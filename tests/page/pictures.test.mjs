/**
 * The pictures that the built page draws in Chromium against diffusers' pictures of the same model, seed and scheduler:
 * PSNR of the RGB values at least 45 dB, and 35 dB with activations in float16. Prints the table. With the real engine and the bundled
 * model.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { GOLDEN_IMAGES, openPage, realSite, useBrowser } from './harness.mjs';

const LEAST_PSNR_DB = { f32: 45, f16: 35 };
/** What each choice of engine is made of. */
const ENGINE_NAMES = { cpu: 'burn-flex', webgpu: 'plan', burn: 'burn-wgpu' };
const { images } = JSON.parse(readFileSync(join(GOLDEN_IMAGES, 'images.json'), 'utf8'));
const full = images.filter(({ set }) => set === 'full');
const fewSteps = images.filter(({ set }) => set === 'few-steps');

const browser = useBrowser();
const table = [];
let site;
let embedded;
before(async () => {
  site = await realSite();
  embedded = await realSite({ at: '/a/b/' });
});
after(async () => {
  await site.close();
  await embedded.close();
  console.log(['engine  page          PSNR dB  largest  seconds  picture', ...table].join('\n'));
});

/** Draws in the page and compares the canvas with the expected PNG, both as the browser sees them. */
function drawAndCompare(page, image, set) {
  return page.evaluate(
    async ({ image, set, expectedUrl }) => {
      await customElements.whenDefined('latent-canvas');
      const element = document.querySelector('latent-canvas');
      Object.assign(element, set);
      const { prompt, scheduler, steps, seed, width, height } = image;
      const options = { prompt, scheduler, steps, seed, width, height, negativePrompt: image.negative_prompt, guidanceScale: image.guidance_scale };
      const { report } = await element.generate(options);
      const canvas = element.shadowRoot.querySelector('canvas');
      const got = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const bitmap = await createImageBitmap(await (await fetch(expectedUrl)).blob());
      const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d');
      context.drawImage(bitmap, 0, 0);
      const expected = context.getImageData(0, 0, bitmap.width, bitmap.height);
      if (got.width !== expected.width || got.height !== expected.height) {
        throw new Error(`the canvas is ${got.width} x ${got.height}, expected ${expected.width} x ${expected.height}`);
      }
      let squares = 0;
      let largest = 0;
      for (let i = 0; i < got.data.length; i++) {
        if (i % 4 === 3) continue;
        const difference = Math.abs(got.data[i] - expected.data[i]);
        squares += difference * difference;
        largest = Math.max(largest, difference);
      }
      const meanSquare = squares / ((got.data.length / 4) * 3);
      return { psnr: meanSquare === 0 ? Infinity : 10 * Math.log10(255 ** 2 / meanSquare), largest, report };
    },
    { image, set, expectedUrl: `${new URL(page.url()).origin}/golden/${image.file}` },
  );
}

/** @returns {Promise<object>} the report */
async function check(page, image, engine, where, wishes = {}) {
  const { psnr, largest, report } = await drawAndCompare(page, image, { engine, ...wishes });
  const seconds = (report.milliseconds.total / 1000).toFixed(1);
  table.push([engine.padEnd(7), where.padEnd(13), psnr.toFixed(1).padStart(7), String(largest).padStart(8), seconds.padStart(8), ` ${image.name}`].join(' '));
  assert.deepEqual([report.engine, report.requestedEngine], [ENGINE_NAMES[engine], engine]);
  assert.match(String(report.adapter), engine === 'cpu' ? /^null$/ : /swiftshader/);
  assert.ok(psnr >= LEAST_PSNR_DB[wishes.activations ?? 'f32'], `${psnr} dB`);
  return report;
}

describe('CPU engine, on the page', () => {
  let page;
  before(async () => {
    page = await openPage(browser.current, site.url);
    site.requests.length = 0;
  });
  test('there are twelve pictures', () => assert.equal(full.length, 12));
  for (const image of full) test(image.name, () => check(page, image, 'cpu', 'index.html'));
  test('the model was fetched once', () => {
    const weights = site.requests.filter((path) => path.endsWith('.safetensors'));
    assert.equal(weights.length, 3);
    assert.equal(new Set(weights).size, 3);
    assert.deepEqual(page.record.errors, []);
  });
});

describe('CPU engine, embedded in a page under another path', () => {
  for (const image of full.slice(0, 1)) {
    test(image.name, async () => {
      const page = await openPage(browser.current, `${embedded.url}bare.html`);
      await check(page, image, 'cpu', '/a/b/ embedded');
      assert.deepEqual(page.record.errors, []);
    });
  }
});

describe('WebGPU engine on the software adapter', () => {
  let page;
  before(async () => {
    page = await openPage(browser.current, site.url);
  });
  test('there are two pictures', () => assert.equal(fewSteps.length, 2));
  for (const image of fewSteps) {
    test(image.name, async () => {
      const report = await check(page, image, 'webgpu', 'index.html');
      assert.deepEqual([report.plan.activations, report.residency], ['f32', 'all_stages']);
      assert.equal(report.gpuBytesPeak, report.plannedBytesPeak);
    });
  }
  test('with a limit that only one stage at a time keeps', async () => {
    const [image] = fewSteps;
    const ahead = await page.evaluate(({ width, height, steps, scheduler }) => document.querySelector('latent-canvas').planMemory({ width, height, steps, scheduler }), image);
    const least = ahead.plan.stage_by_stage.peak_bytes;
    assert.ok(least < ahead.plan.all_stages.peak_bytes);
    const report = await check(page, image, 'webgpu', 'index.html', { budget: String(least) });
    assert.deepEqual([report.plan.activations, report.residency, report.plannedBytesPeak], ['f32', 'stage_by_stage', least]);
    assert.equal(report.gpuBytesPeak, least);
  });
  test('with activations in float16', async () => {
    const report = await check(page, fewSteps[0], 'webgpu', 'index.html', { activations: 'f16', budget: null });
    assert.equal(report.plan.activations, 'f16');
    assert.equal(report.gpuBytesPeak, report.plannedBytesPeak);
  });
});

describe('burn on the software adapter', () => {
  for (const image of fewSteps.slice(0, 1)) {
    test(image.name, async () => {
      const page = await openPage(browser.current, site.url);
      await check(page, image, 'burn', 'index.html');
      await page.context().close();
    });
  }
});
