/**
 * `oneflight demo`: the proof in a table. The same bursts go straight at a slow API and through the gateway.
 *
 * Invariants: nothing is assumed, the API's own counters and the answers are compared; the exit code is 0 only when both
 * halves held, that is, when the burst does harm without the gateway and none with it. All traffic is on loopback.
 */

import { once } from 'node:events';
import { pino } from 'pino';
import { startGateway } from '../app.js';
import type { Config } from '../config/config.js';
import { type ApiCounts, type DemoApi, startDemoApi } from './demo-api.js';
import { demoConfig } from './demo-config.js';
import { DONE, FAILED } from './exit-code.js';
import { type Answer, type Outgoing, send } from './send.js';
import { table } from './table.js';

export type DemoOptions = {
  /** Ends after the proof instead of staying up. */
  readonly once: boolean;
  /** Port of the gateway; 0 picks a free one. */
  readonly port: number;
  readonly version: string;
  readonly write: (text: string) => void;
};

type Trial = { readonly answers: readonly Answer[]; readonly before: ApiCounts; readonly after: ApiCounts };

const HOST = '127.0.0.1';
const LATENCY_MS = 1_000;
const TABS = 20;
const CLICKS = 2;
const TIMEOUT_MS = 20_000;

/** Runs the demo; 0 when the proof held, else 1. */
export async function demo(options: DemoOptions): Promise<number> {
  const print = (line = ''): void => options.write(`${line}\n`);
  const api = await startDemoApi({ host: HOST, port: 0, latencyMs: LATENCY_MS });
  const config = demoConfig({ host: HOST, port: options.port, upstream: new URL(api.url) });
  const gateway = await openGateway(config, options.version, api);
  try {
    print(`A slow API (${LATENCY_MS / 1_000} s a call) at ${api.url}, Oneflight in front of it at ${gateway.url}`);
    print();
    const refreshHeld = await showRefresh(api, gateway.url, print);
    const proceedHeld = await showProceed(api, gateway.url, print);
    const held = refreshHeld && proceedHeld;
    print(held ? 'The proof held.' : 'THE PROOF DID NOT HOLD.');
    if (!options.once) await stayUp(api.url, gateway.url, print);
    return held ? DONE : FAILED;
  } finally {
    await gateway.close();
    await api.close();
  }
}

async function openGateway(config: Config, version: string, api: DemoApi): ReturnType<typeof startGateway> {
  try {
    return await startGateway(config, { version, log: pino({ level: 'silent' }), source: null });
  } catch (error) {
    await api.close();
    throw error;
  }
}

async function showRefresh(api: DemoApi, gatewayUrl: string, print: (line?: string) => void): Promise<boolean> {
  const burst = (url: string): Promise<Trial> => {
    const refreshToken = api.newSession();
    return trial(api, url, TABS, { target: '/auth/sessions/refresh', content: JSON.stringify({ refreshToken }) });
  };
  const alone = await burst(api.url);
  const behind = await burst(gatewayUrl);
  const calls = (run: Trial): number => run.after.refreshCalls - run.before.refreshCalls;
  const lost = (run: Trial): number => run.after.sessionsLost - run.before.sessionsLost;
  const row = (label: string, run: Trial): string[] => [
    label,
    String(run.answers.length),
    String(calls(run)),
    String(pairs(run).size),
    String(withStatus(run, 200)),
    String(lost(run)),
    slowest(run),
  ];

  print(`${TABS} browser tabs refresh one session at the same time (policy: coalesce)`);
  print();
  for (const line of table([
    ['', 'calls sent', 'upstream calls', 'token pairs', 'answered 200', 'sessions lost', 'slowest answer'],
    row('straight at the API', alone),
    row('through Oneflight', behind),
  ])) {
    print(`  ${line}`);
  }
  print();
  const harm = lost(alone) === 1;
  const cured =
    calls(behind) === 1 && lost(behind) === 0 && pairs(behind).size === 1 && withStatus(behind, 200) === TABS;
  print(`  without: ${harm ? 'the user is logged out' : 'NO HARM DONE, nothing was proved'}`);
  print(`  with:    ${cured ? 'every tab has the same token pair' : 'THE BURST WAS NOT COALESCED'}`);
  print();
  return harm && cured;
}

