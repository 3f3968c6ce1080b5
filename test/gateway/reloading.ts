/** A gateway whose configuration a test changes while it runs. */

import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { type Answered, request } from '../support/client.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway } from '../support/gateway.js';
import type { StubUpstream } from '../support/upstream.js';

type Changed = { readonly changed: readonly string[]; readonly needsRestart: readonly string[] };

export type Site = {
  readonly gateway: Gateway;
  readonly folder: string;
  /** Puts a file there by renaming a new one over it, as editors do. */
  put(name: string, text: string): void;
  /** Has the gateway read its files, and answers what came of it. */
  reload(): Promise<Answered>;
  /** Puts a configuration there and has it read. Answers what came of it, whoever was first: it may have been seen before it was asked for. */
  change(config: string): Promise<Changed>;
  /** How often something was logged. */
  logged(message: string): number;
};

export async function startSite(t: Test, config: string, files: Readonly<Record<string, string>> = {}): Promise<Site> {
  const folder = t.testdir({ routes: {} });
  const put = (name: string, text: string) => {
    writeFileSync(join(folder, 'new'), text);
    renameSync(join(folder, 'new'), join(folder, name));
  };
  put('gateway.yaml', config);
  for (const [name, text] of Object.entries(files)) put(name, text);
  const gateway = await startGateway(t, { config, file: join(folder, 'gateway.yaml') });
  const reload = () => request(gateway.adminUrl, { method: 'POST', path: '/reload' });
  const lines = () => gateway.logs.filter(({ msg }) => String(msg).startsWith('configuration reloaded'));
  return {
    gateway,
    folder,
    put,
    reload,
    change: async (text) => {
      const before = lines().length;
      put('gateway.yaml', text);
      const answer = await reload();
      if (answer.status !== 200) throw new Error(`not reloaded: ${answer.text}`);
      const { changed, needsRestart, reloaded } = answer.json() as Changed & { readonly reloaded: boolean };
      if (reloaded) return { changed, needsRestart };
      await eventually('what was seen is logged', () => lines().length > before);
      return { changed: (lines().at(-1) as unknown as Changed).changed, needsRestart };
    },
    logged: (message) => gateway.logs.filter(({ msg }) => msg === message).length,
  };
}

export const post = (gateway: Gateway, path: string) => gateway.request({ method: 'POST', path });

/** Configurations of one gateway with one upstream or another. */
export function configFor(stub: StubUpstream, routes = '', more = ''): string {
  return configOf({ upstream: stub.url, routes, more });
}
