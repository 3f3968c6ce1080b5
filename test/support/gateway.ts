/**
 * Gateways as users start them: the built program in a process of its own, with a configuration file.
 *
 * Invariant: nothing here knows the gateway's inside. What a test learns comes from its ports, its log and its exit.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { type Answered, type RequestOptions, request, type Sent, send } from './client.js';
import { tlsYaml } from './dial.js';
import { Gate, within } from './gate.js';

const PROGRAM = fileURLToPath(new URL('../../bin/main.js', import.meta.url));
const START_MS = 20_000;
const { PATH = '' } = process.env;

/** A shell that ends the gateways of this process when this process is gone, even after a `kill -9`. */
const KEEPER = `
  while read -r how pid; do
    case $how in
      started) pids="$pids $pid " ;;
      ended) pids=$(echo "$pids" | sed "s/ $pid / /") ;;
    esac
  done
  [ -z "$(echo $pids)" ] || kill -9 $pids`;
let keeper: ChildProcess | null = null;

/** Has the process ended with this one. */
export function keep(how: 'started' | 'ended', pid: number): void {
  if (keeper === null) {
    keeper = spawn('/bin/sh', ['-c', KEEPER], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
    keeper.unref();
    (keeper.stdin as unknown as { unref(): void }).unref();
  }
  keeper.stdin!.write(`${how} ${pid}\n`);
}

/** The part of a tap test that the support code needs. */
export type Scope = {
  teardown(end: () => void | Promise<void>): void;
  passing(): boolean;
  comment(text: string): void;
};

/** One line of the log; the fields that tests look at by name. */
export type LogLine = {
  readonly msg?: unknown;
  readonly listener?: unknown;
  readonly url?: unknown;
  readonly level?: unknown;
  readonly route?: unknown;
  readonly outcome?: unknown;
  readonly key?: unknown;
};

export type ConfigParts = {
  readonly upstream: string;
  /** YAML of `store`; default: memory. */
  readonly store?: string;
  /** YAML list items of `routes`, indented by two spaces. */
  readonly routes: string;
  /** YAML of `unmatched`; default: the upstream. */
  readonly unmatched?: string;
  /** YAML of the upstream's `timeouts`. */
  readonly timeouts?: string;
  /** More upstreams, YAML indented by two spaces. */
  readonly upstreams?: string;
  /** YAML of more fields of `listen`. */
  readonly listen?: string;
  /** More top-level YAML. */
  readonly more?: string;
};

let clientsUseTls = false;

/** From now on the gateways of this process are reached over TLS, where a test does not say otherwise. */
export function overTls(): void {
  clientsUseTls = true;
}

/**
 * A configuration on free loopback ports, without further attempts (tests count calls; upstreams.test.ts has those of
 * attempts), and with the rule that `caughtUp` uses in front of the test's own.
 */
export function configOf(parts: ConfigParts): string {
  const listen = parts.listen ?? (clientsUseTls ? `tls: ${tlsYaml()}` : '');
  return `
listen: { host: 127.0.0.1, port: 0${listen === '' ? '' : `, ${listen}`} }
admin: { host: 127.0.0.1, port: 0 }
store: ${parts.store ?? '{ kind: memory }'}
upstreams:
  api: { url: "${parts.upstream}", retries: 0, timeouts: ${parts.timeouts ?? '{ connect: 2s, headers: 20s, body: 10s }'} }
${parts.upstreams ?? ''}
routes:
  - name: caught-up
    match: { methods: [POST], path: /caught-up }
    upstream: api
    policy: coalesce
    key: [ { body: /turn } ]
    keep: 0
${parts.routes}
unmatched: ${parts.unmatched ?? 'api'}
${parts.more ?? ''}
`;
}

/** Prometheus samples of one or several processes. */
export class Samples {
  readonly #samples: readonly { name: string; labels: ReadonlyMap<string, string>; value: number }[];

  constructor(readonly text: string) {
    this.#samples = text.split('\n').flatMap((line) => {
      const [, name, labels = '', value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
      if (name === undefined) return [];
      const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(
        ([, label, text]) => [label!, text!] as const,
      );
      return [{ name, labels: new Map(pairs), value: Number(value) }];
    });
  }

  /** Sum of all samples of that name that have these labels, 0 when there is none. */
  sum(name: string, labels: Readonly<Record<string, string>> = {}): number {
    return this.#samples
      .filter((sample) => sample.name === name)
      .filter((sample) => Object.entries(labels).every(([label, text]) => sample.labels.get(label) === text))
      .reduce((sum, sample) => sum + sample.value, 0);
  }

  /** `oneflight_requests_total` of a route, by outcome; outcomes that did not happen are left out. */
  outcomes(route: string): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { name, labels, value } of this.#samples) {
      if (name !== 'oneflight_requests_total' || labels.get('route') !== route || value === 0) continue;
      counts[labels.get('outcome') ?? ''] = (counts[labels.get('outcome') ?? ''] ?? 0) + value;
    }
    return counts;
  }
}

