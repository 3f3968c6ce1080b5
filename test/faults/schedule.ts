/**
 * A schedule drawn from a seed: who asks what of which gateway and when, how the upstream treats each call, and what
 * breaks.
 *
 * Invariants: pure, the same seed gives the same schedule; times are milliseconds from its beginning; a gateway is killed
 * or stopped at most once; only the kind `forgets` empties the store, or has it drop something; a primary is killed at
 * most once.
 */

import { Random } from '../support/random.js';
import { LEASE_MS, ROUTES } from './routes.js';

/** How the upstream treats one call. `afterMs`: it works for so long before. */
export type Step =
  | { readonly kind: 'answers'; readonly afterMs: number; readonly status: number; readonly bytes: number }
  | Drip
  | { readonly kind: 'hangs-up' | 'resets' | 'cuts-length' | 'cuts-chunked' | 'stalls'; readonly afterMs: number };

/** The content comes in pieces, `afterMs` apart. */
type Drip = {
  readonly kind: 'drips';
  readonly afterMs: number;
  readonly status: number;
  readonly bytes: number;
  readonly pieces: number;
  readonly framing: 'length' | 'chunked';
  /** The connection ends in the place of this piece; null: the answer is whole. */
  readonly cutAt: number | null;
};

export type RequestPlan = {
  readonly atMs: number;
  readonly route: string;
  readonly path: string;
  readonly body: string;
  readonly gateway: number;
  /** When the client leaves, after it has sent; null: it stays. */
  readonly leavesAfterMs: number | null;
};

export type Fault = { readonly atMs: number } & (
  | { readonly kind: 'kill'; readonly gateway: number; readonly forMs: number }
  | { readonly kind: 'stop'; readonly gateway: number; readonly forMs: number }
  /** The next reply to this gateway is lost, with its connection. */
  | { readonly kind: 'drop-reply'; readonly gateway: number }
  /** Between this gateway and the store nothing passes, and the connections are gone afterwards. */
  | { readonly kind: 'black-hole'; readonly gateway: number; readonly forMs: number }
  /** What this gateway asks of the store arrives late. */
  | { readonly kind: 'slow-network'; readonly gateway: number; readonly forMs: number }
  /** What it asks arrives when it has given the connection up. */
  | { readonly kind: 'late-packet'; readonly gateway: number; readonly forMs: number }
  | { readonly kind: 'kill-connections'; readonly of: 'normal' | 'pubsub' }
  | { readonly kind: 'pause-store'; readonly forMs: number }
  | { readonly kind: 'forget-scripts' }
  | { readonly kind: 'refuse-upstream'; readonly forMs: number }
  | { readonly kind: 'flush' }
  /** Memory is short: the store drops what it likes. */
  | { readonly kind: 'evict' }
  /** The connections between this gateway and the upstream end. */
  | { readonly kind: 'cut-upstream'; readonly gateway: number }
  /** Between this gateway and the upstream nothing passes, and the connections are gone afterwards. */
  | { readonly kind: 'black-hole-upstream'; readonly gateway: number; readonly forMs: number }
  /** A primary is killed, and its replica takes over. Which: 0 where there is only one. */
  | { readonly kind: 'fail-over'; readonly primary: number }
  /** What is in some slots moves to other nodes of the cluster. */
  | { readonly kind: 'move-slots' }
);

export type Schedule = {
  readonly seed: number;
  /** `calm`: nothing breaks but upstream calls. `forgets`: the store loses everything at times. */
  readonly kind: 'calm' | 'faults' | 'forgets';
  readonly store: 'single' | 'sentinel' | 'cluster';
  readonly processes: number;
  readonly requests: readonly RequestPlan[];
  readonly faults: readonly Fault[];
  /** Of each path, what its first, second … call meets; after the last the first again. */
  readonly steps: Readonly<Record<string, readonly Step[]>>;
};

const LENGTH_MS = 2_500;
const GROUPS = 120;
const STEPS = 5;
/** How far apart those of a group ask, milliseconds: where it matters who waits already, or what has come, over longer. */
const APART_MS = 300;
const FAR_APART_MS = 1_200;
/** Within a schedule most answers that come in pieces take longer than this. */
const LONGEST_PAUSE_MS = 250;
const CLUSTER_PRIMARIES = 3;
const LINGERS = 0.01;
/** Each piece comes within the upstream's deadline. */
const LINGERS_MS = 6_400;
/** When a replica has certainly taken over, and its primary may be its replica again. */
const TAKEN_OVER_MS = [3_000, 4_500, 6_000, 8_000];
/** Keys of each route over which a primary is killed: some are another primary's. */
const SURVIVORS = 2;
/** Keys of a route with `once` are used up by their first answer: new ones come up at this pace. */
const EPOCH_MS = 300;

