/** The page around the element: a form, and what it shows while the element works. */
import './latent-canvas.js';
import { chooseEngine } from './gpu-probe.js';
import { describeMemory, PlanLine } from './plan-line.js';
import { describeProgress, megabytes } from './progress.js';
import { keepInputs, saveInputs } from './saved-inputs.js';

const EXAMPLES = ['red apple, flat style', '3d owl', 'a frog', 'rocket', 'blue heart', 'robot, flat style', '3d fox', 'snowman'];
/** Writing to the page takes time from the engine; people do not read faster. */
const REDRAW_INTERVAL_MS = 250;
const TOKEN_COUNT_DELAY_MS = 400;
/** Characters of an unused end of the prompt that are shown: somebody may paste a book. */
const CUT_SHOWN = 300;

const $ = (id) => document.getElementById(id);
const planLine = new PlanLine($('plan'), askForPlan);
const form = $('form');
const picture = $('picture');
const prompt = $('prompt');
let lastRedraw = 0;
let lastSeed = null;
let tokenTimer = 0;

function busy() {
  return picture.state === 'generating' || picture.state === 'loading' || picture.state === 'cancelling';
}

function readNumber(id) {
  // An empty or malformed field gives NaN, which the element refuses with a sentence.
  return $(id).valueAsNumber;
}

function readForm() {
  const [width, height] = $('size').value.split('x').map(Number);
  return {
    prompt: prompt.value,
    negativePrompt: $('negative').value,
    steps: readNumber('steps'),
    guidanceScale: readNumber('guidance'),
    seed: readNumber('seed'),
    scheduler: $('scheduler').value,
    width,
    height,
  };
}

/** What decides which engine draws and how, in attributes of the element. */
function configure() {
  const engine = $('engine').value;
  const budget = $('budget').value.trim();
  picture.engine = engine;
  picture.budget = engine === 'cpu' || budget === '' ? null : budget;
}

async function generate() {
  if (busy()) return;
  clearTimeout(tokenTimer);
  $('error').textContent = '';
  $('status').textContent = 'Starting';
  configure();
  // The element tells of a failure by its event.
  await picture.generate(readForm()).catch(() => {});
}

/** Only an engine on the graphics card plans; to ask another would start it before anybody wants a picture. */
async function askForPlan() {
  const { engine } = await chooseEngine($('engine').value);
  if (engine !== 'webgpu') return null;
  configure();
  const { width, height, steps, guidanceScale, scheduler } = readForm();
  return picture.planMemory({ width, height, steps, guidanceScale, scheduler });
}

function cancel() {
  picture.cancel();
}

