/**
 * The soak: two gateways on one real Redis at the highest rate that this machine has, with clients that leave and calls that
 * fail, for as long as is asked; then everything must add up, and nothing be left.
 *
 * Invariants: memory and handles are looked at between two rounds, when nothing is under way and all garbage is collected,
 * so that what is counted is what is kept; what is said of the API and of clients comes from them, not from the gateways.
 */

import { delay, eventually, within } from '../support/gate.js';
import { configOf, type Gateway, metricsOf, type Samples, type Scope, startGateways } from '../support/gateway.js';
import { Random } from '../support/random.js';
import { type RedisServer, startRedis } from '../support/redis.js';
import { Lanes } from './lanes.js';
import { RETENTION_MS, SOAK_ROUTES, soakYaml } from './routes.js';
import { SoakApi } from './soak-api.js';
import { sumFaults } from './sums.js';

export type SoakOptions = {
  readonly rounds: number;
  readonly roundMs: number;
  readonly lanes: number;
  readonly seed: number;
  /** Rounds at the beginning whose memory is not compared: code is compiled, pools and tables grow. */
  readonly warmUpRounds: number;
  /** How long it may take until nothing at all is in the store; 0: only what has an end may be. */
  readonly storeEmptyWithinMs: number;
  /** Most by which a heap may grow between the warm-up and the end, by the line through all samples. */
  readonly mostGrowthBytes: number;
  readonly say: (line: string) => void;
};

/** What was kept after a round. */
type Kept = { readonly heapBytes: number; readonly rssBytes: number; readonly handles: number };
type Collected = {
  readonly msg: 'collected';
  readonly heapUsed: number;
  readonly external: number;
  readonly rss: number;
  readonly handles: Readonly<Record<string, number>>;
};

export type SoakReport = {
  readonly requests: number;
  readonly seconds: number;
  /** By gateway, after each round. */
  readonly kept: readonly (readonly Kept[])[];
  /** All outcomes of all routes. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly calls: number;
  /** What is not as it must be; empty: everything is. */
  readonly faults: readonly string[];
};

const MIB = 1_048_576;
/** Connections that a pool has at one time and not at another. */
const MOST_MORE_HANDLES = 60;
const OVER_WITHIN_MS = 30_000;
/** The longest that the store remembers pieces for late followers. */
const MOST_PASSING_MS = 120_000;
const COLLECTOR = new URL('./collected.js', import.meta.url).href;
const GAUGES = [
  'flights_in_progress',
  'queued_requests',
  'open_upgrades',
  'requests_in_progress',
  'connections',
  'upstream_pending_requests',
  'upstream_waiting_requests',
];
const NEVER = ['leases_lost_total', 'unsettled_flights_total'];

export async function soak(t: Scope, options: SoakOptions): Promise<SoakReport> {
  const { rounds, roundMs, lanes, seed, say } = options;
  const random = new Random(seed);
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  const api = await SoakApi.start(t, random);
  const store = `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`;
  const config = configOf({ upstream: api.url, store, routes: soakYaml(), more: 'log: { level: warn }' });
  const gateways = await startGateways(t, 2, { config, env: { NODE_OPTIONS: `--import=${COLLECTOR}` } });
  const clients = new Lanes(
    random,
    gateways.map(({ url }) => url),
  );
  t.teardown(() => clients.close());

  const kept: Kept[][] = gateways.map(() => []);
  let workedMs = 0;
  for (let round = 1; round <= rounds; round += 1) {
    const [beganMs, before] = [performance.now(), clients.sent];
    await clients.run(lanes, roundMs);
    const tookMs = performance.now() - beganMs;
    workedMs += tookMs;
    await eventually('nothing under way', async () => (await busy(gateways)) === 0, OVER_WITHIN_MS);
    for (const [at, gateway] of gateways.entries()) kept[at]?.push(await collected(gateway));
    const rate = Math.round(((clients.sent - before) * 1_000) / tookMs);
    say(`round ${round}: ${rate} requests/s; ${kept.map((all) => keptText(all.at(-1)!)).join('; ')}`);
  }
  clients.close();
  const faults = [
    ...kept.flatMap((all, at) => keptFaults(`gateway ${at + 1}`, all, options)),
    ...(await leftovers(gateways)),
    ...(await storeFaults(redis, options.storeEmptyWithinMs)),
    ...clients.oddities.slice(0, 10),
  ];
  const metrics = await metricsOf(gateways);
  for (const route of SOAK_ROUTES) {
    const { name } = route;
    const calls = metrics.sum('oneflight_upstream_calls_total', { route: name });
    const outcomes = metrics.outcomes(name);
    const foretold = metrics.sum('oneflight_observed_requests_total', { route: name });
    const [seen, arrived] = [clients.tallies.get(name)!, api.callsOf(name)];
    faults.push(...sumFaults({ route, clients: seen, outcomes, calls, foretold, arrived }));
    say(`${name}: ${api.callsOf(name)} calls; ${outcomesText(outcomes)}`);
  }
  return {
    requests: clients.sent,
    seconds: workedMs / 1_000,
    kept,
    outcomes: sumOfOutcomes(metrics),
    calls: metrics.sum('oneflight_upstream_calls_total'),
    faults,
  };
}

