/**
 * Makes a short schedule out of a failing one: leaves out what is not needed for the same fault, as long as there is
 * time.
 *
 * Invariants: each schedule that is taken has failed in the same way as the first, when it was played; of a schedule
 * that fails only now and then every try counts, so one that passed may be left out of account and never a failing one
 * invented. Smaller by requests first, then faults, then what calls meet, for what is played costs seconds.
 */

import type { RequestPlan, Schedule, Step } from './schedule.js';

/** The ways in which a schedule fails when it is played; empty: it passes. */
export type Failures = (schedule: Schedule) => Promise<ReadonlySet<string>>;

export type ShrinkOptions = {
  readonly failures: Failures;
  /** When no further schedule is begun, on the clock of `performance.now`. */
  readonly untilMs: number;
};

/** What a violation says, without the times, keys, requests and numbers that differ each time. */
export function faultOf(violation: string): string {
  return violation
    .replace(/\([^()]*\)/g, '')
    .replace(/(?<=\/[\w-]+)\/[\w-]+/g, '')
    .replace(/^s\d+:\{[\w-]+\}\S*/, 'a record')
    .replace(/\b(r|after)?\d+\b/g, '#')
    .replace(/: #( #)* [\w-]+$/, '')
    .replace(/\s+/g, ' ')
    .trim();
}

/** The paths of which the violations tell; none when they tell of no path. */
export function pathsOf(violations: readonly string[]): ReadonlySet<string> {
  return new Set(violations.flatMap((violation) => /^(\/[\w-]+\/[\w-]+):/.exec(violation)?.[1] ?? []));
}

/** Shortens the schedule, of which these violations were found. */
export async function shrink(
  schedule: Schedule,
  violations: readonly string[],
  { failures, untilMs }: ShrinkOptions,
): Promise<Schedule> {
  const faults = new Set(violations.map(faultOf));
  let shortest = schedule;
  const fails = async (candidate: Schedule): Promise<boolean> => {
    if (performance.now() >= untilMs) return false;
    const found = await failures(candidate);
    if (![...found].some((fault) => faults.has(fault))) return false;
    shortest = candidate;
    return true;
  };
  // Most often the keys of which the violations tell are enough, and with hundreds fewer all that follows is quick.
  const told = pathsOf(violations);
  if (told.size > 0) await fails(withPaths(shortest, told));
  await fewer(
    () => pathsIn(shortest),
    (paths) => fails(withPaths(shortest, new Set(paths))),
  );
  await fewer(
    () => shortest.faults,
    (some) => fails({ ...shortest, faults: some }),
  );
  await fewer(
    () => shortest.requests,
    (requests) => fails(withRequests(shortest, requests)),
  );
  for (const path of pathsIn(shortest)) {
    const plain = (shortest.steps[path] ?? []).map(plainer);
    await fails({ ...shortest, steps: { ...shortest.steps, [path]: plain } });
  }
  await fails(earlier(shortest));
  return shortest;
}

/**
 * Tries to do with fewer of them: with either half first, then without smaller and smaller pieces (Zeller's ddmin, one
 * round through). `take` answers whether these were enough, and `current` gives what is left then.
 */
async function fewer<T>(current: () => readonly T[], take: (some: readonly T[]) => Promise<boolean>): Promise<void> {
  for (let piece = Math.ceil(current().length / 2); piece >= 1; piece = Math.floor(piece / 2)) {
    for (let at = 0; at < current().length; ) {
      const without = [...current().slice(0, at), ...current().slice(at + piece)];
      if (without.length === current().length || !(await take(without))) at += piece;
    }
  }
}

function pathsIn({ requests }: Schedule): string[] {
  return [...new Set(requests.map(({ path }) => path))];
}

/** The schedule with these keys only. */
export function withPaths(schedule: Schedule, paths: ReadonlySet<string>): Schedule {
  return withRequests(
    schedule,
    schedule.requests.filter(({ path }) => paths.has(path)),
  );
}

function withRequests(schedule: Schedule, requests: readonly RequestPlan[]): Schedule {
  const asked = new Set(requests.map(({ path }) => path));
  const steps = Object.entries(schedule.steps).filter(([path]) => asked.has(path));
  return { ...schedule, requests, steps: Object.fromEntries(steps) };
}

/** An ordinary answer that takes as long. */
function plainer(step: Step): Step {
  return step.kind === 'answers' ? { ...step, status: 200, bytes: 100 } : step;
}

/** Begins with the first thing that happens. */
function earlier({ requests, faults, ...rest }: Schedule): Schedule {
  const byMs = Math.min(...requests.map(({ atMs }) => atMs), ...faults.map(({ atMs }) => atMs));
  const sooner = <T extends { readonly atMs: number }>(one: T): T => ({ ...one, atMs: one.atMs - byMs });
  return { ...rest, requests: requests.map(sooner), faults: faults.map(sooner) };
}
