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
import type { Seen } from './seen.js';
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

/** A schedule in a line. */
export function summaryOf({ schedule, seen, violations }: Verdict): string {
  const { seed, kind, processes, faults } = schedule;
  const broken = faults.map((fault) => `${fault.kind}@${fault.atMs}`).join(' ');
  const slow = seen.troubles.filter(({ what }) => what.startsWith('slow')).length;
  const counts = `${seen.views.length} requests, ${seen.executions.length} calls`;
  return `schedule ${seed}: ${kind}, ${processes} processes, ${counts}, [${broken}], stood still ${slow}, ${violations.length} violations`;
}

/** What happened to the keys of which a violation tells, in order of time. */
export function timelinesOf({ seen, violations }: Verdict): string[] {
  const paths = new Set(violations.flatMap((violation) => /^(\/[\w-]+\/[\w-]+):/.exec(violation)?.[1] ?? []));
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
        if (tell(await verdictOf(next, server, program)) === 'enough') left.length = 0;
      }
    } finally {
      await server.stop();
    }
  });
  await Promise.all(lanes);
}

/** Those with the seeds `base`, `base + 1` … */
export function schedulesFrom(base: number, count: number): Schedule[] {
  return Array.from({ length: count }, (_, at) => scheduleOf(base + at));
}

async function verdictOf(schedule: Schedule, server: RedisServer, program: string | undefined): Promise<Verdict> {
  const ends: (() => void | Promise<void>)[] = [];
  const scope: Scope = { teardown: (end) => void ends.push(end), passing: () => true, comment: () => {} };
  try {
    const seen = await play(schedule, server, scope, program);
    return { schedule, seen, violations: check(seen) };
  } finally {
    for (const end of ends.reverse()) await end();
  }
}
