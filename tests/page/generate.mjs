/**
 * Draws one picture without a screen: opens the project's own page in headless Chromium and saves what its element
 * drew. Called by `./build.sh generate`.
 */
import { accessSync, constants, existsSync, statSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launchBrowser } from './browser.mjs';
import { heapBytes } from './heap.mjs';
import { npyFile } from './npy.mjs';
import { serve } from './server.mjs';

const WWW = fileURLToPath(new URL('../../www', import.meta.url));

const USAGE = `usage: generate --prompt TEXT --out FILE [options]

  --prompt TEXT            what the picture shows
  --negative-prompt TEXT   what it does not show
  --seed N                 0 to 4294967295; without it, or with -1, one is drawn and told
  --steps N                1 to 1000 (20)
  --guidance-scale X       0 to 1000 (2.5 for the bundled model, else 7.5)
  --width N, --height N    pixels, a multiple of 8, at most 1024 (the model's own size)
  --scheduler NAME         pndm, ddim or euler (the model's own)
  --model DIR|URL          a folder in diffusers' layout (the bundled model)
  --engine NAME            auto, cpu or webgpu (auto)
  --hardware-gpu           lets Chromium use the graphics card; without it WebGPU runs on a software adapter
  --out FILE               the PNG
  --save-latents FILE      the latents after the last step, as .npy, float32 [1, channels, rows, columns]
  --report FILE            engine, adapter, tokens, times and memory, as JSON
  --help`;

const OPTIONS = {
  prompt: { type: 'string' },
  'negative-prompt': { type: 'string' },
  seed: { type: 'string' },
  steps: { type: 'string' },
  'guidance-scale': { type: 'string' },
  width: { type: 'string' },
  height: { type: 'string' },
  scheduler: { type: 'string' },
  model: { type: 'string' },
  engine: { type: 'string', default: 'auto' },
  'hardware-gpu': { type: 'boolean', default: false },
  out: { type: 'string' },
  'save-latents': { type: 'string' },
  report: { type: 'string' },
  help: { type: 'boolean', default: false },
};

class UsageError extends Error {}

function readArguments(args) {
  let values;
  try {
    ({ values } = parseArgs({ args: joinNegativeNumbers(args), options: OPTIONS }));
  } catch (error) {
    throw new UsageError(error.message, { cause: error });
  }
  if (values.help) return values;
  if (values.prompt === undefined) throw new UsageError('--prompt is missing');
  if (values.out === undefined) throw new UsageError('--out is missing');
  for (const name of ['out', 'save-latents', 'report']) if (values[name] !== undefined) checkWritable(name, values[name]);
  return values;
}

/** A picture may take minutes: that it cannot be saved is told before. */
function checkWritable(name, file) {
  const isFolder = existsSync(file) && statSync(file).isDirectory();
  if (isFolder || file === '') throw new UsageError(`--${name} ${file} is not the name of a file`);
  try {
    accessSync(existsSync(file) ? file : dirname(resolve(file)), constants.W_OK);
  } catch (error) {
    throw new UsageError(`--${name} ${file} cannot be written: ${error.message}`, { cause: error });
  }
}

/** `--seed -1` reads as two options to parseArgs; as `--seed=-1` it is one. */
function joinNegativeNumbers(args) {
  const joined = [];
  for (const argument of args) {
    const previous = joined.at(-1);
    if (/^-[\d.]/.test(argument) && previous?.startsWith('--') && !previous.includes('=')) joined[joined.length - 1] = `${previous}=${argument}`;
    else joined.push(argument);
  }
  return joined;
}

/** The element's attributes for the options that were given; the page itself has no say in them. */
function attributesOf(values, model) {
  const names = ['prompt', 'negative-prompt', 'seed', 'steps', 'guidance-scale', 'width', 'height', 'scheduler', 'engine'];
  const given = names.filter((name) => values[name] !== undefined).map((name) => [name, values[name]]);
  return Object.fromEntries(model ? [...given, ['model', model]] : given);
}

