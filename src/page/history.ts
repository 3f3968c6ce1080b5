/**
 * The last minutes, made of snapshots: the gateway counts since its start, the page shows what happens now. Pure.
 *
 * Invariant: a counter that goes back was begun anew, and counts from nothing.
 */

import { since, together } from './quantile.js';
import type { Figures, Histogram, Snapshot } from './snapshot.js';

/** What requests came to, for all routes together or for one. */
export type Totals = {
  readonly requests: number;
  readonly upstreamCalls: number;
  /** Followers that got their leader's response. */
  readonly coalesced: number;
  /** Answered from a kept response. */
  readonly replayed: number;
  /** Duplicates that were refused. */
  readonly rejected: number;
  /** Everything else that the gateway answered itself, and answers that broke off. */
  readonly failed: number;
};

export type TotalsName = keyof Totals;

/** Per second, at a moment. */
export type Point = Totals & { readonly atS: number };

/** Duplicates that were refused as such; `outcome-unknown` among them is told to repeats, and to the first. */
const REJECTED: ReadonlySet<string> = new Set(['in-flight', 'key-reused', 'queue-full', 'response-not-kept']);
/** Answered by an upstream, or not the gateway's fault. */
const FORWARDED: ReadonlySet<string> = new Set(['passed', 'upgraded', 'observed', 'led', 'bypassed', 'left']);

const NONE: Totals = { requests: 0, upstreamCalls: 0, coalesced: 0, replayed: 0, rejected: 0, failed: 0 };

/** How long a plot is. */
export const PLOTTED_S = 300;
/** Percentiles are of so much time. */
export const WINDOW_S = 60;

export function totalsOf(outcomes: Readonly<Record<string, number>>, upstreamCalls: number): Totals {
  const sums = { ...NONE, upstreamCalls };
  for (const [outcome, count] of Object.entries(outcomes)) {
    sums.requests += count;
    if (outcome === 'collapsed') sums.coalesced += count;
    else if (outcome === 'hit') sums.replayed += count;
    else if (REJECTED.has(outcome)) sums.rejected += count;
    else if (!FORWARDED.has(outcome)) sums.failed += count;
  }
  return sums;
}

/** All routes together. */
export function allTotals({ routes }: Figures): Totals {
  return routes
    .map(({ outcomes, upstreamCalls }) => totalsOf(outcomes, upstreamCalls))
    .reduce((sum, one) => eachOf((name) => sum[name] + one[name]), NONE);
}

/** Upstream calls that were not made, as another one had the answer. */
export function savedOf({ coalesced, replayed }: Pick<Totals, 'coalesced' | 'replayed'>): number {
  return coalesced + replayed;
}

function eachOf(value: (name: TotalsName) => number): Totals {
  return Object.fromEntries((Object.keys(NONE) as TotalsName[]).map((name) => [name, value(name)])) as Totals;
}

export class History {
  readonly #points: Point[] = [];
  /** Those of the window, the oldest first. */
  readonly #snapshots: Snapshot[] = [];

  add(snapshot: Snapshot): void {
    const before = this.#snapshots.at(-1);
    // Who has been away sees the same snapshot twice, or one of before the clock was set back.
    if (before !== undefined && snapshot.atMs <= before.atMs) return;
    if (before !== undefined) this.#points.push(pointBetween(before, snapshot));
    this.#snapshots.push(snapshot);
    const isOld = (atS: number, lengthS: number): boolean => atS < snapshot.atMs / 1_000 - lengthS;
    while (isOld(this.#points[0]?.atS ?? Number.POSITIVE_INFINITY, PLOTTED_S)) this.#points.shift();
    while (isOld((this.#snapshots[0]?.atMs ?? Number.POSITIVE_INFINITY) / 1_000, WINDOW_S)) this.#snapshots.shift();
  }

  get points(): readonly Point[] {
    return this.#points;
  }

  /** How much time the window has so far, seconds. */
  get windowS(): number {
    const [first] = this.#snapshots;
    return ((this.#snapshots.at(-1)?.atMs ?? 0) - (first?.atMs ?? 0)) / 1_000;
  }

  /** What a histogram has observed within the window, over the routes that have it; null: there is none. */
  recent(read: (figures: Figures) => ReadonlyMap<string, Histogram>): Histogram | null {
    const [first] = this.#snapshots;
    const last = this.#snapshots.at(-1);
    if (first === undefined || last === undefined) return null;
    const earlier = read(first.figures);
    return together([...read(last.figures)].map(([name, now]) => since(earlier.get(name), now)));
  }
}

function pointBetween(before: Snapshot, now: Snapshot): Point {
  const seconds = (now.atMs - before.atMs) / 1_000;
  const earlier = allTotals(before.figures);
  const later = allTotals(now.figures);
  const isAnew = later.requests < earlier.requests;
  const rates = eachOf((name) => Math.max(0, later[name] - (isAnew ? 0 : earlier[name])) / seconds);
  return { ...rates, atS: now.atMs / 1_000 };
}
