/**
 * The rules for what may be asked of `generate()`. They are checked before a byte is downloaded, and
 * nothing is ever clamped: a value outside its range is an error that names the range.
 */
import { LatentError } from './errors.js';

/** Names of diffusers' schedulers, without the suffix "Scheduler" and in lower case. */
export const SCHEDULERS = ['pndm', 'ddim', 'euler'];
export const ENGINES = ['auto', 'cpu', 'webgpu', 'burn'];
/** What may be wished of the plan of engine "webgpu", and the values; any number of bytes for the budget. */
const PLAN_CHOICES = {
  budget: null,
  activations: ['auto', 'f32', 'f16'],
  attention: ['auto', 'sliced'],
  vae: ['auto', 'whole', 'exact', 'blended'],
  autotune: ['auto', 'on', 'off'],
};
/** The names of the wishes. */
export const PLAN_WISHES = Object.keys(PLAN_CHOICES);
const BYTES = /^(\d+|\d+(\.\d+)? ?(GiB|MiB|KiB|GB|MB|kB))$/;

/** Largest width and height, in pixels: the attention of a larger picture does not fit a browser tab. */
export const MAX_SIZE_PX = 1024;
/** A picture is made of latents that stand for 8 x 8 pixels each. */
export const SIZE_MULTIPLE_PX = 8;
/** The training schedule has 1000 timesteps; there are no more steps to take. */
export const MAX_STEPS = 1000;
/** Pictures burn out at a few dozen already. */
export const MAX_GUIDANCE_SCALE = 1000;
export const MAX_SEED = 2 ** 32 - 1;
/** Asks for a seed drawn at random; the drawn one is in the result. */
export const RANDOM_SEED = -1;

const KNOWN = [
  'prompt', 'negativePrompt', 'seed', 'steps', 'guidanceScale', 'width', 'height', 'scheduler', 'keepLatents',
];

function fail(message) {
  throw new LatentError('invalid-argument', message);
}

/** Before anything is read of them. @throws {LatentError} `invalid-argument` for a prompt in place of options, and the like. */
export function checkObject(options) {
  if (typeof options !== 'object' || options === null) fail('The options must be an object, like { prompt: "red apple", steps: 20 }.');
  return options;
}

function checkNames(options, known) {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) fail(`There is no option "${name}". The options are ${known.join(', ')}.`);
  }
}

/** @returns {string} well-formed; throws `invalid-argument` for what is no text. */
export function checkText(name, value) {
  if (typeof value !== 'string') fail(`${name} must be text, not ${typeof value}.`);
  // Half of a surrogate pair (text that was cut within an emoji) has no UTF-8; every decoder shows it as U+FFFD.
  return value.replace(/\p{Surrogate}/gu, '\ufffd');
}

/** What was given, in words: an empty or unreadable number field is NaN. */
const shown = (value) => (Number.isNaN(value) ? 'not a number' : String(value));

function checkWhole(name, value, from, to, hint) {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < from || value > to) {
    fail(`${name} is ${shown(value)}: give a whole number from ${from} to ${to}${hint}.`);
  }
  return value;
}

function checkSize(name, value) {
  if (value === null || value === undefined) return null;
  checkWhole(name, value, SIZE_MULTIPLE_PX, MAX_SIZE_PX, `, a multiple of ${SIZE_MULTIPLE_PX}`);
  if (value % SIZE_MULTIPLE_PX !== 0) {
    const below = value - (value % SIZE_MULTIPLE_PX);
    const near = [below, below + SIZE_MULTIPLE_PX].filter((n) => n >= SIZE_MULTIPLE_PX && n <= MAX_SIZE_PX);
    fail(`${name} is ${value}, which is not a multiple of ${SIZE_MULTIPLE_PX}: use ${near.join(' or ')}.`);
  }
  return value;
}

/** @returns {AbortSignal|null} throws `invalid-argument` for anything else. */
export function checkSignal(value) {
  if (value === null || value === undefined) return null;
  if (!(value instanceof AbortSignal)) fail('signal must be an AbortSignal.');
  return value;
}

