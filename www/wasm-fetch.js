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
  const reader = response.body.getReader();
  const first = await reader.read();
  // Looked at before the compiler sees it: of a stream that fails the compiler tells nothing.
  if (!isWasm(first.value)) {
    throw new Error(`${url.href} is not WebAssembly (the server may have sent a page instead): ${CARE}.`);
  }
  let loaded = 0;
  const pass = ({ done, value }, controller) => {
    if (done) {
      controller.close();
      return;
    }
    loaded += value.byteLength;
    report({ stage: 'engine', loaded, total });
    controller.enqueue(value);
  };
  const body = new ReadableStream({
    start: (controller) => pass(first, controller),
    pull: async (controller) => pass(await reader.read(), controller),
  });
  return new Response(body, { headers: { 'content-type': 'application/wasm' } });
}

function isWasm(bytes) {
  return bytes !== undefined && MAGIC.every((byte, i) => i >= bytes.length || bytes[i] === byte);
}
