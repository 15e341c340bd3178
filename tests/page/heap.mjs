/** The size of the JavaScript heaps of a page and its workers, asked through Chromium's debugging protocol. */

/** The protocol answers within milliseconds once the worker is idle. */
const ANSWER_MS = 5000;

/**
 * @param {import('playwright-core').Page} page
 * @param {{collect?: boolean}} [settings] collect: what is no longer used is collected first
 * @returns {Promise<{page: number, workers: number}>} bytes in use, array buffers not counted
 */
export async function heapBytes(page, { collect = false } = {}) {
  const session = await page.context().newCDPSession(page);
  const workers = [];
  const waiting = new Map();
  session.on('Target.attachedToTarget', ({ sessionId, targetInfo }) => {
    if (targetInfo.type === 'worker') workers.push(sessionId);
  });
  session.on('Target.receivedMessageFromTarget', ({ sessionId, message }) => {
    const { id, result } = JSON.parse(message);
    if (id === 1) waiting.get(sessionId)?.(result.usedSize);
  });
  // Existing workers are told of before this call answers.
  await session.send('Target.setAutoAttach', { autoAttach: true, waitForDebuggerOnStart: false, flatten: false });
  const ask = async (sessionId) => {
    const answer = new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('a worker did not tell its heap size')), ANSWER_MS);
      waiting.set(sessionId, (bytes) => {
        clearTimeout(timer);
        resolve(bytes);
      });
    });
    const send = (id, method) => session.send('Target.sendMessageToTarget', { sessionId, message: JSON.stringify({ id, method }) });
    if (collect) await send(0, 'HeapProfiler.collectGarbage');
    await send(1, 'Runtime.getHeapUsage');
    return answer;
  };
  if (collect) await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  const sizes = await Promise.all(workers.map(ask));
  await session.detach();
  return { page: usedSize, workers: sizes.reduce((sum, bytes) => sum + bytes, 0) };
}
