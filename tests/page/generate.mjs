/**
 * Draws one picture without a screen: opens the project's own page in headless Chromium and saves what its element
 * drew. Called by `./build.sh generate`.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { launchBrowser } from './browser.mjs';
import { placeModel, readArguments, USAGE, UsageError } from './generate-options.mjs';
import { heapBytes } from './heap.mjs';
import { npyFile } from './npy.mjs';
import { serve } from './server.mjs';

const WWW = fileURLToPath(new URL('../../www', import.meta.url));

/** The element's attributes for the options that were given; the page itself has no say in them. */
function attributesOf(values, model) {
  const names = [
    'prompt', 'negative-prompt', 'seed', 'steps', 'guidance-scale', 'width', 'height', 'scheduler', 'engine', 'budget', 'activations', 'attention', 'vae',
  ];
  const given = names.filter((name) => values[name] !== undefined).map((name) => [name, values[name]]);
  return Object.fromEntries(model ? [...given, ['model', model]] : given);
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
    console.error(`${USAGE}\n\n${error.message}`);
    process.exitCode = 2;
  } else {
    console.error(`generate: ${error.message}`);
    process.exitCode = 1;
  }
}