export function scheduleOf(seed: number): Schedule {
  const random = new Random(seed);
  const kind = random.weighted([
    [2, 'calm'],
    [7, 'faults'],
    [1, 'forgets'],
  ] as const);
  const processes = random.whole(2, 3);
  const store = random.weighted([
    [14, 'single'],
    [3, 'sentinel'],
    [3, 'cluster'],
  ] as const);
  const requests = Array.from({ length: GROUPS }, () => groupOf(random, processes)).flat();
  const steps: Record<string, Step[]> = {};
  for (const { path, route } of requests) {
    const { streams } = ROUTES.find(({ name }) => name === route)!;
    steps[path] ??= Array.from({ length: STEPS }, () => (streams ? streamStepOf(random) : stepOf(random)));
  }
  const faults = faultsOf(random, kind, store, processes);
  for (const fault of faults) {
    if (fault.kind === 'kill' || fault.kind === 'stop' || (fault.kind === 'black-hole' && fault.forMs > LEASE_MS)) {
      requests.push(...chaseOf(random, fault, processes, steps));
    }
    if (fault.kind === 'fail-over') requests.push(...survivalOf(random, fault, processes, steps));
  }
  requests.sort((one, other) => one.atMs - other.atMs);
  return { seed, kind, store, processes, requests, faults, steps };
}

/** Some requests of one key, close together. */
function groupOf(random: Random, processes: number): RequestPlan[] {
  const atMs = random.whole(0, LENGTH_MS);
  const rule = random.pick(ROUTES);
  const epoch = Math.floor(atMs / EPOCH_MS);
  const young = random.chance(0.6) ? epoch : random.whole(0, epoch);
  const key = rule.once && rule.keepMs > LENGTH_MS ? `${young}-${random.whole(0, 1)}` : `${random.whole(0, 2)}`;
  const together = random.chance(rule.policy === 'queue' || rule.streams ? 0.4 : 0.7);
  const apartMs = rule.policy === 'queue' || rule.streams ? FAR_APART_MS : APART_MS;
  return Array.from({ length: random.whole(1, 5) }, () => ({
    atMs: atMs + (together ? random.whole(0, 15) : random.whole(0, apartMs)),
    route: rule.name,
    path: `/${rule.name}/${key}`,
    body: random.chance(0.85) ? 'A' : 'B',
    gateway: random.whole(0, processes - 1),
    leavesAfterMs: random.chance(0.12) ? random.whole(0, rule.streams ? 800 : 60) : null,
  }));
}

/**
 * What chance seldom brings: a leader is cut off from its key while its call runs, another one takes the key when the
 * lease has passed, and the first one comes back while the second one's call runs.
 */
function chaseOf(
  random: Random,
  { atMs, gateway, forMs }: { readonly atMs: number; readonly gateway: number; readonly forMs: number },
  processes: number,
  steps: Record<string, Step[]>,
): RequestPlan[] {
  return ROUTES.flatMap(({ name, streams }) => {
    const answer = (afterMs: number): Step =>
      streams ? dripOf(afterMs, 4) : { kind: 'answers', afterMs, status: 200, bytes: 100 };
    const path = `/${name}/chase-${atMs}-${gateway}`;
    // Over while it is cut off, or still running when it is back.
    const firstMs = random.chance(0.5)
      ? random.whole(200, LEASE_MS + 300)
      : random.whole(LEASE_MS + 600, 2 * LEASE_MS + 150);
    steps[path] = [answer(firstMs), answer(random.whole(LEASE_MS, 2 * LEASE_MS)), answer(300)];
    const others = (gateway + 1 + random.whole(0, processes - 2)) % processes;
    const ask = (at: number, by: number) => ({
      atMs: atMs + at,
      route: name,
      path,
      body: 'A',
      gateway: by,
      leavesAfterMs: null,
    });
    const back = Math.max(forMs, LEASE_MS + 200);
    return [
      ask(-random.whole(100, 250), gateway),
      ask(LEASE_MS / 2, others),
      ask(LEASE_MS + random.whole(20, 100), others),
      ...[20, 150, 400].map((afterMs) => ask(back + afterMs, random.chance(0.5) ? others : gateway)),
    ];
  });
}

/**
 * Who has a key when a primary is killed, and who asks for it while the replica takes over and when it has: what was
 * claimed, and what is held, is still there.
 */
function survivalOf(
  random: Random,
  { atMs }: { readonly atMs: number },
  processes: number,
  steps: Record<string, Step[]>,
): RequestPlan[] {
  return ROUTES.flatMap(({ name, streams }) =>
    Array.from({ length: SURVIVORS }, (_, key) => {
      const path = `/${name}/survival-${atMs}-${key}`;
      const afterMs = random.whole(20, 2 * LEASE_MS);
      const first: Step = streams ? dripOf(afterMs, 4) : { kind: 'answers', afterMs, status: 200, bytes: 100 };
      steps[path] = [random.chance(0.3) ? { kind: 'resets', afterMs } : first, stepOf(random), stepOf(random)];
      return [-random.whole(40, 300), ...TAKEN_OVER_MS].map((at) => ({
        atMs: Math.max(0, atMs + at),
        route: name,
        path,
        body: 'A',
        gateway: random.whole(0, processes - 1),
        leavesAfterMs: null,
      }));
    }).flat(),
  );
}

