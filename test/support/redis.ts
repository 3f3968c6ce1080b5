/**
 * A real Redis of a test's own: on a free port of loopback, without persistence, gone when the test process is gone,
 * however it ends.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { RedisAccess } from '../../src/config/config.js';
import { accessByUrl } from '../../src/config/resolve-store.js';
import { tlsFile } from './dial.js';
import { freePort } from './ports.js';
import { serverProgram } from './redis-server.js';

export type RedisServer = {
  readonly url: string;
  readonly port: number;
  /** Where it talks TLS; 0: nowhere. */
  readonly tlsPort: number;
  readonly pid: number;
  /** What it writes is there, and still is after a `kill`. */
  readonly dir: string;
  /** Ends the server and removes what it had. */
  stop(): Promise<void>;
  /** `kill -9`, and nothing else: start another one on the same port to restart it. */
  kill(): Promise<void>;
  /** SIGSTOP: connections stay, nothing is answered. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
  /** One command over a connection of its own; replies as ioredis gives them. */
  command(...words: readonly (string | number)[]): Promise<unknown>;
};

/** A shell between us and the server: it ends the server when our end of its input closes, even after a `kill -9`. */
const KEEPER = 'dir=$1; shift; "$@" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; rm -rf "$dir"';

/** A server at a URL, as a configuration with nothing but the URL names it. */
export function accessTo(url: string): RedisAccess {
  return accessByUrl(url, { username: null, password: null, tls: null, db: 0 });
}

const TLS = [
  ...['--tls-cert-file', tlsFile('one.pem'), '--tls-key-file', tlsFile('one.key')],
  ...['--tls-client-cert-file', tlsFile('client.pem'), '--tls-client-key-file', tlsFile('client.key')],
  ...['--tls-ca-cert-file', tlsFile('ca.pem'), '--tls-auth-clients', 'no', '--tls-replication', 'yes'],
];

export type RedisOptions = {
  readonly port?: number;
  /** Further settings, as on a command line. */
  readonly settings?: readonly string[];
  /** Of the default user, as one of the settings has it. */
  readonly password?: string;
  /** Whether it talks TLS as well, and nothing else to other servers. */
  readonly tls?: boolean;
  /** Of a server that was killed: what it had written is taken over. */
  readonly dir?: string;
  /** Text of a configuration: the server is a sentinel. */
  readonly sentinel?: string;
};

/** Starts a server and waits until it answers. */
export async function startRedis({ password, ...options }: RedisOptions = {}): Promise<RedisServer> {
  const program = await serverProgram();
  const port = options.port ?? (await freePort());
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), 'oneflight-redis-'));
  const tlsPort = options.tls === true ? await freePort() : 0;
  const tls = tlsPort === 0 ? [] : ['--tls-port', String(tlsPort), ...TLS];
  const own = ['--port', String(port), '--bind', '127.0.0.1', '--dir', dir, ...tls];
  const settings = ['--save', '', '--appendonly', 'no', ...own, ...(options.settings ?? [])];
  if (options.sentinel !== undefined) {
    writeFileSync(join(dir, 'sentinel.conf'), options.sentinel);
    settings.splice(0, settings.length, join(dir, 'sentinel.conf'), '--sentinel', ...own);
  }
  const keeper = spawn('/bin/sh', ['-c', KEEPER, 'sh', dir, program.path, ...settings], {
    env: program.env,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [first] = (await once(keeper.stdout, 'data')) as [Buffer];
  const pid = Number(String(first));
  // A test that forgets to stop its server still ends, and the keeper with it.
  keeper.unref();
  for (const pipe of [keeper.stdin, keeper.stdout]) (pipe as unknown as { unref(): void }).unref();

  const signal = (name: NodeJS.Signals) => {
    try {
      process.kill(pid, name);
    } catch {
      // It is gone already.
    }
  };
  const server: RedisServer = {
    url: `redis://127.0.0.1:${port}`,
    port,
    tlsPort,
    pid,
    dir,
    pause: () => signal('SIGSTOP'),
    resume: () => signal('SIGCONT'),
    command: (...words) => ask(port, words, password),
    async kill() {
      signal('SIGKILL');
      while ((await pidAt(port, password)) !== null) await sleep(10);
    },
    async stop() {
      keeper.ref();
      const gone = once(keeper, 'exit');
      keeper.stdin.end();
      await gone;
      rmSync(dir, { recursive: true, force: true });
    },
  };
  await untilAnswering(server, password);
  return server;
}

async function untilAnswering(server: RedisServer, password?: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  // Another server on this port, started at the same moment, would be shared without a word.
  while ((await pidAt(server.port, password)) !== server.pid) {
    if (Date.now() > deadline) {
      await server.stop();
      throw new Error(`the Redis of the tests did not answer on port ${server.port} within 10 s`);
    }
    await sleep(10);
  }
}

/** The process of the server that answers there; null: none does. */
async function pidAt(port: number, password?: string): Promise<number | null> {
  const told = await ask(port, ['INFO', 'server'], password).catch(() => null);
  return told === null ? null : Number(/^process_id:(\d+)/m.exec(String(told))?.[1]);
}

async function ask(
  port: number,
  [name, ...rest]: readonly (string | number)[],
  password: string | undefined,
): Promise<unknown> {
  // Without retries a refused connection is gone at once; the client's farewell timer would hold the process for 2 s.
  const once = { lazyConnect: true, retryStrategy: null, commandTimeout: 5_000, disconnectTimeout: 50 };
  const client = new Redis({ port, host: '127.0.0.1', ...once, ...(password === undefined ? {} : { password }) });
  client.on('error', () => {});
  try {
    await client.connect();
    return await client.call(String(name), ...rest);
  } finally {
    client.disconnect();
  }
}
