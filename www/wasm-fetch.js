/** Fetches the wasm module with progress, and says what is wrong when it is not one. */

const MAGIC = [0x00, 0x61, 0x73, 0x6d];
const CARE = 'the folder pkg/ must be complete and lie beside worker.js';

/**
 * @param {URL} url
 * @param {(event: {stage: "engine", loaded: number, total: number|null}) => void} report
 * @returns {Promise<Response>} of type application/wasm whatever the server calls it, so that it compiles while it
 *   arrives on any static host
 */
export async function fetchWasm(url, report) {
  let response;
  try {
    response = await fetch(url);
  } catch (cause) {
    throw new Error(`The engine ${url.href} could not be fetched (${cause.message}): check the connection; a server on another origin must send Access-Control-Allow-Origin.`);
  }
  if (!response.ok) throw new Error(`The server answered ${response.status} for the engine ${url.href}: ${CARE}.`);
  // Behind a content encoding the header counts other bytes than the ones that arrive.
  const encoded = response.headers.get('content-encoding');
  const total = encoded ? null : Number(response.headers.get('content-length')) || null;
  let loaded = 0;
  const counter = new TransformStream({
    transform(chunk, controller) {
      if (loaded === 0 && !MAGIC.every((byte, i) => i >= chunk.length || chunk[i] === byte)) {
        throw new Error(`${url.href} is not WebAssembly (the server may have sent an error page): ${CARE}`);
      }
      loaded += chunk.byteLength;
      report({ stage: 'engine', loaded, total });
      controller.enqueue(chunk);
    },
  });
  return new Response(response.body.pipeThrough(counter), { headers: { 'content-type': 'application/wasm' } });
}
