/**
 * What `generate` is told, without a browser or a build: run on its own it answers in a moment whether the options can be
 * used. Exits with 0 if so, with 2 and the fault if not, with 3 after `--help`.
 */
import { accessSync, constants, existsSync, realpathSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

export const USAGE = `usage: generate --prompt TEXT --out FILE [options]

  --prompt TEXT            what the picture shows
  --negative-prompt TEXT   what it does not show
  --seed N                 0 to 4294967295; without it, or with -1, one is drawn and told
  --steps N                1 to 1000 (20)
  --guidance-scale X       0 to 1000 (the model's own)
  --width N, --height N    pixels, a multiple of 8, at most 1024 (the model's own size)
  --scheduler NAME         pndm, ddim or euler (the model's own)
  --model DIR|URL          a folder in diffusers' layout (the bundled model)
  --engine NAME            auto, cpu, webgpu or burn (auto)
  --budget BYTES           with webgpu: most GPU memory to take, like 900MiB or 1.8GiB
  --activations NAME       with webgpu: f32 or f16 (f32 where it fits)
  --attention NAME         with webgpu: sliced, in place of the form that takes the least memory
  --vae NAME               with webgpu: whole, exact or blended (whole where it fits)
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
  budget: { type: 'string' },
  activations: { type: 'string' },
  attention: { type: 'string' },
  vae: { type: 'string' },
  'hardware-gpu': { type: 'boolean', default: false },
  out: { type: 'string' },
  'save-latents': { type: 'string' },
  report: { type: 'string' },
  help: { type: 'boolean', default: false },
};

export class UsageError extends Error {}

export function readArguments(args) {
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

/** Where the model is: a URL stays, a folder is mounted. */
export function placeModel(model) {
  if (!model) return { url: null, mounts: [] };
  if (/^https?:\/\//.test(model)) return { url: model, mounts: [] };
  const dir = resolve(model);
  if (!existsSync(dir) || !statSync(dir).isDirectory()) {
    throw new UsageError(`--model ${model} is neither a folder nor an http address`);
  }
  return { url: '/model/', mounts: [{ at: '/model/', dir }] };
}

/** @returns {number} the exit status */
function check(args) {
  try {
    const values = readArguments(args);
    if (!values.help) placeModel(values.model);
    else console.log(USAGE);
    return values.help ? 3 : 0;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    console.error(`${USAGE}\n\n${error.message}`);
    return 2;
  }
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  process.exitCode = check(process.argv.slice(2));
}
