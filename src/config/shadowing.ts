/** Whether an earlier route leaves nothing for a later one: the first that matches wins. */

import { takesValue } from '../core/match.js';
import { type PathPattern, parsePathPattern, pathCovers } from '../core/path-pattern.js';
import type { Match } from '../core/rule.js';

type Reach = { readonly match: Match; readonly path: PathPattern };

/** For each match the index of the first before it that takes all of its requests, or null. */
export function covering(matches: readonly Match[]): (number | null)[] {
  // Every pair is looked at: the patterns are made ready once.
  const reaches = matches.map((match) => ({ match, path: parsePathPattern(match.path) }));
  return reaches.map((later, index) => {
    const first = reaches.findIndex((earlier, i) => i < index && covers(earlier, later));
    return first === -1 ? null : first;
  });
}

function covers(earlier: Reach, later: Reach): boolean {
  return (
    methodsCover(earlier.match.methods, later.match.methods) &&
    pathCovers(earlier.path, later.path) &&
    hostCovers(earlier.match.host, later.match.host) &&
    earlier.match.headers.every((condition) =>
      later.match.headers.some(({ name, value }) => name === condition.name && takesValue(condition.value, value)),
    )
  );
}

function methodsCover(earlier: readonly string[], later: readonly string[]): boolean {
  if (earlier.length === 0) return true;
  return later.length > 0 && later.every((method) => earlier.includes(method));
}

function hostCovers(earlier: string | null, later: string | null): boolean {
  return earlier === null || (later !== null && takesValue(earlier, later));
}