function formatDuration(ms) {
  const seconds = Math.ceil(ms / 1000);
  return seconds < 90 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

function showProgress({ detail }) {
  const now = performance.now();
  const stage = detail.stage !== 'denoise' && detail.stage !== 'download' && detail.stage !== 'engine';
  if (!stage && detail.fraction !== 1 && now - lastRedraw < REDRAW_INTERVAL_MS) return;
  lastRedraw = now;
  const bar = $('bar');
  if (detail.fraction === null) bar.removeAttribute('value');
  else bar.value = detail.fraction;
  const left = detail.etaMs === null || detail.etaMs === 0 ? '' : `, about ${formatDuration(detail.etaMs)} left`;
  $('status').textContent = describeProgress(detail) + left;
  if (detail.fraction !== null) document.title = `${Math.round(detail.fraction * 100)} % · latent-canvas`;
}

function showState() {
  const working = busy();
  // Hiding the focused button would drop the focus to the page.
  const focused = document.activeElement === $('generate') || document.activeElement === $('cancel');
  $('generate').hidden = working;
  $('cancel').hidden = !working;
  $('cancel').disabled = picture.state === 'cancelling';
  if (focused) $(working ? 'cancel' : 'generate').focus();
  $('bar').hidden = !working;
  if (picture.state === 'cancelling') $('status').textContent = 'Stopping…';
  if (!working) document.title = 'latent-canvas';
  $('size-note').hidden = working || picture.info !== null;
}

/** Only an engine on WebGPU has an adapter. */
function engineWords({ adapter }) {
  return adapter === null ? 'CPU\u00a0engine' : `WebGPU on ${adapter}`;
}

function showImage({ detail: { seed, width, height, tokens, report } }) {
  lastSeed = seed;
  $('reuse-seed').disabled = false;
  $('save').disabled = false;
  const { total } = report.milliseconds;
  $('status').textContent = `Done in ${(total / 1000).toFixed(1)} s.`;
  const facts = [`Seed ${seed}`, `${width} × ${height}`, engineWords(report), describeMemory(report)];
  $('facts').textContent = facts.filter(Boolean).join(' · ');
  $('engine-note').textContent = report.engineNote ?? '';
  showTokens(tokens);
  // On a phone the picture lies below the form.
  picture.scrollIntoView({ block: 'nearest' });
}

function showError({ detail: { code, message } }) {
  if (code === 'cancelled') {
    $('status').textContent = 'Cancelled.';
    return;
  }
  $('status').textContent = '';
  $('error').textContent = message;
}

function showTokens(tokens) {
  $('tokens').textContent = tokens ? `${tokens.count} of ${tokens.limit} tokens` : '';
  const cut = tokens?.truncatedText ?? '';
  const shown = cut.length > CUT_SHOWN ? `${cut.slice(0, CUT_SHOWN)}…` : cut;
  $('cut').hidden = cut === '';
  $('cut').textContent = cut ? `The prompt is too long for the model; this part is not used: “${shown}”` : '';
}

/** Counting needs the tokenizer of the loaded model; while a picture is drawn the engine has no time for it. */
function countTokensSoon() {
  clearTimeout(tokenTimer);
  tokenTimer = setTimeout(async () => {
    if (busy()) return;
    showTokens(await picture.countTokens(prompt.value).catch(() => null));
  }, TOKEN_COUNT_DELAY_MS);
}

function setValue(id, value) {
  $(id).value = value;
  saveInputs(form);
}

function addExamples() {
  for (const text of EXAMPLES) {
    const chip = document.createElement('button');
    chip.type = 'button';
    chip.textContent = text;
    chip.addEventListener('click', () => {
      setValue('prompt', text);
      countTokensSoon();
      // The next Enter draws it; a click alone starts no download.
      if (!busy()) $('generate').focus();
    });
    $('examples').append(chip);
  }
}

async function showDownloadSize() {
  try {
    const response = await fetch(new URL('./models/emoji/manifest.json', import.meta.url));
    const { files } = await response.json();
    const bytes = files.reduce((sum, { length }) => sum + length, 0);
    $('size-note').textContent = `The first picture downloads the model: ${megabytes(bytes)} MB.`;
  } catch {
    // The size is a courtesy; what is wrong with the server is told when the model is loaded.
  }
}

async function showEngineNote() {
  const { note } = await chooseEngine('auto');
  $('engine-note').textContent = $('engine').value === 'auto' ? (note ?? '') : '';
}

function onKey(event) {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    generate();
  } else if (event.key === 'Escape' && busy()) {
    event.preventDefault();
    cancel();
  }
}

addExamples();
// On a phone the picture is to follow the button, not a page of settings.
$('settings').open = matchMedia('(min-width: 820px)').matches;
keepInputs(form);
if (/mac|iphone|ipad/i.test(navigator.userAgent)) document.querySelector('.modifier').textContent = '⌘';
form.addEventListener('submit', (event) => {
  event.preventDefault();
  generate();
});
form.noValidate = true;
document.querySelector('main').addEventListener('keydown', onKey);
prompt.addEventListener('input', countTokensSoon);
// What was wrong may be right now; the next picture tells.
$('form').addEventListener('input', ({ target }) => {
  $('error').textContent = '';
  if (target !== prompt) planLine.update();
});
$('cancel').addEventListener('click', (event) => {
  // It takes the place of the button before it: the second half of a double click there is no wish to cancel.
  if (event.detail < 2) cancel();
});
$('random-seed').addEventListener('click', () => setValue('seed', '-1'));
$('reuse-seed').addEventListener('click', () => setValue('seed', String(lastSeed)));
$('save').addEventListener('click', () => picture.download());
$('engine').addEventListener('change', showEngineNote);
picture.addEventListener('progress', showProgress);
picture.addEventListener('statechange', showState);
picture.addEventListener('image', showImage);
picture.addEventListener('error', showError);
window.addEventListener('beforeunload', (event) => {
  if (busy()) event.preventDefault();
});
showDownloadSize();
showEngineNote();
planLine.update();
