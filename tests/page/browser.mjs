/** Headless Chromium as every command and test of this folder starts it. */
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

/** The first that exists, unless the variable `CHROMIUM` names another. */
const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** WebGPU on the software adapter that Chromium brings along: the same everywhere, also where there is no GPU. */
const SOFTWARE_WEBGPU = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];
const QUIET = [
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-quic',
];

/**
 * @param {{hardwareGpu?: boolean}} [settings] hardwareGpu lets Chromium use the machine's graphics card
 * @returns {Promise<import('playwright-core').Browser>}
 */
export async function launchBrowser({ hardwareGpu = false } = {}) {
  const places = process.env.CHROMIUM ? [process.env.CHROMIUM] : PLACES;
  const executablePath = places.find((place) => existsSync(place));
  if (!executablePath && process.env.CHROMIUM) throw new Error(`The variable CHROMIUM names ${process.env.CHROMIUM}, which does not exist.`);
  if (!executablePath) {
    throw new Error('Chromium is not installed: run ./build.sh, or name the program in the variable CHROMIUM.');
  }
  const gpu = hardwareGpu ? ['--enable-unsafe-webgpu', '--enable-features=Vulkan'] : SOFTWARE_WEBGPU;
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--headless=new', ...QUIET, ...gpu] });
}
