/** Lists of statuses and classes of statuses as people write them. */

import type { StatusRange } from '../core/rule.js';

/** All statuses that begin with one digit. Interim ones (1xx) are no answer. */
export const STATUS_CLASS = /^[2-9]xx$/;

/** The statuses that an entry names. */
export function statusRangeOf(entry: number | string): StatusRange {
  if (typeof entry === 'number') return { from: entry, to: entry };
  const from = Number(entry[0]) * 100;
  return { from, to: from + 99 };
}

/** Places of the entries that name what one before them has named already. */
export function repeatedStatuses(entries: readonly (number | string)[]): number[] {
  const ranges = entries.map(statusRangeOf);
  return ranges.flatMap(({ from, to }, index) =>
    ranges.slice(0, index).some((earlier) => earlier.from <= to && from <= earlier.to) ? [index] : [],
  );
}
