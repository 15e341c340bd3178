/** Calls that no manual describes, and moments that are hard to hit: each settles, with a code, and nothing is left behind. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { barePage, callElement, fakeSite, openPage, useBrowser } from './harness.mjs';

const browser = useBrowser();
let site;
before(async () => {
  site = await fakeSite();
  site.bodies.set('/two.html', barePage('/latent-canvas.js', '<latent-canvas id="one"></latent-canvas><latent-canvas id="two"></latent-canvas>'));
});
after(() => site.close());

const open = async (path = 'two.html') => {
  const page = await openPage(browser.current, site.url + path);
  await page.evaluate(() => customElements.whenDefined('latent-canvas').then(() => {}));
  return page;
};

test('arguments of any kind end in a promise, and each refusal in one event', async () => {
  const page = await open();
  const seen = await page.evaluate(async () => {
    const one = document.getElementById('one');
    one.prompt = 'x';
    const settle = async (call) => {
      let events = 0;
      const count = () => (events += 1);
      one.addEventListener('error', count);
      // A throw instead of a rejection would end this test.
      const code = await call().then(() => null, (error) => error.code ?? error.name);
      one.removeEventListener('error', count);
      return [code, events];
    };
    const getter = { get prompt() { throw new Error('mine'); } };
    return {
      taken: [await settle(() => one.generate(null)), await settle(() => one.load(null)), await settle(() => one.load())],
      refused: [
        await settle(() => one.generate({ signal: 5 })),
        await settle(() => one.load({ signal: {} })),
        await settle(() => one.generate('red apple')),
        await settle(() => one.generate(new Event('click'))),
        await settle(() => one.generate({ prompt: Symbol('x') })),
        await settle(() => one.generate({ width: 64n })),
      ],
      broken: await settle(() => one.generate(getter)),
      counted: [await settle(() => one.countTokens(5)), await settle(() => one.countTokens())],
      after: await settle(() => one.generate()),
    };
  });
  assert.deepEqual(seen.taken, Array(3).fill([null, 0]));
  assert.deepEqual(seen.refused, Array(6).fill(['invalid-argument', 1]));
  assert.deepEqual(seen.broken, ['panic', 1]);
  assert.deepEqual(seen.counted, Array(2).fill(['invalid-argument', 0]));
  assert.deepEqual(seen.after, [null, 0]);
  assert.deepEqual(page.record.errors, []);
  await page.context().close();
});

test('half a surrogate pair is drawn as the character that stands for damage', async () => {
  const page = await open();
  const prompts = await page.evaluate(async () => {
    const one = document.getElementById('one');
    const prompts = [];
    for (const prompt of ['a \ud800 frog', '\udc00', '🍎'.slice(0, 1), '🍎']) {
      prompts.push((await one.generate({ prompt, negativePrompt: prompt })).prompt);
    }
    return prompts;
  });
  assert.deepEqual(prompts, ['a \ufffd frog', '\ufffd', '\ufffd', '🍎']);
  await page.context().close();
});

test('a cancel at any moment between two turns of the loop takes effect at once, though another picture is being drawn', async () => {
  const page = await open();
  const waits = await page.evaluate(async () => {
    const [one, two] = document.querySelectorAll('latent-canvas');
    one.prompt = two.prompt = 'slow';
    one.engine = two.engine = 'cpu';
    await Promise.all([one.load(), two.load()]);
    const waits = [];
    for (let turns = 0; turns < 12; turns += 1) {
      const drawing = one.generate({ steps: 1000 }).catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 20));
      const waiting = two.generate().then(() => 'drawn', (error) => error.code);
      for (let i = 0; i < turns; i += 1) await null;
      two.cancel();
      const late = new Promise((resolve) => setTimeout(resolve, 1000, 'late'));
      waits.push(await Promise.race([waiting, late]));
      one.cancel();
      await drawing;
    }
    return waits;
  });
  assert.deepEqual(waits, Array(12).fill('cancelled'));
  await page.context().close();
});

test('a listener of "image" may ask for the next picture', async () => {
  const page = await open();
  const seeds = await page.evaluate(async () => {
    const one = document.getElementById('one');
    const seeds = [];
    const last = new Promise((resolve, reject) => {
      one.addEventListener('image', ({ detail }) => {
        seeds.push(detail.seed);
        if (seeds.length === 4) resolve();
        else one.generate({ prompt: 'x', seed: seeds.length }).catch(reject);
      });
    });
    await one.generate({ prompt: 'x', seed: 0 });
    await last;
    return seeds;
  });
  assert.deepEqual(seeds, [0, 1, 2, 3]);
  await page.context().close();
});

describe('models that are no folder are refused before a worker starts', () => {
  for (const [model, says] of [
    ['/models/emoji/?token=1', /without "\?"/],
    ['/models/emoji/#x', /"#"/],
    ['http://name:secret@127.0.0.1/', /password/],
    ['blob:http://127.0.0.1/1', /http or https/],
    ['data:application/json,{}', /http or https/],
    ['javascript:alert(1)', /http or https/],
  ]) {
    test(model, async () => {
      const page = await open('bare.html');
      const ended = await callElement(page, { set: { engine: 'cpu', model }, args: { prompt: 'x' } });
      assert.equal(ended.code, 'invalid-argument');
      assert.match(ended.message, says);
      assert.equal(page.workers().length, 0);
      await page.context().close();
    });
  }
});

test('the element under a second name', async () => {
  const page = await open();
  const seen = await page.evaluate(async () => {
    const { LatentCanvas } = await import('/latent-canvas.js');
    LatentCanvas.define('my-canvas');
    LatentCanvas.define('my-canvas');
    const element = document.body.appendChild(document.createElement('my-canvas'));
    const { width } = await element.generate({ prompt: 'x' });
    return [width, customElements.get('latent-canvas') === LatentCanvas];
  });
  assert.deepEqual(seen, [64, true]);
  await page.context().close();
});

describe('the page', () => {
  test('without its script it says so, with it never', async () => {
    const page = await open('');
    assert.equal(await page.locator('.not-running').isVisible(), false);
    await page.context().close();
    site.faults.push({ match: 'main.js', status: 404 });
    const dead = await openPage(browser.current, site.url);
    site.faults.length = 0;
    await dead.locator('.not-running').waitFor({ state: 'visible', timeout: 8000 });
    await dead.context().close();
  });
  test('a double click on Generate draws', async () => {
    const page = await open('');
    await page.dblclick('#generate');
    await page.waitForFunction(() => /Done|Cancelled/.test(document.getElementById('status').textContent));
    assert.match(await page.textContent('#status'), /Done/);
    await page.context().close();
  });
  test('of a prompt as long as a book only the beginning of what is not used is shown', async () => {
    const page = await open('');
    await page.evaluate(() => {
      document.getElementById('prompt').value = 'red apple '.repeat(100_000);
    });
    await page.click('#generate');
    await page.waitForFunction(() => !document.getElementById('cut').hidden);
    assert.ok((await page.textContent('#cut')).length < 500);
    await page.context().close();
  });
});