/** An answer that takes so long in all. */
function dripOf(longMs: number, pieces: number): Drip {
  const afterMs = Math.ceil(longMs / pieces);
  return { kind: 'drips', afterMs, status: 200, bytes: 1_000, pieces, framing: 'chunked', cutAt: null };
}

/** Most come in pieces, and longer than it takes to ask; some are cut in the middle. */
function streamStepOf(random: Random): Step {
  if (random.chance(0.3)) return stepOf(random);
  const pieces = random.whole(3, 8);
  return {
    kind: 'drips',
    afterMs: random.whole(20, LONGEST_PAUSE_MS),
    status: random.chance(0.9) ? 200 : 500,
    bytes: bytesOf(random),
    pieces,
    framing: random.pick(['length', 'chunked'] as const),
    cutAt: random.chance(0.2) ? random.whole(1, pieces - 1) : null,
  };
}

function stepOf(random: Random): Step {
  // Longer than anybody waits for somebody else's answer.
  if (random.chance(LINGERS)) return dripOf(LINGERS_MS, 8);
  const kind = random.weighted([
    [72, 'answers'],
    [9, 'drips'],
    [5, 'hangs-up'],
    [5, 'resets'],
    [3, 'cuts-length'],
    [3, 'cuts-chunked'],
    [3, 'stalls'],
  ] as const);
  const afterMs = random.weighted([
    [50, random.whole(0, 20)],
    [30, random.whole(20, 200)],
    // Longer than a lease: only renewals keep the key.
    [20, random.whole(LEASE_MS + 100, LEASE_MS * 2)],
  ]);
  if (kind !== 'answers' && kind !== 'drips') return { kind, afterMs: Math.min(afterMs, 300) };
  const status = random.weighted([
    [80, 200],
    [8, 201],
    [6, 500],
    [6, 503],
  ]);
  const bytes = bytesOf(random);
  if (kind === 'answers') return { kind, status, bytes, afterMs };
  return { kind, status, bytes, afterMs: Math.min(afterMs, 60), pieces: 3, framing: 'length', cutAt: null };
}

/** Pushes carry up to 16 KiB; up to 64 KiB an answer is held back until it is recorded. */
function bytesOf(random: Random): number {
  return random.weighted([
    [80, random.whole(20, 200)],
    [12, random.whole(17_000, 30_000)],
    [8, random.whole(70_000, 120_000)],
  ]);
}

function faultsOf(random: Random, kind: Schedule['kind'], store: Schedule['store'], processes: number): Fault[] {
  if (kind === 'calm') return [];
  const whole = Array.from({ length: processes }, (_, gateway) => gateway);
  const faults: Fault[] = [];
  for (let left = random.whole(1, 4); left > 0; left -= 1) {
    const atMs = random.whole(150, LENGTH_MS - 300);
    const gateway = random.whole(0, processes - 1);
    const shortMs = random.whole(100, 600);
    const longMs = random.whole(LEASE_MS + 100, LEASE_MS * 2);
    const fault = random.weighted<Fault>([
      [4, { atMs, kind: 'kill', gateway, forMs: random.whole(0, 200) }],
      [4, { atMs, kind: 'stop', gateway, forMs: longMs }],
      [3, { atMs, kind: 'drop-reply', gateway }],
      [2, { atMs, kind: 'black-hole', gateway, forMs: random.chance(0.7) ? shortMs : longMs }],
      [2, { atMs, kind: 'slow-network', gateway, forMs: shortMs }],
      [2, { atMs, kind: 'late-packet', gateway, forMs: longMs + 400 }],
      [2, { atMs, kind: 'kill-connections', of: random.pick(['normal', 'pubsub'] as const) }],
      [1, { atMs, kind: 'pause-store', forMs: random.chance(0.7) ? shortMs : longMs }],
      [1, { atMs, kind: 'forget-scripts' }],
      [2, { atMs, kind: 'refuse-upstream', forMs: shortMs }],
      [1, { atMs, kind: 'cut-upstream', gateway }],
      [1, { atMs, kind: 'black-hole-upstream', gateway, forMs: shortMs }],
    ]);
    if (fault.kind === 'kill' || fault.kind === 'stop') {
      if (!whole.includes(gateway)) continue;
      whole.splice(whole.indexOf(gateway), 1);
    }
    faults.push(fault);
  }
  const atMs = random.whole(300, LENGTH_MS - 300);
  if (kind === 'forgets') faults.push({ atMs, kind: random.pick(['flush', 'evict'] as const) });
  else if (store === 'sentinel') faults.push({ atMs, kind: 'fail-over', primary: 0 });
  else if (store === 'cluster') {
    const [moves, failsOver] = random.pick([
      [true, false],
      [false, true],
      [true, true],
    ] as const);
    if (moves) faults.push({ atMs: random.whole(300, LENGTH_MS - 300), kind: 'move-slots' });
    if (failsOver) faults.push({ atMs, kind: 'fail-over', primary: random.whole(0, CLUSTER_PRIMARIES - 1) });
  }
  return faults.sort((one, other) => one.atMs - other.atMs);
}
