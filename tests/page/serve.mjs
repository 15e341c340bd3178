/** Serves the page: `node serve.mjs [--port 8080] [--dir www]`. */
import { existsSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { serve } from './server.mjs';

const USAGE = 'usage: serve [--port 8080] [--dir www]';
const WWW = fileURLToPath(new URL('../../www', import.meta.url));

function readArguments() {
  try {
    const { values } = parseArgs({
      options: { port: { type: 'string', default: '8080' }, dir: { type: 'string', default: WWW }, help: { type: 'boolean' } },
    });
    const port = Number(values.port);
    if (values.port.trim() === '' || !Number.isInteger(port) || port < 0 || port > 65_535) throw new Error(`--port ${values.port} is not a port`);
    if (!existsSync(values.dir) || !statSync(values.dir).isDirectory()) throw new Error(`--dir ${values.dir} is not a folder`);
    return { ...values, port };
  } catch (error) {
    console.error(`${error.message}\n${USAGE}`);
    process.exit(2);
  }
}

const { port, dir, help } = readArguments();
if (help) {
  console.log(USAGE);
} else {
  try {
    const { url } = await serve({ mounts: [{ at: '/', dir: resolve(dir) }], port });
    console.log(`Serving ${resolve(dir)} on ${url} (Ctrl+C ends it)`);
  } catch (error) {
    const taken = error.code === 'EADDRINUSE' ? `: port ${port} is taken, choose another with --port` : `: ${error.message}`;
    console.error(`cannot serve${taken}`);
    process.exit(1);
  }
}
