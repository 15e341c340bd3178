/** `generate` from end to end, with the real engine and the bundled model. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { WWW } from './harness.mjs';

const COMMAND = fileURLToPath(new URL('./generate.mjs', import.meta.url));
const PNG_SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

const dir = mkdtempSync(join(tmpdir(), 'latent-canvas-'));
after(() => rmSync(dir, { recursive: true }));

function draw(name, ...args) {
  const file = (ending) => join(dir, `${name}.${ending}`);
  const common = ['--prompt', 'a frog', '--seed', '7', '--steps', '2', '--guidance-scale', '2', '--width', '96', '--height', '64', '--engine', 'cpu'];
  const outputs = ['--out', file('png'), '--report', file('json'), '--save-latents', file('npy')];
  const run = spawnSync(process.execPath, [COMMAND, ...common, ...outputs, ...args], { encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
  return { ...run, png: readFileSync(file('png')), npy: readFileSync(file('npy')), report: JSON.parse(readFileSync(file('json'), 'utf8')) };
}

test('PNG, latents and report; the same seed gives the same file, also from a folder given by name', () => {
  const first = draw('first');
  assert.deepEqual([...first.png.subarray(0, 8)], PNG_SIGNATURE);
  assert.deepEqual([first.png.readUInt32BE(16), first.png.readUInt32BE(20)], [96, 64]);
  assert.match(first.npy.toString('latin1', 10, 128), /'shape': \(1, 4, 8, 12\)/);
  const { report } = first;
  assert.deepEqual([report.engine, report.requestedEngine, report.seed, report.width, report.height, report.tokens.count], ['burn-flex', 'cpu', 7, 96, 64, 3]);
  for (const stage of ['load', 'download', 'encode', 'denoise', 'decode', 'total']) {
    assert.ok(Number.isFinite(report.milliseconds[stage]), stage);
  }
  assert.equal(report.gpuBytesPeak, 0);
  assert.ok(report.wasmMemoryBytes > 1e6 && report.jsHeapBytes.page > 1e5 && report.jsHeapBytes.workers > 1e5);
  // PNDM asks the model once more than it is given steps, as in diffusers.
  assert.match(first.stderr, /denoise 3\/3/);

  const second = draw('second', '--model', join(WWW, 'models/emoji'));
  assert.deepEqual(second.npy, first.npy);
  assert.deepEqual(second.png, first.png);
});
