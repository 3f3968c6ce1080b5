/** Takes the beginning of a path away: what an API is known by in front of the gateway, and does not know itself. */

import { normalisePath, pathSpan } from './target.js';

/**
 * The target without a prefix of whole segments; as it is when its path is not below the prefix. What is left keeps its
 * spelling, unless the prefix itself was spelled otherwise (`/%61pi`, `//api`, `/x/../api`): then it is the normalised
 * path. `prefix`: a normalised path without a slash at its end.
 */
export function withoutPrefix(target: string, prefix: string): string {
  if (target === '*') return target;
  const { start, end } = pathSpan(target);
  const path = target.slice(start, end);
  const normal = below(normalisePath(path), prefix);
  if (normal === null) return target;
  const literal = below(path, prefix);
  const rest = literal !== null && normalisePath(literal) === normal ? literal : normal;
  return target.slice(0, start) + rest + target.slice(end);
}

/** What follows the prefix, as a path; null when the path is not below it. */
function below(path: string, prefix: string): string | null {
  if (!path.startsWith(prefix)) return null;
  const rest = path.slice(prefix.length);
  if (rest === '') return '/';
  return rest.startsWith('/') ? rest : null;
}
