/** Starts the worker that holds the engine, wherever this script was loaded from. */
import { LatentError } from './errors.js';

function workerUrl() {
  try {
    return new URL('./worker.js', import.meta.url);
  } catch (cause) {
    throw new LatentError(
      'worker-failed',
      'latent-canvas.js was loaded from a blob: or data: URL, so its worker cannot be found. Load it from a folder of a web server.',
      { cause },
    );
  }
}

/**
 * A browser starts workers only from the page's own origin. For a script from elsewhere (a CDN) the worker is a blob
 * of one line that imports the real one; the real one then finds its files beside itself.
 *
 * @returns {{worker: Worker, url: URL, wrapped: boolean}}
 * @throws {LatentError} `worker-failed`
 */
export function startWorker() {
  const url = workerUrl();
  const settings = { type: 'module', name: 'latent-canvas' };
  const wrapped = url.origin !== globalThis.origin;
  try {
    if (!wrapped) return { worker: new Worker(url, settings), url, wrapped };
    const source = new Blob([`import ${JSON.stringify(url.href)};\n`], { type: 'text/javascript' });
    const blobUrl = URL.createObjectURL(source);
    const worker = new Worker(blobUrl, settings);
    // The worker fetches its script after the constructor returns; its first message says that it has.
    worker.addEventListener('message', () => URL.revokeObjectURL(blobUrl), { once: true });
    return { worker, url, wrapped };
  } catch (cause) {
    throw startFailure(url, wrapped, cause.message, cause);
  }
}

/** The error for a worker that did not come up; the browser itself says almost nothing about the reason. */
export function startFailure(url, wrapped, detail, cause) {
  const advice = wrapped
    ? `the page's Content-Security-Policy must allow "worker-src blob:" and "script-src ${url.origin}", and ${url.origin} must send Access-Control-Allow-Origin; or copy the files to the page's own site`
    : "the file must exist beside latent-canvas.js, be served as JavaScript, and be allowed by the Content-Security-Policy (worker-src 'self')";
  const said = detail ? ` (${detail})` : '';
  return new LatentError('worker-failed', `The worker ${url.href} did not start${said}: ${advice}.`, { cause });
}
