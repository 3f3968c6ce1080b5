/** What the measurements stand on: a gateway in a process of its own, and an upstream and clients in this one. */

import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { configOf, type Gateway, startGateway } from '../test/support/gateway.js';
import { type StubUpstream, startUpstream } from '../test/support/upstream.js';

export type Stage = {
  readonly gateway: Gateway;
  readonly upstream: StubUpstream;
  end(): Promise<void>;
};

/** Starts both, without a log. */
export async function startStage(routes: string): Promise<Stage> {
  const ends: (() => void | Promise<void>)[] = [];
  const scope = {
    teardown: (end: () => void | Promise<void>) => ends.push(end),
    passing: () => true,
    comment: (text: string) => console.log(text),
  };
  const upstream = await startUpstream(scope);
  const more = 'log: { level: warn }';
  const gateway = await startGateway(scope, { config: configOf({ upstream: upstream.url, routes, more }) });
  return {
    gateway,
    upstream,
    end: async () => {
      for (const end of ends.reverse()) await end();
    },
  };
}

/** Resident memory of a process now, and at its highest, MiB. */
export function memoryOf(pid: number): { readonly nowMiB: number; readonly peakMiB: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kib = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0);
  return { nowMiB: kib('VmRSS') / 1_024, peakMiB: kib('VmHWM') / 1_024 };
}

/** A client on a raw socket, which costs this process as little as can be. */
export class BareClient {
  readonly socket: Socket;
  bytes = 0;
  /** Monotonic times, ms; null before. */
  firstAtMs: number | null = null;
  lastAtMs = 0;
  readonly closed: Promise<void>;
  #onData: ((client: BareClient, piece: Buffer) => void) | null = null;

  constructor(url: string, onData: ((client: BareClient, piece: Buffer) => void) | null = null) {
    const { hostname, port } = new URL(url);
    this.#onData = onData;
    this.socket = connect({ host: hostname, port: Number(port), noDelay: true });
    this.socket.on('error', () => {});
    this.closed = new Promise((resolve) => this.socket.once('close', () => resolve()));
    this.socket.on('data', (piece) => {
      this.firstAtMs ??= performance.now();
      this.lastAtMs = performance.now();
      this.bytes += piece.length;
      this.#onData?.(this, piece);
    });
  }

  connected(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.socket.once('connect', resolve);
      this.socket.once('error', reject);
    });
  }

  get(path: string): void {
    this.socket.write(`GET ${path} HTTP/1.1\r\nHost: bench\r\n\r\n`);
  }

  /** Reads at most so many bytes a second, in pieces ten times a second. */
  slowDown(bytesPerSecond: number): void {
    this.socket.pause();
    const piece = Math.ceil(bytesPerSecond / 10);
    const timer = setInterval(() => {
      const read = this.socket.read(piece) as Buffer | null;
      if (read !== null) this.bytes += read.length;
    }, 100);
    this.socket.removeAllListeners('data');
    this.socket.once('close', () => clearInterval(timer));
  }
}

export function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}
