/** What the tests share: one browser, sites with the real or the fake engine, and a page that keeps a record. */
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before } from 'node:test';
import { launchBrowser } from './browser.mjs';
import { serve } from './server.mjs';

export const WWW = fileURLToPath(new URL('../../www', import.meta.url));
export const TINY_MODEL = fileURLToPath(new URL('../golden/tiny-model', import.meta.url));
export const GOLDEN_IMAGES = fileURLToPath(new URL('../golden/images', import.meta.url));
const FAKE_ENGINE = fileURLToPath(new URL('./fake-engine', import.meta.url));

/** Content-Security-Policy of a careful site (P02 in the element's test list). */
export const STRICT_CSP =
  "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'";

/** Starts one browser for the tests of a file. @returns {{current: import('playwright-core').Browser}} */
export function useBrowser() {
  const holder = { current: null };
  before(async () => {
    holder.current = await launchBrowser();
  });
  after(() => holder.current?.close());
  return holder;
}

/** Makes a model folder for the fake engine: a manifest and files of random length. */
function makeFakeModel(dir) {
  const files = [
    { path: 'unet/weights.bin', length: 200_000 },
    { path: 'vae/weights.bin', length: 50_001 },
    { path: 'model_index.json', length: 2 },
  ];
  for (const { path, length } of files) {
    mkdirSync(join(dir, path, '..'), { recursive: true });
    writeFileSync(join(dir, path), path.endsWith('.json') ? '{}' : Buffer.alloc(length, 7));
  }
  writeFileSync(join(dir, 'manifest.json'), JSON.stringify({ name: 'fake', files }));
}

/**
 * The page with the fake engine and a model of a quarter of a megabyte.
 *
 * @param {{at?: string, headers?: Record<string, string>}} [settings] at: the path under which www/ is served
 */
export async function fakeSite({ at = '/', headers } = {}) {
  const model = mkdtempSync(join(tmpdir(), 'latent-canvas-'));
  makeFakeModel(model);
  const mounts = [
    { at, dir: WWW },
    { at: `${at}pkg/cpu/`, dir: FAKE_ENGINE },
    { at: `${at}pkg/webgpu/`, dir: FAKE_ENGINE },
    { at: `${at}pkg/burn/`, dir: FAKE_ENGINE },
    { at: `${at}models/emoji/`, dir: model },
    { at: '/panics/', dir: model },
    { at: '/copy/', dir: model },
  ];
  const site = await serve({ mounts, headers });
  site.bodies.set('/bare.html', barePage(`${at}latent-canvas.js`));
  const close = site.close;
  site.close = async () => {
    await close();
    rmSync(model, { recursive: true });
  };
  return site;
}

/**
 * The page as it is built, with the real engine and the bundled model; at /golden/ the expected pictures, at /tiny/ a model of 64 KB whose
 * pictures show nothing.
 *
 * @param {{at?: string}} [settings] at: the path under which www/ is served
 */
export async function realSite({ at = '/' } = {}) {
  const site = await serve({ mounts: [{ at, dir: WWW }, { at: '/golden/', dir: GOLDEN_IMAGES }, { at: '/tiny/', dir: TINY_MODEL }] });
  site.bodies.set('/bare.html', barePage(`${at}latent-canvas.js`));
  return site;
}

/** What was asked of the site, without the icon that Chromium looks for on its own. */
export function asked(site) {
  return site.requests.filter((path) => path !== '/favicon.ico');
}

/** A page of an embedder: nothing but the element. */
export function barePage(script, body = '<latent-canvas id="one"></latent-canvas>') {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>embedder</title>
<script type="module" src="${script}"></script><body>${body}</body></html>`;
}

/**
 * Opens an address; `page.record` collects what no page of ours may produce.
 *
 * @returns {Promise<import('playwright-core').Page>}
 */
export async function openPage(browser, url, { init, ...contextOptions } = {}) {
  const context = await browser.newContext(contextOptions);
  const page = await context.newPage();
  page.record = { errors: [], warnings: [] };
  page.on('pageerror', (error) => page.record.errors.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'warning') page.record.warnings.push(message.text());
  });
  await page.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => {
      globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  if (init) await page.addInitScript(init);
  await page.goto(url);
  return page;
}

/**
 * Calls a method of the page's first element and tells how it ended, together with the events it fired.
 *
 * @returns {Promise<{code: string|null, message: string|null, errors: object[], images: object[], stages: string[], seed: number|undefined}>}
 */
export function callElement(page, { set = {}, method = 'generate', args = {}, selector = 'latent-canvas', timeouts = {} }) {
  return page.evaluate(
    async ({ set, method, args, selector, timeouts }) => {
      await customElements.whenDefined('latent-canvas');
      const element = document.querySelector(selector);
      Object.assign(customElements.get('latent-canvas').timeouts, timeouts);
      const ended = { code: null, message: null, errors: [], images: [], stages: [] };
      const on = (type, list, pick) => {
        const listener = (event) => list.push(pick(event.detail));
        element.addEventListener(type, listener);
        return () => element.removeEventListener(type, listener);
      };
      const off = [
        on('error', ended.errors, (detail) => detail),
        on('image', ended.images, ({ seed, width, height, tokens, report }) => ({ seed, width, height, tokens, report })),
        on('progress', ended.stages, (detail) => detail.stage),
      ];
      Object.assign(element, set);
      try {
        const value = await element[method](args);
        ended.seed = value?.seed;
      } catch (error) {
        ended.code = error.code;
        ended.message = error.message;
      }
      // Events that come late, or twice, are to be seen.
      await new Promise((resolve) => setTimeout(resolve, 50));
      for (const remove of off) remove();
      return ended;
    },
    { set, method, args, selector, timeouts },
  );
}
