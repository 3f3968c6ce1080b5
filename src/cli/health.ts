/** `oneflight health`: the exit code of a container's health check. */

import { findConfig } from '../config/load.js';
import { DONE, FAILED } from './exit-code.js';
import { type AdminAddress, adminAddress, operatorFields } from './listener-address.js';
import { openConfig } from './open-config.js';
import { send } from './send.js';

export type HealthOptions = {
  /** Base URL of the admin listener; by default the one that the configuration names. */
  readonly url: string | undefined;
  readonly config: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
};

const TIMEOUT_MS = 3_000;
const DEFAULT_URL = 'http://127.0.0.1:9090';

/** Asks the admin listener whether the gateway is alive and ready: 0 yes, 1 no. */
export async function health(options: HealthOptions): Promise<number> {
  try {
    const admin = targetOf(options);
    const fields = operatorFields(admin);
    for (const target of ['/livez', '/readyz']) {
      const { status } = await send(
        admin.origin,
        { method: 'GET', target, fields, content: Buffer.alloc(0) },
        TIMEOUT_MS,
      );
      if (status !== 200) throw new Error(`${target} answered ${status}`);
    }
    options.write('ready\n');
    return DONE;
  } catch (error) {
    options.writeError(`oneflight health: ${error instanceof Error ? error.message : String(error)}\n`);
    return FAILED;
  }
}

function targetOf({ url, config, env }: HealthOptions): AdminAddress {
  if (url !== undefined || findConfig(config, env) === null) {
    return { origin: new URL(url ?? DEFAULT_URL), token: null };
  }
  const opened = openConfig(config, env);
  if (opened.kind === 'bad') throw new Error(`bad configuration\n${opened.report.trimEnd()}`);
  return adminAddress(opened.config.admin);
}