function drawSeed() {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

/** @returns {'auto'|'cpu'|'webgpu'|'burn'} the name itself; throws `invalid-argument` for any other name. */
export function checkEngine(name) {
  if (!ENGINES.includes(name)) fail(`The engine "${name}" does not exist: use ${ENGINES.join(', ')}.`);
  return name;
}

/**
 * Checks what is wished of the plan.
 *
 * @param {Record<string, string|null>} wishes by the names of {@link PLAN_WISHES}; null and "auto" leave the choice to the plan
 * @param {string} engine as it was asked for, not as it was chosen: with "auto" a wish may find no plan to change
 * @returns {Record<string, string>} those that are set
 * @throws {LatentError} `invalid-argument`
 */
export function checkPlanWishes(wishes, engine) {
  const set = {};
  for (const [name, values] of Object.entries(PLAN_CHOICES)) {
    const value = wishes[name];
    if (value === null || value === undefined || value === 'auto' || (value === 'none' && name === 'budget')) continue;
    if (values && !values.includes(value)) fail(`${name} is "${value}": use ${values.join(', ')}.`);
    if (!values && !BYTES.test(value)) fail(`${name} is "${value}": give a size like 900MiB or 1.8GiB, or a whole number of bytes.`);
    if (engine !== 'auto' && engine !== 'webgpu') {
      fail(`${name} can only be chosen with engine "webgpu" or "auto", and the engine is "${engine}", which does not plan its memory.`);
    }
    set[name] = value;
  }
  return set;
}

/**
 * Checks the options of one picture and fills in what is random.
 *
 * @param {object} options prompt, negativePrompt, seed (-1 or 0..2^32-1), steps (1..1000), guidanceScale (0..1000,
 *   or null for what suits the model), width and height (px, or null for the model's own size), scheduler (or null for the model's own), keepLatents
 * @returns {object} a plain copy that can be posted to the worker; `seed` is never -1 in it
 * @throws {LatentError} `invalid-argument`
 */
export function checkOptions(options) {
  checkNames(options, KNOWN);
  const prompt = checkText('prompt', options.prompt ?? '');
  if (prompt.trim() === '') fail('The prompt is empty: write what the picture should show.');
  const negativePrompt = checkText('negativePrompt', options.negativePrompt ?? '');

  const seed = options.seed ?? RANDOM_SEED;
  if (seed !== RANDOM_SEED) checkWhole('seed', seed, 0, MAX_SEED, ', or -1 for a random one');

  return {
    prompt,
    negativePrompt,
    seed: seed === RANDOM_SEED ? drawSeed() : seed,
    ...checkPicture(options),
    keepLatents: options.keepLatents === true,
  };
}

/** What decides the memory of a picture. */
function checkPicture(options) {
  const steps = checkWhole('steps', options.steps, 1, MAX_STEPS, '');
  const guidanceScale = options.guidanceScale ?? null;
  if (guidanceScale !== null && !(typeof guidanceScale === 'number' && guidanceScale >= 0 && guidanceScale <= MAX_GUIDANCE_SCALE)) {
    fail(`The guidance scale is ${shown(guidanceScale)}: give a number from 0 to ${MAX_GUIDANCE_SCALE} (1 turns guidance off).`);
  }
  const width = checkSize('width', options.width);
  const height = checkSize('height', options.height);

  const scheduler = options.scheduler ?? null;
  if (scheduler !== null && !SCHEDULERS.includes(scheduler)) {
    fail(`The scheduler "${scheduler}" does not exist: use ${SCHEDULERS.join(', ')}.`);
  }
  return { steps, guidanceScale, width, height, scheduler };
}

/**
 * Checks the options of a picture that is to be planned, and picks those that decide its memory.
 *
 * @throws {LatentError} `invalid-argument`
 */
export function checkPlanOptions(options) {
  checkNames(options, KNOWN);
  return checkPicture(options);
}
