/** From the command line to a configuration, and what is said when there is none. */

import { formatError } from '../config/fault.js';
import { findAndLoadConfig, type LoadResult } from '../config/load.js';

export type Opened =
  | ({ readonly kind: 'good' } & Omit<Extract<LoadResult, { kind: 'loaded' }>, 'kind'>)
  /** `report`: lines for standard error, as `validate` prints them. */
  | { readonly kind: 'bad'; readonly report: string };

/** Finds and loads the configuration. */
export function openConfig(option: string | undefined, env: NodeJS.ProcessEnv): Opened {
  const result = findAndLoadConfig(option, env);
  if (result.kind === 'invalid') {
    return { kind: 'bad', report: result.errors.map((error) => `${formatError(error)}\n`).join('') };
  }
  return { ...result, kind: 'good' };
}
