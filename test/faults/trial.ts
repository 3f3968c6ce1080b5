/**
 * Many schedules, some at a time: each is drawn, played and judged.
 *
 * Invariant: what a schedule starts ends with it; each lane has a Redis of its own, for schedules break it.
 */

import type { Scope } from '../support/gateway.js';
import { type RedisServer, startRedis } from '../support/redis.js';
import { check } from './check.js';
import { play } from './play.js';
import { type Schedule, scheduleOf } from './schedule.js';
import { NOTHING, type Seen } from './seen.js';
import { faultOf, pathsOf, shrink } from './shrink.js';
import { callText, viewText } from './world.js';

const LANES = 2;

export type Verdict = {
  readonly schedule: Schedule;
  readonly seen: Seen;
  /** In words; empty: nothing is wrong. */
  readonly violations: readonly string[];
};

/** How exactly one schedule is run again. */
export function againText(seed: number): string {
  return `SEED=${seed} COUNT=1 npm run test:faults`;
}

/** How a schedule that was shortened, and so follows from no seed any more, is run again. */
export function shortenedText(schedule: Schedule): string {
  return `SCHEDULE='${JSON.stringify(schedule)}' npm run test:faults`;
}

/** Reads what `shortenedText` wrote. */
export function scheduleFrom(text: string): Schedule {
  return JSON.parse(text) as Schedule;
}

/** A schedule in a line. */
export function summaryOf({ schedule, seen, violations }: Verdict): string {
  const { seed, kind, store, processes, faults } = schedule;
  const broken = faults.map((fault) => `${fault.kind}@${fault.atMs}`).join(' ');
  const slow = seen.troubles.filter(({ what }) => what.startsWith('slow')).length;
  const counts = `${seen.views.length} requests, ${seen.executions.length} calls`;
  return `schedule ${seed}: ${kind}, ${store}, ${processes} processes, ${counts}, [${broken}], stood still ${slow}, ${violations.length} violations`;
}

/** What happened to the keys of which a violation tells, in order of time. */
export function timelinesOf({ seen, violations }: Verdict): string[] {
  const paths = pathsOf(violations);
  const troubles = seen.troubles.map(({ what, gateway, fromMs, toMs }) => ({
    atMs: fromMs,
    text: `trouble: ${what} of ${gateway} until ${Math.round(toMs)} ms`,
  }));
  return [...paths].flatMap((path) => {
    const calls = seen.executions.filter((call) => call.path === path);
    const views = seen.views.filter((view) => view.path === path);
    return [
      ...calls.map((call) => ({ atMs: call.startMs, text: `${callText(call)} fence ${call.fence}` })),
      ...views.map((view) => ({ atMs: view.startMs, text: viewText(view) })),
      ...troubles,
    ]
      .sort((one, other) => one.atMs - other.atMs)
      .map(({ atMs, text }) => `${Math.round(atMs)} ms: ${text}`);
  });
}

export type TrialOptions = {
  /** Path of the gateway's program; undefined: the one that was built. */
  readonly program?: string | undefined;
  /** Told of each verdict when it is there. `enough`: no further schedule is begun. */
  readonly tell: (verdict: Verdict) => 'enough' | undefined;
};

/** Plays and judges them all, each once. */
export async function runSchedules(schedules: readonly Schedule[], { program, tell }: TrialOptions): Promise<void> {
  const left = [...schedules];
  const lanes = Array.from({ length: Math.min(LANES, left.length) }, async () => {
    const server = await startRedis();
    try {
      for (let next = left.shift(); next !== undefined; next = left.shift()) {
        const schedule = next;
        const verdict = await verdictOf(schedule, server, program).catch((cause: unknown) => unplayed(schedule, cause));
        if (tell(verdict) === 'enough') left.length = 0;
      }
    } finally {
      await server.stop();
    }
  });
  await Promise.all(lanes);
}

/** Of a schedule of which something else than a gateway failed: the others are played all the same. */
function unplayed(schedule: Schedule, cause: unknown): Verdict {
  return { schedule, seen: NOTHING, violations: [`could not be played: ${cause}`] };
}

/**
 * A shorter schedule that fails alike, and what was seen of it; the same one when none was found in time. Whatever is
 * tried is played as often as there are lanes, for it may fail only now and then.
 */
export async function shortened(verdict: Verdict, forMs: number, program?: string): Promise<Verdict> {
  const servers = await Promise.all(Array.from({ length: LANES }, () => startRedis()));
  const failed = new Map<Schedule, Verdict>();
  const failures = async (schedule: Schedule): Promise<ReadonlySet<string>> => {
    const verdicts = await Promise.all(servers.map((server) => verdictOf(schedule, server, program)));
    for (const one of verdicts) if (one.violations.length > 0) failed.set(schedule, one);
    return new Set(verdicts.flatMap(({ violations }) => violations.map(faultOf)));
  };
  try {
    const untilMs = performance.now() + forMs;
    const shortest = await shrink(verdict.schedule, verdict.violations, { failures, untilMs });
    return failed.get(shortest) ?? verdict;
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** Those with the seeds `base`, `base + 1` … */
export function schedulesFrom(base: number, count: number): Schedule[] {
  return Array.from({ length: count }, (_, at) => scheduleOf(base + at));
}

/** Plays and judges one. */
export async function verdictOf(schedule: Schedule, server: RedisServer, program?: string): Promise<Verdict> {
  const ends: (() => void | Promise<void>)[] = [];
  const scope: Scope = { teardown: (end) => void ends.push(end), passing: () => true, comment: () => {} };
  try {
    const seen = await play(schedule, server, scope, program);
    return { schedule, seen, violations: check(seen) };
  } finally {
    for (const end of ends.reverse()) await end();
  }
}