export type GatewayOptions = {
  readonly config: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Path of the built program. Default: the one that was built. */
  readonly program?: string;
  /** A file that has it already, and that the test may change. */
  readonly file?: string;
  /** Options of Node with which it is started, and nothing that a test runner adds to programs that tests start. */
  readonly alone?: readonly string[];
};

export class Gateway {
  /** Origin of the data listener. */
  url = '';
  /** Origin of the admin listener; empty without one. */
  adminUrl = '';
  readonly logs: LogLine[] = [];
  /** Lines of standard output that are no JSON object. */
  readonly noise: string[] = [];
  stderr = '';
  readonly exited: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  readonly #child: ChildProcess;
  readonly #listening = new Gate();
  #stopping = false;

  constructor({ config, env = {}, file: existing, program = PROGRAM, alone }: GatewayOptions) {
    const folder = mkdtempSync(join(tmpdir(), 'oneflight-'));
    const file = existing ?? join(folder, 'gateway.yaml');
    if (existing === undefined) writeFileSync(file, config);
    const start = [program, 'start', '-c', file];
    const stdio: ['ignore', 'pipe', 'pipe'] = ['ignore', 'pipe', 'pipe'];
    this.#child =
      alone === undefined
        ? spawn(process.execPath, start, { env: { PATH, ...env }, stdio })
        : spawn('/usr/bin/env', ['-i', `PATH=${PATH}`, process.execPath, ...alone, ...start], { stdio });
    keep('started', this.pid);
    this.exited = new Promise((resolve) => {
      this.#child.once('close', (code, signal) => {
        keep('ended', this.pid);
        rmSync(folder, { recursive: true, force: true });
        resolve({ code, signal });
      });
    });
    createInterface({ input: this.#child.stdout! }).on('line', (line) =>
      this.#line(line, !config.includes('admin: false')),
    );
    this.#child.stderr!.on('data', (piece: Buffer) => {
      this.stderr += piece.toString();
    });
  }

  get pid(): number {
    return this.#child.pid!;
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Everything the process has written. */
  get output(): string {
    return [...this.logs.map((line) => JSON.stringify(line)), ...this.noise, this.stderr].join('\n');
  }

  async started(): Promise<void> {
    const ended = this.exited.then(({ code, signal }) => {
      throw new Error(`the gateway ended at start (${code ?? signal}):\n${this.output}`);
    });
    await within(START_MS, 'the gateway listening', Promise.race([this.#listening.opened, ended]));
  }

  /** Sends a request to the data listener. */
  send(options: RequestOptions): Sent {
    return send(this.url, options);
  }

  request(options: RequestOptions): Promise<Answered> {
    return request(this.url, options);
  }

  /** Posts JSON to a path. */
  post(path: string, content: unknown, headers: readonly string[] = []): Sent {
    return this.send({
      method: 'POST',
      path,
      headers: ['Content-Type', 'application/json', ...headers],
      body: JSON.stringify(content),
    });
  }

  sendAdmin(options: RequestOptions): Promise<Answered> {
    return request(this.adminUrl, options);
  }

  admin(path: string): Promise<Answered> {
    return request(this.adminUrl, { path });
  }

  async metrics(): Promise<Samples> {
    return new Samples((await this.admin('/metrics')).text);
  }

  /**
   * Resolves when every request that was sent before has been read and has asked the store: later requests of the
   * same kind, over the same listener and the same store connection, have been answered.
   */
  async caughtUp(): Promise<void> {
    for (let turn = 0; turn < 2; turn += 1) await this.post('/caught-up', { turn: randomUUID() }).answer;
  }

  signal(signal: NodeJS.Signals): void {
    this.#stopping ||= signal !== 'SIGSTOP' && signal !== 'SIGCONT';
    this.#child.kill(signal);
  }

  /** Freezes the process. */
  pause(): void {
    this.signal('SIGSTOP');
  }

  resume(): void {
    this.signal('SIGCONT');
  }

  async kill9(): Promise<void> {
    this.signal('SIGKILL');
    await this.exited;
  }

  /** SIGTERM; rejects unless the process ends with exit code 0. */
  async stop(): Promise<void> {
    this.signal('SIGTERM');
    const { code, signal } = await within(40_000, 'the gateway ending after SIGTERM', this.exited);
    if (code !== 0) throw new Error(`the gateway ended with ${code ?? signal} after SIGTERM`);
  }

  /** Ends the process by whatever means; answers whether it had ended by itself, which no test asks for. */
  async dispose(): Promise<'as asked' | 'by itself'> {
    const how = this.running || this.#stopping ? 'as asked' : 'by itself';
    this.signal('SIGKILL');
    await this.exited;
    return how;
  }

  #line(line: string, admin: boolean): void {
    let parsed: unknown;
    try {
      parsed = JSON.parse(line);
    } catch {
      parsed = null;
    }
    if (typeof parsed !== 'object' || parsed === null) {
      this.noise.push(line);
      return;
    }
    const log = parsed as LogLine;
    this.logs.push(log);
    if (log.msg !== 'listening') return;
    if (log.listener === 'http') this.url = String(log.url);
    if (log.listener === 'admin') this.adminUrl = String(log.url);
    if (this.url !== '' && (this.adminUrl !== '' || !admin)) this.#listening.open();
  }
}

/** Starts a gateway that ends with the test. When the test failed, what the process wrote is shown. */
export async function startGateway(t: Scope, options: GatewayOptions): Promise<Gateway> {
  const gateway = new Gateway(options);
  t.teardown(async () => {
    const how = await gateway.dispose();
    if (how === 'by itself') t.comment(`gateway ${gateway.pid} ended by itself`);
    if (!t.passing() || how === 'by itself') t.comment(`gateway ${gateway.pid}:\n${tailOf(gateway.output)}`);
  });
  await gateway.started();
  return gateway;
}

function tailOf(text: string): string {
  return text.split('\n').slice(-60).join('\n');
}

/** Starts several gateways with one configuration. */
export function startGateways(t: Scope, count: number, options: GatewayOptions): Promise<Gateway[]> {
  return Promise.all(Array.from({ length: count }, () => startGateway(t, options)));
}

/** The samples of several processes together. */
export async function metricsOf(gateways: readonly Gateway[]): Promise<Samples> {
  const all = await Promise.all(gateways.map((gateway) => gateway.metrics()));
  return new Samples(all.map((samples) => samples.text).join('\n'));
}

/** Every gateway has read what was sent to it before. */
export async function allCaughtUp(gateways: readonly Gateway[]): Promise<void> {
  await Promise.all(gateways.map((gateway) => gateway.caughtUp()));
}
