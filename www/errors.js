/**
 * The one error type of the JavaScript side.
 *
 * `code` is stable (programs may compare it), `message` is a sentence for people and may change.
 * Codes made in JavaScript: `invalid-argument`, `busy`, `cancelled`, `timeout`, `worker-failed`, `panic`,
 * `insecure-context`, `no-webgpu`. Every other code comes from the engine and is passed on unchanged
 * (`http`, `network`, `truncated`, `checksum-mismatch`, `missing-tensor`, `shape-mismatch`, ...).
 */
export class LatentError extends Error {
  /**
   * @param {string} code stable, kebab-case
   * @param {string} message what happened and what to do
   * @param {{cause?: unknown}} [options]
   */
  constructor(code, message, options) {
    super(message, options);
    this.name = 'LatentError';
    this.code = code;
  }
}

/** The error of every call that was ended by `cancel()`, by its signal, or by removing the element. */
export function cancelled() {
  return new LatentError('cancelled', 'The picture was cancelled. Call generate() to start again.');
}

/** @returns {LatentError} `error` itself, or an error that carries its text. */
export function asLatentError(error) {
  if (error instanceof LatentError) return error;
  const text = error instanceof Error ? error.message : String(error);
  return new LatentError('panic', `Something in the page's code failed: ${text}`, { cause: error });
}