/** Requests and flights that are not over. */
async function busy(gateways: readonly Gateway[]): Promise<number> {
  const metrics = await metricsOf(gateways);
  return metrics.sum('oneflight_requests_in_progress') + metrics.sum('oneflight_flights_in_progress');
}

async function collected(gateway: Gateway): Promise<Kept> {
  const all = () => gateway.logs.filter(({ msg }) => msg === 'collected') as unknown as Collected[];
  const before = all().length;
  gateway.signal('SIGUSR2');
  await within(
    20_000,
    'a collection',
    eventually('a line of it', () => all().length > before, 20_000),
  );
  const { heapUsed, external, rss, handles } = all().at(-1)!;
  const count = Object.values(handles).reduce((sum, one) => sum + one, 0);
  return { heapBytes: heapUsed + external, rssBytes: rss, handles: count };
}

function keptText({ heapBytes, rssBytes, handles }: Kept): string {
  return `heap ${(heapBytes / MIB).toFixed(1)} MiB, rss ${Math.round(rssBytes / MIB)} MiB, ${handles} handles`;
}

/** Whether what is kept grows with what was done. */
function keptFaults(who: string, all: readonly Kept[], options: SoakOptions): string[] {
  const settled = all.slice(options.warmUpRounds);
  const growth = slopeOf(settled.map(({ heapBytes }) => heapBytes)) * (settled.length - 1);
  const half = Math.ceil(settled.length / 2);
  const most = (part: readonly Kept[]) => Math.max(...part.map(({ handles }) => handles));
  const moreHandles = most(settled.slice(half)) - most(settled.slice(0, half));
  const faults: string[] = [];
  if (growth > options.mostGrowthBytes) faults.push(`${who}: its heap grew by ${(growth / MIB).toFixed(1)} MiB`);
  if (moreHandles > MOST_MORE_HANDLES) faults.push(`${who}: ${moreHandles} more handles in the second half`);
  return faults;
}

/** Of the line through values at equal distances, by least squares. */
export function slopeOf(values: readonly number[]): number {
  const mean = (numbers: readonly number[]) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
  const [middle, level] = [(values.length - 1) / 2, mean(values)];
  const spread = values.reduce((sum, _, at) => sum + (at - middle) ** 2, 0);
  return spread === 0 ? 0 : values.reduce((sum, value, at) => sum + (at - middle) * (value - level), 0) / spread;
}

/** What is still there when everything is over and its time has passed. */
async function leftovers(gateways: readonly Gateway[]): Promise<string[]> {
  const faults: string[] = [];
  const looks = [...GAUGES, ...NEVER].map((name) => `oneflight_${name}`);
  const notZero = (metrics: Samples) => looks.filter((name) => metrics.sum(name) !== 0);
  const isOver = async () => notZero(await metricsOf(gateways)).length === 0;
  await eventually('everything at 0', isOver).catch(() => {});
  const metrics = await metricsOf(gateways);
  for (const name of notZero(metrics)) faults.push(`${name} is ${metrics.sum(name)}`);
  for (const [at, gateway] of gateways.entries()) {
    if (!gateway.running) faults.push(`gateway ${at + 1} has ended`);
    const errors = gateway.logs.filter(({ level }) => typeof level === 'number' && level >= 50);
    for (const line of errors.slice(0, 3)) faults.push(`gateway ${at + 1} logged ${JSON.stringify(line)}`);
    if (gateway.stderr !== '') faults.push(`gateway ${at + 1} wrote ${gateway.stderr.slice(0, 500)}`);
  }
  return faults;
}

/** Records of flights, turns and marks are gone when their time is; ends and pieces of flights stay for who missed them. */
async function storeFaults(redis: RedisServer, emptyWithinMs: number): Promise<string[]> {
  const names = async () => (await redis.command('KEYS', '*')) as string[];
  const passing = /\}:[rsp]:[^:]+$/;
  await delay(RETENTION_MS);
  await eventually('no record', async () => (await names()).every((name) => passing.test(name))).catch(() => {});
  const faults = (await names()).filter((name) => !passing.test(name)).map((name) => `left in the store: ${name}`);
  for (const name of await names()) {
    const leftMs = Number(await redis.command('PTTL', name));
    // -2: its time has come in between.
    if (leftMs === -1 || leftMs > MOST_PASSING_MS) faults.push(`in the store for ${leftMs} ms: ${name}`);
  }
  if (emptyWithinMs > 0) {
    const isEmpty = async () => (await redis.command('DBSIZE')) === 0;
    await eventually('an empty store', isEmpty, emptyWithinMs).catch(({ message }: Error) => faults.push(message));
  }
  return faults.slice(0, 10);
}

function sumOfOutcomes(metrics: Samples): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const { name } of SOAK_ROUTES) {
    for (const [label, count] of Object.entries(metrics.outcomes(name))) sums[label] = (sums[label] ?? 0) + count;
  }
  return sums;
}

export function outcomesText(outcomes: Readonly<Record<string, number>>): string {
  return Object.entries(outcomes)
    .map(([label, count]) => `${label} ${count}`)
    .join(', ');
}
