/** Whether an earlier route leaves nothing for a later one: the first that matches wins. */

import type { Match } from '../core/rule.js';
import { pathCovers } from './path-pattern.js';

/** Whether every request that `later` matches is matched by `earlier` too. */
export function covers(earlier: Match, later: Match): boolean {
  return (
    methodsCover(earlier.methods, later.methods) &&
    pathCovers(earlier.path, later.path) &&
    hostCovers(earlier.host, later.host) &&
    earlier.headers.every((condition) =>
      later.headers.some(({ name, value }) => name === condition.name && wildcardCovers(condition.value, value)),
    )
  );
}

function methodsCover(earlier: readonly string[], later: readonly string[]): boolean {
  if (earlier.length === 0) return true;
  return later.length > 0 && later.every((method) => earlier.includes(method));
}

function hostCovers(earlier: string | null, later: string | null): boolean {
  return earlier === null || (later !== null && wildcardCovers(earlier, later));
}

// Only a leading `*.` is a pattern (`*/*` is an exact value). `*.example.com` covers `a.example.com` and
// `*.b.example.com`, not `example.com`.
function wildcardCovers(earlier: string, later: string): boolean {
  if (earlier === later) return true;
  return earlier.startsWith('*.') && later.length >= earlier.length && later.endsWith(earlier.slice(1));
}
