/**
 * Preloaded (`--import`) into a process that runs tests of the configuration: what the loader accepts there is handed to
 * `harvest` on its way.
 */

import { register } from 'node:module';

const LOADER = `
export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!url.endsWith('/src/config/load.js')) return loaded;
  const hidden = String(loaded.source).replace('export function loadConfig(', 'function loadUnseen(');
  const from = new URL('../../test/support/harvest.js', url).href;
  const seen = "import { harvest } from '" + from + "';\\n" +
    'export function loadConfig(...given) { return harvest(loadUnseen, given); }\\n';
  return { ...loaded, source: seen + hidden };
}`;

register(`data:text/javascript,${encodeURIComponent(LOADER)}`);
