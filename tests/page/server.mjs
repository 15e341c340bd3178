/**
 * A static file server around `sirv`: mounts folders at any path, and misbehaves on request so that tests can see what
 * the page makes of it.
 */
import { createServer } from 'node:http';
import { createReadStream, statSync } from 'node:fs';
import { join } from 'node:path';
import sirv from 'sirv';

/** Longer than any watchdog that a test sets. */
const STALL_MS = 2000;

const BODY_TYPES = { '.json': 'application/json', '.js': 'text/javascript' };

/**
 * @typedef {object} Mount
 * @property {string} at path that begins and ends with a slash, e.g. "/a/b/"
 * @property {string} dir folder
 *
 * @typedef {object} Fault for requests whose path contains `match`
 * @property {string} match
 * @property {number} [status] answers this status
 * @property {string} [html] answers 200 with this page instead of the file
 * @property {number} [cutAfter] sends the headers and that many bytes of the file, then drops the connection
 * @property {true} [stall] accepts the request and never answers; the connection is dropped after two seconds, because
 *   Chromium lets the next request for the same file wait for the first
 * @property {number} [delayMs] answers properly, but later
 * @property {number} [bytesPerSecond] answers properly, but slowly
 * @property {number} [times] acts only on the first that many requests
 */

/**
 * @param {object} settings
 * @param {Mount[]} settings.mounts the longest matching `at` wins
 * @param {number} [settings.port] 0 picks a free one
 * @param {string} [settings.host]
 * @param {Record<string, string>} [settings.headers] sent with every answer
 * @returns {Promise<{url: string, origin: string, requests: string[], faults: Fault[], bodies: Map<string, string>, headers: object, close(): Promise<void>}>}
 *   `requests` grows with each request's path, `faults` and `headers` may be changed at any time, `bodies` maps paths to
 *   text that is served in place of files
 */
export async function serve({ mounts, port = 0, host = '127.0.0.1', headers = {} }) {
  const sites = mounts
    .map(({ at, dir }) => ({ at, dir, files: sirv(dir, { dev: true, etag: true }) }))
    .sort((a, b) => b.at.length - a.at.length);
  const site = { requests: [], faults: [], bodies: new Map(), headers: { ...headers } };

  const server = createServer((request, response) => {
    const path = readPath(request.url);
    if (path === null) {
      notFound(response);
      return;
    }
    site.requests.push(path);
    for (const [name, value] of Object.entries(site.headers)) response.setHeader(name, value);
    const fault = site.faults.find((candidate) => path.includes(candidate.match) && candidate.times !== 0);
    if (fault) {
      if (fault.times !== undefined) fault.times -= 1;
      if (misbehave(fault, path, response, sites)) return;
      setTimeout(() => answer(site, sites, path, request, response), fault.delayMs ?? 0);
    } else {
      answer(site, sites, path, request, response);
    }
  });
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  const origin = `http://${host}:${server.address().port}`;
  const close = () =>
    new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  return Object.assign(site, { origin, url: `${origin}/`, close });
}

/** @returns {string|null} null for an address that cannot be decoded */
function readPath(address) {
  try {
    return decodeURI(new URL(address, 'http://localhost').pathname);
  } catch {
    return null;
  }
}

function find(sites, path) {
  return sites.find(({ at }) => path.startsWith(at));
}

function answer(site, sites, path, request, response) {
  const body = site.bodies.get(path);
  if (body !== undefined) {
    response.setHeader('content-type', BODY_TYPES[path.slice(path.lastIndexOf('.'))] ?? 'text/html; charset=utf-8');
    response.end(body);
    return;
  }
  const mount = find(sites, path);
  if (!mount) {
    notFound(response);
    return;
  }
  // sirv reads the path from the request; a query is of no use to static files.
  request.url = encodeURI(`/${path.slice(mount.at.length)}`);
  request._parsedUrl = undefined;
  mount.files(request, response, () => notFound(response));
}

function notFound(response) {
  response.statusCode = 404;
  response.end('Not found\n');
}

/** @returns {boolean} whether the answer was taken over */
function misbehave(fault, path, response, sites) {
  if (fault.stall) {
    setTimeout(() => response.destroy(), STALL_MS);
    return true;
  }
  if (fault.status) {
    response.statusCode = fault.status;
    response.end(`Status ${fault.status}\n`);
    return true;
  }
  if (fault.html !== undefined) {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    response.end(fault.html);
    return true;
  }
  if (fault.cutAfter === undefined && fault.bytesPerSecond === undefined) return false;
  const mount = find(sites, path);
  const file = join(mount.dir, path.slice(mount.at.length));
  response.setHeader('content-length', statSync(file).size);
  if (path.endsWith('.js')) response.setHeader('content-type', 'text/javascript');
  if (fault.cutAfter !== undefined) {
    const part = createReadStream(file, { end: Math.max(0, fault.cutAfter - 1) });
    // The pause lets the bytes leave before the connection is reset.
    part.on('data', (chunk) => response.write(chunk));
    part.on('end', () => setTimeout(() => response.destroy(), 50));
  } else {
    trickle(createReadStream(file, { highWaterMark: Math.max(1, Math.floor(fault.bytesPerSecond / 20)) }), response);
  }
  return true;
}

function trickle(file, response) {
  file.on('data', (chunk) => {
    response.write(chunk);
    file.pause();
    setTimeout(() => file.resume(), 50);
  });
  file.on('end', () => response.end());
  response.on('close', () => file.destroy());
}
