/** The page around the element, as a person uses it. With the fake engine. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { fakeSite, openPage, useBrowser } from './harness.mjs';

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite();
});
after(() => site.close());

const open = (settings) => openPage(browser.current, site.url, settings);
const seedOf = async (page) => /Seed (\d+)/.exec(await page.textContent('#facts'))?.[1];

test('an example, a click, a picture: and it can be saved', async () => {
  const page = await open();
  await page.getByRole('button', { name: 'blue heart' }).click();
  assert.equal(await page.inputValue('#prompt'), 'blue heart');
  await page.getByRole('button', { name: 'Generate' }).click();
  await page.getByText('Done in').waitFor();
  await page.getByRole('img', { name: 'Image generated from the prompt: blue heart' }).waitFor();
  assert.match(await page.textContent('#facts'), /128 × 128 · CPU\sengine/);
  assert.equal(await page.textContent('#tokens'), '2 of 75 tokens');
  const waiting = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Save as PNG' }).click();
  assert.match((await waiting).suggestedFilename(), /^latent-canvas-\d+\.png$/);
  assert.deepEqual(page.record.errors, []);
});

test('before the first click: the size of the download is shown, and not a byte of it is fetched', async () => {
  site.requests.length = 0;
  const page = await open();
  await page.getByText('downloads the model: 0.3 MB').waitFor();
  await page.waitForTimeout(300);
  const heavy = site.requests.filter((path) => /weights|\.wasm|worker\.js/.test(path));
  assert.deepEqual(heavy, []);
  await page.click('#generate');
  await page.getByText('Done in').waitFor();
  assert.equal(await page.isVisible('#size-note'), false);
});

test('keys: Ctrl+Enter generates, Escape cancels; the focus is not lost', async () => {
  const page = await open();
  await page.fill('#prompt', 'slow');
  await page.fill('#steps', '300');
  await page.press('#prompt', 'Control+Enter');
  await page.getByText(/Drawing, step \d+ of 300, about/).waitFor();
  assert.match(await page.title(), /^\d+ % · latent-canvas$/);
  await page.press('#prompt', 'Escape');
  await page.getByText('Cancelled.').waitFor();
  assert.equal(await page.title(), 'latent-canvas');
  assert.equal(await page.textContent('#error'), '');
  await page.fill('#steps', '3');
  await page.focus('#generate');
  await page.keyboard.press('Enter');
  await page.getByText('Done in').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), 'generate');
});

test('the Cancel button stops a picture', async () => {
  const page = await open();
  await page.fill('#prompt', 'slow');
  await page.fill('#steps', '300');
  await page.click('#generate');
  await page.getByText('Drawing, step').waitFor();
  await page.click('#cancel');
  await page.getByText('Cancelled.').waitFor();
  assert.equal(await page.isVisible('#bar'), false);
});

test('seeds: random differs, reuse repeats', async () => {
  const page = await open();
  await page.fill('#steps', '1');
  const draw = async () => {
    await page.click('#generate');
    await page.getByText('Done in').waitFor();
    const seed = await seedOf(page);
    await page.evaluate(() => (document.getElementById('status').textContent = ''));
    return seed;
  };
  const first = await draw();
  const second = await draw();
  assert.notEqual(first, second);
  await page.getByRole('button', { name: 'Reuse last' }).click();
  assert.equal(await draw(), second);
  await page.getByRole('button', { name: 'Random' }).click();
  assert.equal(await page.inputValue('#seed'), '-1');
});

test('a mistake is explained in the alert beside the button, and gone with the next try', async () => {
  const page = await open();
  for (const [field, value, says] of [['#prompt', '  ', /prompt is empty/], ['#steps', '1001', /1 to 1000/], ['#guidance', '', /guidance scale is not a number/], ['#seed', '-7', /-1 for a random/]]) {
    const before = await page.inputValue(field);
    await page.fill(field, value);
    await page.click('#generate');
    await page.locator('[role=alert]', { hasText: says }).waitFor();
    await page.fill(field, before);
  }
  await page.click('#generate');
  await page.getByText('Done in').waitFor();
  assert.equal(await page.textContent('#error'), '');
});

test('a prompt that is too long shows what was cut', async () => {
  const page = await open();
  await page.fill('#prompt', `${'word '.repeat(75)}lost words`);
  await page.click('#generate');
  await page.locator('#cut', { hasText: '“lost words”' }).waitFor();
  await page.fill('#prompt', 'short');
  await page.getByText('1 of 75 tokens').waitFor();
  assert.equal(await page.isVisible('#cut'), false);
});

test('inputs survive a reload', async () => {
  const page = await open();
  const inputs = { '#prompt': 'a kept prompt', '#negative': 'blur', '#steps': '7', '#guidance': '3.5', '#seed': '42' };
  for (const [field, value] of Object.entries(inputs)) await page.fill(field, value);
  await page.selectOption('#scheduler', 'euler');
  await page.selectOption('#engine', 'cpu');
  await page.selectOption('#size', '192x192');
  await page.reload();
  for (const [field, value] of Object.entries(inputs)) assert.equal(await page.inputValue(field), value);
  assert.deepEqual(
    await page.evaluate(() => ['scheduler', 'engine', 'size'].map((id) => document.getElementById(id).value)),
    ['euler', 'cpu', '192x192'],
  );
  await page.click('#generate');
  await page.getByText('Done in').waitFor();
  assert.match(await page.textContent('#facts'), /Seed 42 · 192 × 192/);
});

test('without storage the page works', async () => {
  const page = await open({ init: "Object.defineProperty(globalThis, 'localStorage', { get() { throw new DOMException('denied', 'SecurityError'); } })" });
  await page.fill('#steps', '1');
  await page.click('#generate');
  await page.getByText('Done in').waitFor();
  assert.deepEqual(page.record.errors, []);
});

test('every control has a name, the status and the alert are live regions', async () => {
  const page = await open();
  const unnamed = await page.evaluate(() =>
    [...document.querySelectorAll('input, select, textarea, button, progress')]
      .filter((control) => !(control.labels?.length || control.textContent.trim() || control.getAttribute('aria-label')))
      .map((control) => control.id),
  );
  assert.deepEqual(unnamed, []);
  assert.equal(await page.locator('[role=status]').count(), 1);
  assert.equal(await page.locator('[role=alert]').count(), 1);
});

test('at 360 px nothing is cut off, and targets are large enough', async () => {
  const page = await open({ viewport: { width: 360, height: 740 } });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  const small = await page.evaluate(() =>
    [...document.querySelectorAll('button')].filter((button) => button.offsetHeight > 0 && button.offsetHeight < 24).map((button) => button.textContent),
  );
  assert.deepEqual(small, []);
});

test('first paint within a second, and nothing from another site', async () => {
  const context = await browser.current.newContext();
  const page = await context.newPage();
  const others = [];
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && url.origin !== site.origin) others.push(request.url());
  });
  await page.goto(site.url);
  await page.click('#generate');
  await page.getByText('Done in').waitFor();
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
  assert.ok(paint < 1000, `${paint} ms`);
  assert.deepEqual(others, []);
});
