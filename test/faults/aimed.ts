/**
 * Schedules that are aimed: each brings about just the situation in which one of the planted faults shows, on several
 * keys, and leaves so much time between its steps that a machine which is busy changes nothing.
 *
 * All but the requests' gateways follows from the bounds in routes.ts: a lease of 900 ms, renewed every 300 ms.
 */

import { LEASE_MS } from './routes.js';
import type { Fault, RequestPlan, Schedule, Step } from './schedule.js';

const KEYS = 2;

type Asked = {
  readonly atMs: number;
  readonly gateway: number;
  readonly body?: string;
};

/** Of every key of each route: who asks when, and what its calls meet. */
type Aim = {
  /** Of its keys: no other schedule has the same. */
  readonly name: string;
  readonly routes: readonly string[];
  readonly asks: readonly Asked[];
  readonly steps: readonly Step[];
  readonly faults?: readonly Fault[];
};

function aimed({ name, routes, asks, steps, faults = [] }: Aim): Schedule {
  const paths = routes.flatMap((route) =>
    Array.from({ length: KEYS }, (_, key) => ({ route, path: `/${route}/${name}-${key}` })),
  );
  const requests: RequestPlan[] = paths.flatMap(({ route, path }) =>
    asks.map(({ atMs, gateway, body = 'A' }) => ({ atMs, route, path, body, gateway, leavesAfterMs: null })),
  );
  requests.sort((one, other) => one.atMs - other.atMs);
  return {
    // Without a secret: what is wrong is then not hidden behind a frame that cannot be opened.
    seed: 0,
    kind: faults.length === 0 ? 'calm' : 'faults',
    store: 'single',
    processes: 2,
    requests,
    faults,
    steps: Object.fromEntries(paths.map(({ path }) => [path, steps])),
  };
}

function answer(afterMs: number, bytes = 100): Step {
  return { kind: 'answers', afterMs, status: 200, bytes };
}

/** Gateway 0 stands still until its lease has long passed; gateway 1 takes the key, and its call runs when 0 is back. */
const BACK_MS = 1_900;
function overtaken(name: string, routes: readonly string[], firstMs: number): Schedule {
  return aimed({
    name,
    routes,
    faults: [{ atMs: 150, kind: 'stop', gateway: 0, forMs: BACK_MS - 150 }],
    asks: [
      { atMs: 0, gateway: 0 },
      { atMs: LEASE_MS + 400, gateway: 1 },
      { atMs: BACK_MS + 500, gateway: 0 },
      { atMs: BACK_MS + 900, gateway: 0 },
      { atMs: BACK_MS + 1_000, gateway: 1 },
    ],
    steps: [answer(firstMs), answer(1_900), answer(100)],
  });
}

/** The first call is over while its gateway stands still: it settles late. */
export const SETTLES_LATE_LOCK = overtaken('late-lock', ['lock'], 1_000);
export const SETTLES_LATE_SHARED = overtaken('late', ['strict', 'freed'], BACK_MS - 200);
/** The first call runs on when its gateway is back: it renews late. */
export const RENEWS_LATE = overtaken('renews', ['strict', 'streams'], BACK_MS + 1_300);

/** Who waits was told of a lease that had just been renewed: without a push it looks again when that has passed. */
export const WAITS_FOR_PUSH = aimed({
  name: 'waits',
  routes: ['prompt'],
  asks: [0, 1_500, 3_000].flatMap((atMs) => [
    { atMs, gateway: 0 },
    { atMs: atMs + 320, gateway: 1 },
    { atMs: atMs + 370, gateway: 1 },
  ]),
  steps: [answer(450)],
});

/** A first flight with a follower is over for long when a second one is followed; its follower polls twice. */
export const SECOND_FLIGHT = aimed({
  name: 'second',
  routes: ['fresh', 'strict'],
  asks: [
    { atMs: 0, gateway: 0 },
    { atMs: 60, gateway: 1 },
    { atMs: 1_200, gateway: 0 },
    { atMs: 1_260, gateway: 1 },
  ],
  steps: [answer(200), answer(800)],
});

export const REPEATS_UNKNOWN = aimed({
  name: 'unknown',
  routes: ['once', 'waits', 'lock-held'],
  asks: [
    { atMs: 0, gateway: 0 },
    { atMs: 450, gateway: 1 },
  ],
  steps: [{ kind: 'resets', afterMs: 50 }, answer(50)],
});

export const LONG_CALLS = aimed({
  name: 'long',
  routes: ['lock', 'strict', 'freed'],
  asks: [
    { atMs: 0, gateway: 0 },
    { atMs: LEASE_MS + 300, gateway: 1 },
  ],
  // The upstream's deadline is 2 s.
  steps: [answer(1_800), answer(50)],
});

export const DIES = aimed({
  name: 'dies',
  routes: ['once', 'freed'],
  faults: [{ atMs: 300, kind: 'kill', gateway: 0, forMs: 100 }],
  asks: [{ atMs: 0, gateway: 0 }],
  steps: [answer(1_500), answer(50)],
});

export const LOSES_REPLY = aimed({
  name: 'lost',
  routes: ['once'],
  faults: [{ atMs: 100, kind: 'drop-reply', gateway: 0 }],
  asks: [{ atMs: 400, gateway: 0 }],
  steps: [answer(50)],
});

export const OTHER_BODY = aimed({
  name: 'other',
  routes: ['waits'],
  asks: [
    { atMs: 0, gateway: 0 },
    { atMs: 150, gateway: 0, body: 'B' },
  ],
  steps: [answer(600)],
});

/** An answer that comes for longer than anybody waits, elsewhere than where it is read as it comes. */
export const WAITS_LONG = aimed({
  name: 'patience',
  routes: ['fresh', 'prompt'],
  asks: [
    { atMs: 0, gateway: 0 },
    { atMs: 100, gateway: 1 },
  ],
  steps: [
    { kind: 'drips', afterMs: 800, status: 200, bytes: 1_000, pieces: 9, framing: 'chunked', cutAt: null },
    answer(50),
  ],
});

/** As few schedules as can have all of these in them: those in which the same breaks are one. */
export function together(schedules: readonly Schedule[]): Schedule[] {
  const byFaults = new Map<string, Schedule>();
  for (const schedule of schedules) {
    const faults = JSON.stringify(schedule.faults);
    const there = byFaults.get(faults);
    const requests = [...(there?.requests ?? []), ...schedule.requests].sort((one, other) => one.atMs - other.atMs);
    byFaults.set(faults, { ...schedule, requests, steps: { ...there?.steps, ...schedule.steps } });
  }
  return [...byFaults.values()];
}
