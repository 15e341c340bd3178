/** The element on other people's pages: servers, double scripts, strict policies, other origins. With the fake engine. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { asked, barePage, callElement, fakeSite, openPage, STRICT_CSP, useBrowser, WWW } from './harness.mjs';

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite({ at: '/a/b/' });
});
after(() => site.close());

const GOOD = { prompt: 'a frog', steps: 2, seed: 1 };

test('imported in bare Node it touches no global and defines nothing', () => {
  const script = `
    const before = Reflect.ownKeys(globalThis).length;
    const { LatentCanvas, LatentError } = await import(${JSON.stringify(pathToFileURL(join(WWW, 'latent-canvas.js')).href)});
    LatentCanvas.define();
    console.log(typeof LatentCanvas, typeof LatentError, Reflect.ownKeys(globalThis).length - before);`;
  const said = execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' });
  assert.equal(said.trim(), 'function function 0');
});

test('the version of the element is the version of the workspace', () => {
  const manifest = readFileSync(join(WWW, '../Cargo.toml'), 'utf8');
  const [, version] = /^version = "(.+)"/m.exec(manifest);
  assert.match(readFileSync(join(WWW, 'latent-canvas.js'), 'utf8'), new RegExp(`static version = '${version}'`));
});

test('no script of the page is past 500 lines or names another site', () => {
  for (const name of readdirSync(WWW).filter((name) => /\.(m?js|html|css)$/.test(name))) {
    const text = readFileSync(join(WWW, name), 'utf8');
    assert.ok(text.split('\n').length <= 500, name);
    assert.doesNotMatch(text, /https?:\/\/(?!\[|www\.w3\.org)[a-z]/, name);
  }
});

test('served under /a/b/, everything is fetched from there', async () => {
  const page = await openPage(browser.current, `${site.url}bare.html`);
  site.requests.length = 0;
  const ended = await callElement(page, { args: GOOD });
  assert.equal(ended.code, null, ended.message);
  assert.ok(site.requests.includes('/a/b/models/emoji/manifest.json'));
  assert.deepEqual(asked(site).filter((path) => !path.startsWith('/a/b/')), []);
});

test('loaded twice: one definition, no exception; another version: a warning', async () => {
  const page = await openPage(browser.current, `${site.url}bare.html`);
  const same = await page.evaluate(async () => {
    await customElements.whenDefined('latent-canvas');
    const first = customElements.get('latent-canvas');
    const { LatentCanvas } = await import('/a/b/latent-canvas.js?again');
    return [first === customElements.get('latent-canvas'), LatentCanvas === first];
  });
  assert.deepEqual(same, [true, false]);
  assert.deepEqual(page.record.warnings, []);
  await page.evaluate(async () => {
    const { LatentCanvas } = await import('/a/b/latent-canvas.js?again');
    class Other extends LatentCanvas {
      static version = '9.9.9';
    }
    Other.define();
  });
  assert.equal(page.record.warnings.length, 1);
  assert.match(page.record.warnings[0], /0\.1\.0.*9\.9\.9/);
  assert.equal((await callElement(page, { args: GOOD })).code, null);
  assert.deepEqual(page.record.errors, []);
});

test('a strict Content-Security-Policy: it works with zero violations', async () => {
  site.headers['content-security-policy'] = STRICT_CSP;
  const page = await openPage(browser.current, `${site.url}bare.html`);
  const ended = await callElement(page, { set: { controls: true }, args: GOOD });
  assert.equal(ended.code, null, ended.message);
  assert.deepEqual(await page.evaluate(() => globalThis.violations), []);
  delete site.headers['content-security-policy'];
});

test('the page itself has a policy and keeps it', async () => {
  const page = await openPage(browser.current, `${site.url}a/b/index.html`);
  await page.fill('#steps', '2');
  await page.click('#generate');
  await page.getByText('Done in').waitFor();
  assert.deepEqual(await page.evaluate(() => globalThis.violations), []);
  assert.deepEqual(page.record.errors, []);
});

const POLICIES = [
  ['without wasm-unsafe-eval', STRICT_CSP.replace(" 'wasm-unsafe-eval'", ''), /'wasm-unsafe-eval'/],
  ['without workers', STRICT_CSP.replace("worker-src 'self'", "worker-src 'none'"), /worker-src 'self'/],
];
for (const [name, policy, says] of POLICIES) {
  test(`a policy ${name}: one message that names what is missing`, async () => {
    site.headers['content-security-policy'] = policy;
    const page = await openPage(browser.current, `${site.url}bare.html`);
    const ended = await callElement(page, { args: GOOD });
    delete site.headers['content-security-policy'];
    assert.equal(ended.code, 'worker-failed', ended.message);
    assert.match(ended.message, says);
    assert.equal(ended.errors.length, 1);
  });
}

test('the script from another origin: worker, wasm and model come from beside it', async () => {
  const embedder = await fakeSite();
  site.headers['access-control-allow-origin'] = '*';
  embedder.bodies.set('/cdn.html', barePage(`${site.url}a/b/latent-canvas.js`));
  const page = await openPage(browser.current, `${embedder.url}cdn.html`);
  site.requests.length = 0;
  const ended = await callElement(page, { args: GOOD });
  assert.equal(ended.code, null, ended.message);
  for (const file of ['worker.js', 'pkg/cpu/latent_canvas_bg.wasm', 'models/emoji/unet/weights.bin']) {
    assert.ok(site.requests.includes(`/a/b/${file}`), file);
  }
  assert.deepEqual(asked(embedder).filter((path) => path !== '/cdn.html'), []);

  embedder.headers['content-security-policy'] = `default-src 'self' ${site.origin}; script-src ${site.origin} 'wasm-unsafe-eval'; worker-src 'self'`;
  const strict = await openPage(browser.current, `${embedder.url}cdn.html`);
  const refused = await callElement(strict, { args: GOOD });
  assert.equal(refused.code, 'worker-failed');
  assert.match(refused.message, /worker-src blob:.*own site/);
  delete site.headers['access-control-allow-origin'];
  await embedder.close();
});

test('the script from a blob: it imports, and says how to host it when used', async () => {
  const page = await openPage(browser.current, `${site.url}bare.html`);
  const said = await page.evaluate(async () => {
    const source = await (await fetch('/a/b/worker-start.js')).text();
    const url = URL.createObjectURL(new Blob([source.replace('./errors.js', `${location.origin}/a/b/errors.js`)], { type: 'text/javascript' }));
    const { startWorker } = await import(url);
    try {
      startWorker();
      return 'started';
    } catch (error) {
      return `${error.code}: ${error.message}`;
    }
  });
  assert.match(said, /^worker-failed: .*blob.*folder of a web server/);
});
