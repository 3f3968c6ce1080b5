/** From the command line to a configuration: which file is meant, and what is wrong with it. */

import { existsSync } from 'node:fs';
import type { Config } from '../config/config.js';
import { loadConfig } from '../config/load.js';

export type Opened =
  | { readonly kind: 'good'; readonly config: Config; readonly file: string; readonly warnings: readonly string[] }
  /** `report`: lines for standard error. */
  | { readonly kind: 'bad'; readonly report: string };

const PLACES = ['./config/gateway.yaml', '/etc/oneflight/gateway.yaml'];

/** The file that the option, the environment or the usual places name; null when there is none anywhere. */
export function findConfigFile(option: string | undefined, env: NodeJS.ProcessEnv): string | null {
  const { ONEFLIGHT_CONFIG: named } = env;
  return option ?? (named || PLACES.find((path) => existsSync(path))) ?? null;
}

/** Finds and loads the configuration. */
export async function openConfig(option: string | undefined, env: NodeJS.ProcessEnv): Promise<Opened> {
  const file = findConfigFile(option, env);
  if (file === null) {
    return {
      kind: 'bad',
      report: `no configuration: give --config FILE, set ONEFLIGHT_CONFIG, or write ${PLACES.join(' or ')}\n`,
    };
  }
  const loaded = await loadConfig(file, env);
  if (loaded.kind === 'bad') return { kind: 'bad', report: `${loaded.problems.join('\n')}\n` };
  return { kind: 'good', config: loaded.config, file, warnings: loaded.warnings };
}