/** Where the model is: a URL stays, a folder is mounted. */
function placeModel(model) {
  if (!model) return { url: null, mounts: [] };
  if (/^https?:\/\//.test(model)) return { url: model, mounts: [] };
  const dir = resolve(model);
  if (!existsSync(dir) || !statSync(dir).isDirectory()) {
    throw new UsageError(`--model ${model} is neither a folder nor an http address`);
  }
  return { url: '/model/', mounts: [{ at: '/model/', dir }] };
}

/** Runs in the page. */
async function drawInPage({ attributes, keepLatents }) {
  await customElements.whenDefined('latent-canvas');
  const element = document.querySelector('latent-canvas');
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.addEventListener('progress', ({ detail }) => globalThis.onGenerateProgress(detail));
  const base64 = async (blob) => {
    const reader = new FileReader();
    await new Promise((resolve) => {
      reader.onload = resolve;
      reader.readAsDataURL(blob);
    });
    return reader.result.slice(reader.result.indexOf(',') + 1);
  };
  try {
    const { blob, latents, seed, width, height, tokens, report } = await element.generate({ keepLatents });
    return {
      png: await base64(blob),
      latents: latents ? await base64(new Blob([latents])) : null,
      info: element.info,
      picture: { seed, width, height, tokens, report },
    };
  } catch (error) {
    return { error: { code: error.code, message: error.message } };
  }
}

function showProgress({ stage, step, steps, loaded, total, etaMs }) {
  const part = step !== undefined ? ` ${step}/${steps}` : loaded !== undefined ? ` ${loaded}/${total ?? '?'} bytes` : '';
  const left = etaMs ? `, about ${Math.ceil(etaMs / 1000)} s left` : '';
  process.stderr.write(`${stage}${part}${left}\n`);
}

function writeFiles(values, drawn, jsHeapBytes) {
  writeFileSync(values.out, Buffer.from(drawn.png, 'base64'));
  const { seed, width, height, tokens, report } = drawn.picture;
  if (values['save-latents']) {
    const bytes = Buffer.from(drawn.latents, 'base64');
    const [rows, columns] = [height, width].map((side) => side / drawn.info.sizeMultiple);
    writeFileSync(values['save-latents'], npyFile(bytes, [1, bytes.length / 4 / (rows * columns), rows, columns]));
  }
  if (values.report) {
    const full = { model: drawn.info.name, prompt: values.prompt, seed, width, height, tokens, ...report, jsHeapBytes };
    writeFileSync(values.report, `${JSON.stringify(full, null, 2)}\n`);
  }
}

async function main() {
  const values = readArguments(process.argv.slice(2));
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const model = placeModel(values.model);
  const server = await serve({ mounts: [{ at: '/', dir: WWW }, ...model.mounts] });
  let browser = null;
  try {
    browser = await launchBrowser({ hardwareGpu: values['hardware-gpu'] });
    const page = await browser.newPage();
    await page.exposeFunction('onGenerateProgress', showProgress);
    await page.goto(server.url);
    const attributes = attributesOf(values, model.url && new URL(model.url, server.url).href);
    const drawn = await page.evaluate(drawInPage, { attributes, keepLatents: values['save-latents'] !== undefined });
    if (drawn.error) {
      console.error(`${drawn.error.code}: ${drawn.error.message}`);
      return 1;
    }
    writeFiles(values, drawn, await heapBytes(page));
    const { seed, width, height, report } = drawn.picture;
    if (report.engineNote) process.stderr.write(`${report.engineNote}\n`);
    console.log(`${values.out}: ${width} x ${height}, seed ${seed}, ${report.engine}, ${report.milliseconds.total} ms`);
    return 0;
  } finally {
    await browser?.close();
    await server.close();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  if (error instanceof UsageError) {
    console.error(`${error.message}\n\n${USAGE}`);
    process.exitCode = 2;
  } else {
    console.error(`generate: ${error.message}`);
    process.exitCode = 1;
  }
}
