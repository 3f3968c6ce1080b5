/** Percentiles out of histograms. Pure. */

import type { Histogram } from './snapshot.js';

/** `above`: it lies beyond the last bound of the histogram. */
export type Quantile = { readonly kind: 'at' | 'above'; readonly seconds: number };

/** What was observed between two states of a histogram; one that was counted anew since then is taken as it is. */
export function since(earlier: Histogram | undefined, now: Histogram): Histogram {
  if (earlier === undefined || total(earlier) > total(now)) return now;
  return {
    boundsS: now.boundsS,
    counts: now.counts.map((count, i) => count - (earlier.counts[i] ?? 0)),
    sumS: now.sumS - earlier.sumS,
  };
}

export function total({ counts }: Histogram): number {
  return counts.at(-1) ?? 0;
}

/** Interpolated within its bucket, as Prometheus does; null: nothing was observed. */
export function quantileOf(histogram: Histogram, share: number): Quantile | null {
  const all = total(histogram);
  if (all === 0) return null;
  const rank = share * all;
  const { boundsS, counts } = histogram;
  const at = counts.findIndex((count) => count >= rank);
  const upper = boundsS[at];
  if (upper === undefined) return { kind: 'above', seconds: boundsS.at(-1) ?? 0 };
  const lower = boundsS[at - 1] ?? 0;
  const below = counts[at - 1] ?? 0;
  const inBucket = (counts[at] ?? 0) - below;
  return { kind: 'at', seconds: lower + ((upper - lower) * (rank - below)) / inBucket };
}

/** Several as one. Those with other bounds than the first are left out. */
export function together(histograms: readonly Histogram[]): Histogram | null {
  const [first] = histograms;
  if (first === undefined) return null;
  const alike = histograms.filter(({ boundsS }) => boundsS.join() === first.boundsS.join());
  return {
    boundsS: first.boundsS,
    counts: first.counts.map((_, i) => alike.reduce((sum, { counts }) => sum + (counts[i] ?? 0), 0)),
    sumS: alike.reduce((sum, { sumS }) => sum + sumS, 0),
  };
}
