/** "Did you mean …": the known word nearest to one that is not known. */

/** The nearest of `words`, or null when none is near enough to be a slip of the pen. */
export function nearest(word: string, words: readonly string[]): string | null {
  let best: string | null = null;
  let bestDistance = Number.POSITIVE_INFINITY;
  for (const candidate of words) {
    const distance = distanceOf(plain(word), plain(candidate));
    // One slip in three characters: `kee` is near `keep`, `foo` is not near `form`.
    const allowed = Math.max(1, Math.floor(candidate.length / 3));
    if (distance <= allowed && distance < candidate.length && distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** `on_missing_key`, `on-missing-key` and `OnMissingKey` are spellings of one word. */
function plain(word: string): string {
  return word.slice(0, 80).toLowerCase().replace(/[-_]/g, '');
}

/** Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment). */
function distanceOf(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = last[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      let cost = Math.min(last[j]! + 1, row[j - 1]! + 1, substitution);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
        cost = Math.min(cost, beforeLast[j - 2]! + 1);
      }
      row.push(cost);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length]!;
}
