// Renders the emoji that all three icon sets share, 128 x 128 px on white.
// Writes images.u8 (uint8, [count, 128, 128, 3]) and captions.jsonl (one line per picture).
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { parseArgs } from 'node:util';

// Packages are looked for in the folder it is started in, where `npm install` put them.
const require = createRequire(path.resolve('render.mjs'));
const { Resvg } = require('@resvg/resvg-js');

const SIZE_PX = 128;
const SKIN_TONE = /-(light|medium|dark|medium-light|medium-dark)$|skin-tone/;

const { values: options } = parseArgs({
  options: { skip: { type: 'string', default: 'package,rainbow-flag' } },
});
const skipped = new Set(options.skip.split(','));

const iconSets = {
  '3d': require('@iconify-json/fluent-emoji/icons.json'),
  flat: require('@iconify-json/fluent-emoji-flat/icons.json'),
  glossy: require('@iconify-json/noto/icons.json'),
};

/** Tags and group of each emoji, by the name that the icon sets use. */
function loadDescriptions() {
  const descriptions = new Map();
  for (const emoji of require('emojibase-data/en/data.json')) {
    const name = emoji.label.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '');
    descriptions.set(name, { tags: emoji.tags ?? [], group: emoji.group ?? -1 });
  }
  return descriptions;
}

/** RGB bytes of one icon, or null where it cannot be drawn as a square of SIZE_PX. */
function render(iconSet, name) {
  const icon = iconSet.icons[name];
  const width = icon.width || iconSet.width || 16;
  const height = icon.height || iconSet.height || 16;
  const svg =
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" ' +
    `viewBox="0 0 ${width} ${height}" width="${SIZE_PX}" height="${SIZE_PX}">${icon.body}</svg>`;
  let rendered;
  try {
    rendered = new Resvg(svg, { background: '#fff', fitTo: { mode: 'width', value: SIZE_PX } }).render();
  } catch {
    return null;
  }
  if (rendered.width !== SIZE_PX || rendered.height !== SIZE_PX) return null;
  const rgba = rendered.pixels;
  const rgb = Buffer.alloc(SIZE_PX * SIZE_PX * 3);
  for (let i = 0; i < SIZE_PX * SIZE_PX; i++) {
    rgb[3 * i] = rgba[4 * i];
    rgb[3 * i + 1] = rgba[4 * i + 1];
    rgb[3 * i + 2] = rgba[4 * i + 2];
  }
  return rgb;
}

const descriptions = loadDescriptions();
const names = Object.keys(iconSets['3d'].icons).filter(
  (name) =>
    !SKIN_TONE.test(name) && name in iconSets.glossy.icons && name in iconSets.flat.icons && !skipped.has(name),
);
const images = fs.openSync('images.u8', 'w');
const captions = [];
let failed = 0;
for (const [style, iconSet] of Object.entries(iconSets)) {
  for (const name of names) {
    const rgb = render(iconSet, name);
    if (!rgb) {
      failed++;
      continue;
    }
    fs.writeSync(images, rgb);
    const { tags, group } = descriptions.get(name) ?? { tags: [], group: -1 };
    captions.push(JSON.stringify({ name, style, tags, group }));
  }
}
fs.closeSync(images);
fs.writeFileSync('captions.jsonl', captions.join('\n'));
console.log(`${names.length} names, ${captions.length} pictures, ${failed} not drawn`);
