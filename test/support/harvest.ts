/** Every configuration that some tests load, and that is good: what it says, and what becomes of it when it is printed and loaded again. */

import { appendFileSync, readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { configYaml } from '../../src/cli/config-yaml.js';
import { effectiveOf } from '../../src/config/effective.js';
import { formatError } from '../../src/config/fault.js';
import type { LoadResult, loadConfig } from '../../src/config/load.js';
import { MASK } from '../../src/config/masking.js';

export type Harvested = {
  readonly text: string;
  readonly printed: string;
  /** `masked`: it cannot be the same. */
  readonly again: 'same' | 'masked' | string;
};

/** Loads, and notes what is good in the file that the environment names. */
export function harvest(load: typeof loadConfig, given: Parameters<typeof loadConfig>): LoadResult {
  const result = load(...given);
  const { HARVEST } = process.env;
  if (result.kind === 'invalid' || HARVEST === undefined) return result;
  const [file, env] = given;
  const printed = configYaml(effectiveOf(result.written));
  const noted: Harvested = {
    text: readFileSync(file, 'utf8'),
    printed,
    again: againOf(load(file, env, Buffer.from(printed)), result, printed),
  };
  appendFileSync(HARVEST, `${JSON.stringify(noted)}\n`);
  return result;
}

function againOf(again: LoadResult, { config }: Extract<LoadResult, { kind: 'loaded' }>, printed: string): string {
  if (printed.includes(MASK)) return 'masked';
  if (again.kind === 'invalid') return again.errors.map(formatError).join('\n');
  return isDeepStrictEqual(again.config, config) ? 'same' : 'another configuration';
}
