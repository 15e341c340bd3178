/** The command line of `generate`, as far as it goes without the engine: usage, errors, exit codes, file formats. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { npyFile } from './npy.mjs';

const COMMAND = fileURLToPath(new URL('./generate.mjs', import.meta.url));

function run(...args) {
  return spawnSync(process.execPath, [COMMAND, ...args], { encoding: 'utf8' });
}

test('--help tells every option', () => {
  const { status, stdout } = run('--help');
  assert.equal(status, 0);
  const options = ['prompt', 'negative-prompt', 'seed', 'steps', 'guidance-scale', 'width', 'height', 'scheduler', 'model', 'engine', 'budget', 'activations', 'attention', 'vae', 'save-latents', 'out', 'report'];
  for (const option of options) assert.ok(stdout.includes(`--${option} `), option);
});

for (const [name, args] of [
  ['an unknown option', ['--prompt', 'x', '--out', 'x.png', '--sampler', 'x']],
  ['a stray word', ['--prompt', 'x', '--out', 'x.png', 'stray']],
  ['no prompt', ['--out', 'x.png']],
  ['no output', ['--prompt', 'x']],
  ['an output in a folder that does not exist', ['--prompt', 'x', '--out', '/nowhere/x.png']],
  ['an output that is a folder', ['--prompt', 'x', '--out', '.']],
  ['a report that cannot be written', ['--prompt', 'x', '--out', 'x.png', '--report', '/nowhere/x.json']],
  ['a model that is no folder', ['--prompt', 'x', '--out', 'x.png', '--model', '/nowhere']],
]) {
  test(`${name}: the usage, and exit code 2`, () => {
    const { status, stderr } = run(...args);
    assert.equal(status, 2);
    assert.match(stderr, /usage: generate/);
  });
}

test('an option out of range: code, sentence, exit code 1', () => {
  const { status, stderr, stdout } = run('--prompt', 'x', '--out', 'never-written.png', '--seed', '-5');
  assert.equal(status, 1, stderr);
  assert.equal(stdout, '');
  assert.match(stderr, /^invalid-argument: seed is -5: give a whole number/);
});

test('a browser that is named and does not exist is not replaced by another', () => {
  const env = { ...process.env, CHROMIUM: '/nowhere/chromium' };
  const { status, stderr } = spawnSync(process.execPath, [COMMAND, '--prompt', 'x', '--out', 'never-written.png'], { encoding: 'utf8', env });
  assert.equal(status, 1);
  assert.match(stderr, /CHROMIUM names \/nowhere\/chromium/);
});

test('serve refuses what is no port and no folder', () => {
  const serve = fileURLToPath(new URL('./serve.mjs', import.meta.url));
  for (const args of [['--port', ''], ['--port', '99999'], ['--port', '0', '--dir', '/nowhere']]) {
    const { status, stderr } = spawnSync(process.execPath, [serve, ...args], { encoding: 'utf8', timeout: 5000 });
    assert.equal(status, 2, args.join(' '));
    assert.match(stderr, /usage: serve/);
  }
});

test('.npy: header, alignment, data', () => {
  const data = Buffer.from(new Float32Array([1, -2, 3, 4]).buffer);
  const file = npyFile(data, [1, 4, 1, 1]);
  assert.deepEqual([...file.subarray(0, 8)], [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]);
  const start = 10 + file.readUInt16LE(8);
  assert.equal(start % 64, 0);
  assert.match(file.toString('latin1', 10, start), /^\{'descr': '<f4', 'fortran_order': False, 'shape': \(1, 4, 1, 1\), \} *\n$/);
  assert.deepEqual(file.subarray(start), data);
  assert.throws(() => npyFile(data, [3]), /shape/);
});