async function showProceed(api: DemoApi, gatewayUrl: string, print: (line?: string) => void): Promise<boolean> {
  const clicks = (url: string, step: string): Promise<Trial> =>
    trial(api, url, CLICKS, { target: `/sessions/s-1/steps/${step}/proceed`, content: '{}' });
  const alone = await clicks(api.url, 'one');
  const behind = await clicks(gatewayUrl, 'two');
  const calls = (run: Trial): number => run.after.proceedCalls - run.before.proceedCalls;
  const row = (label: string, run: Trial): string[] => [
    label,
    String(run.answers.length),
    String(calls(run)),
    String(withStatus(run, 200)),
    String(withStatus(run, 429)),
    slowest(run),
  ];

  print('A double-click on "proceed" (policy: reject)');
  print();
  for (const line of table([
    ['', 'calls sent', 'upstream calls', 'answered 200', 'answered 429', 'slowest answer'],
    row('straight at the API', alone),
    row('through Oneflight', behind),
  ])) {
    print(`  ${line}`);
  }
  print();
  const harm = calls(alone) === CLICKS;
  const cured = calls(behind) === 1 && withStatus(behind, 200) === 1 && withStatus(behind, 429) === CLICKS - 1;
  print(`  without: ${harm ? 'the cascade runs twice' : 'NO HARM DONE, nothing was proved'}`);
  print(`  with:    ${cured ? 'it runs once, the second click is refused' : 'THE DOUBLE-CLICK WAS NOT REFUSED'}`);
  print();
  return harm && cured;
}

/** Sends the same request `times` at once, each on its own connection, and reads the API's counters around it. */
async function trial(
  api: DemoApi,
  url: string,
  times: number,
  { target, content }: { readonly target: string; readonly content: string },
): Promise<Trial> {
  const request: Outgoing = {
    method: 'POST',
    target,
    fields: ['Content-Type', 'application/json'],
    content: Buffer.from(content),
  };
  const before = api.counts();
  const answers = await Promise.all(Array.from({ length: times }, () => send(new URL(url), request, TIMEOUT_MS)));
  return { answers, before, after: api.counts() };
}

function pairs(run: Trial): Set<string> {
  return new Set(run.answers.filter(({ status }) => status === 200).map(({ content }) => content.toString('latin1')));
}

function withStatus(run: Trial, status: number): number {
  return run.answers.filter((answer) => answer.status === status).length;
}

function slowest(run: Trial): string {
  return `${(Math.max(...run.answers.map(({ tookMs }) => tookMs)) / 1_000).toFixed(2)} s`;
}

async function stayUp(apiUrl: string, gatewayUrl: string, print: (line?: string) => void): Promise<void> {
  print();
  print('Still running. Try it yourself, several times at once:');
  print();
  print(`  token=$(curl -s -X POST ${gatewayUrl}/auth/sessions | cut -d'"' -f4)`);
  print(`  for tab in 1 2 3; do curl -si ${gatewayUrl}/auth/sessions/refresh \\`);
  print(`    -H 'Content-Type: application/json' -d "{\\"refreshToken\\":\\"$token\\"}" & done; wait`);
  print();
  print(`Against ${apiUrl} the same lines log the user out. What the API counted: curl ${apiUrl}/counts`);
  print('Ctrl-C ends it.');
  await ended();
}

/** Runs the slow API alone until Ctrl-C. */
export async function serveDemoApi(options: {
  readonly host: string;
  readonly port: number;
  readonly write: (text: string) => void;
}): Promise<number> {
  const api = await startDemoApi({ host: options.host, port: options.port, latencyMs: LATENCY_MS });
  options.write(`A slow API (${LATENCY_MS / 1_000} s a call) at ${api.url}. Ctrl-C ends it.\n`);
  await ended();
  await api.close();
  return DONE;
}

async function ended(): Promise<void> {
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
}
