/**
 * `oneflight start`: the gateway as a process.
 *
 * Invariants: nothing listens before the configuration is known to be good; the lines that say where it
 * listens are written at every log level but `silent`, as whoever started it with port 0 learns the port from them.
 */

import { availableParallelism } from 'node:os';
import { type GatewayOptions, startGateway } from '../app.js';
import type { Config } from '../config/config.js';
import { loadConfig } from '../config/load.js';
import { workerCountOf } from '../config/worker-shares.js';
import { createLog } from '../observe/log-output.js';
import type { ParentOptions, WorkersGateway } from '../workers/parent.js';
import { BAD_CONFIG, DONE, FAILED } from './exit-code.js';
import { openConfig } from './open-config.js';
import type { Signals } from './signals.js';

export type StartOptions = {
  readonly config: string | undefined;
  readonly version: string;
  readonly env: NodeJS.ProcessEnv;
  readonly writeError: (text: string) => void;
  readonly signals: Signals;
};

/** Runs the gateway until a signal ends it: 0 drained, 1 failed at run time, 78 bad configuration. */
export async function start({ signals, ...options }: StartOptions): Promise<number> {
  const opened = openConfig(options.config, options.env);
  if (opened.kind === 'bad') {
    options.writeError(opened.report);
    return BAD_CONFIG;
  }
  const { config, file, included, warnings } = opened;
  const log = createLog(config.log);
  const always = log.child({}, config.log.level === 'silent' ? {} : { level: 'info' });
  log.info({ file, ...(included.length === 0 ? {} : { included }), version: options.version }, 'configuration');
  for (const { message, ...place } of warnings) log.warn(place, message);

  try {
    const source = { first: { ...opened, kind: 'loaded' as const }, load: () => loadConfig(file, options.env) };
    const gateway = await startConfigured(config, { version: options.version, log, source });
    always.info({ listener: 'http', url: gateway.url }, 'listening');
    if (gateway.adminUrl !== null) always.info({ listener: 'admin', url: gateway.adminUrl }, 'listening');
    signals.whenHungUp(() => {
      log.info({ signal: 'SIGHUP' }, 'reloading');
      // What came of it is logged by the gateway.
      void gateway.reload();
    });
    const signal = await signals.first;
    log.info({ signal }, 'stopping');
    await gateway.close();
    log.info('stopped');
    return DONE;
  } catch (error) {
    log.fatal({ err: error }, 'failed');
    options.writeError(`oneflight: ${error instanceof Error ? error.message : String(error)}\n`);
    return FAILED;
  } finally {
    signals.stop();
  }
}

/** In this process, or in as many as the configuration says. */
async function startConfigured(config: Config, options: GatewayOptions & ParentOptions): Promise<WorkersGateway> {
  const count = workerCountOf(config, availableParallelism());
  if (count === 1) return startGateway(config, options);
  // Of no use to a gateway of one process.
  const { startWorkers } = await import('../workers/parent.js');
  return startWorkers(config, count, options);
}
