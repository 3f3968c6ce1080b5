/**
 * The language of `match.path`: what a pattern may look like, which paths it takes, and when one takes all that another
 * does.
 *
 * Invariants: a pattern is normalised as requests are (target.ts), so that `/caf%c3%a9`, `/café` and `/c%61fé` are one
 * pattern; normalising never adds or removes one of its segments, because what would (`//`, dot segments, a backslash)
 * is refused; no pattern is run as a regular expression; letters count as written.
 *
 * - `:name` takes exactly one segment that is not empty, as normalised. A colon further on in a segment is literal.
 * - A trailing `*` takes any rest. `/a/*` takes `/a/`, `/a/b/c` and `/a` itself; `/a*` takes `/a`, `/ab`, `/a/b`.
 * - `/a` takes `/a/` too, since many servers answer both alike and a lock must not depend on it; `/a/` takes only `/a/`,
 *   so that a rule for the slash can stand before the one without.
 */

import { utf8ByteText } from './byte-text.js';
import { normalisePath } from './target.js';

/** One segment of a pattern: literal text, or the name of a parameter. */
type Segment = { readonly kind: 'literal' | 'param'; readonly text: string };

export type PathPattern = {
  readonly segments: readonly Segment[];
  /** What a trailing `*` must be preceded by within its segment; null without a `*`. */
  readonly restPrefix: string | null;
};

const PARAM_NAME = /^[A-Za-z0-9_-]+$/;
const DOT_SEGMENT = /^(?:\.|%2[Ee]){1,2}$/;
const STRAY_PERCENT = /%(?![0-9A-Fa-f]{2})/;

/** Whether `:name` can stand in a pattern. */
export function isParamName(name: string): boolean {
  return PARAM_NAME.test(name);
}

/** What should have been written instead, as a noun phrase; null for a pattern. */
export function pathFault(pattern: string): string | null {
  if (!pattern.startsWith('/')) return 'a path that begins with /';
  if (/[?#]/.test(pattern)) return 'a path without query or fragment';
  // WHATWG parsers read a backslash as a slash, so that one could hide a dot segment or a parameter.
  if (pattern.includes('\\')) return 'a path with / instead of \\';
  if (STRAY_PERCENT.test(pattern)) return 'a path in which % begins an escape such as %C3 (for itself: %25)';
  if (pattern.slice(0, -1).includes('*')) return 'a path with * at its end only';
  // Other languages of paths write parameters so: taken literally, such a rule would protect nothing.
  if (/[{}]/.test(pattern)) return 'a path with parameters such as :id, without { and } (for themselves: %7B and %7D)';
  const segments = pattern.slice(1).split('/');
  if (segments.slice(0, -1).includes('')) return 'a path without // (requests are matched with // collapsed)';
  if (segments.some((segment) => DOT_SEGMENT.test(segment))) {
    return 'a path without . and .. segments (requests are matched with them resolved)';
  }
  const names = paramNames(pattern);
  if (!names.every(isParamName)) return 'a parameter such as :id (letters, digits, "_", "-") as a whole segment';
  if (new Set(names).size < names.length) return 'a path in which every :param has a name of its own';
  return null;
}

/** Names of the parameters of a pattern, in order. */
export function paramNames(pattern: string): string[] {
  const segments = pattern.split('/').filter((segment) => segment.startsWith(':'));
  return segments.map((segment) => segment.slice(1));
}

/** Makes a pattern ready. Throws when it is none; the configuration has refused it before. */
export function parsePathPattern(pattern: string): PathPattern {
  const fault = pathFault(pattern);
  if (fault !== null) throw new Error(`not a pattern: ${pattern} (expected ${fault})`);
  const path = normalisePath(utf8ByteText(pattern));
  const texts = path.slice(1).split('/');
  const restPrefix = path.endsWith('*') ? texts.pop()!.slice(0, -1) : null;
  const segments = texts.map(
    (text): Segment => (text.startsWith(':') ? { kind: 'param', text: text.slice(1) } : { kind: 'literal', text }),
  );
  return { segments, restPrefix };
}

/** Whether a pattern takes a normalised path, given by its segments. */
export function takesPath(pattern: PathPattern, path: readonly string[]): boolean {
  const { segments } = pattern;
  if (path.length < segments.length || !takesRest(pattern, path)) return false;
  for (let i = 0; i < segments.length; i += 1) {
    const { kind, text } = segments[i]!;
    if (kind === 'param' ? path[i] === '' : path[i] !== text) return false;
  }
  return true;
}

/** Whether what follows the pattern's own segments is allowed: nothing, one slash, or the rest of a trailing `*`. */
function takesRest({ segments, restPrefix }: PathPattern, path: readonly string[]): boolean {
  const next = path[segments.length];
  if (restPrefix !== null) return restPrefix === '' || next?.startsWith(restPrefix) === true;
  // In a normalised path only the last segment is empty.
  return next === undefined || next === '';
}

/**
 * Whether `general` takes every path that `special` takes. Exact: where it does not hold there is a path that only
 * `special` takes.
 */
export function pathCovers(general: PathPattern, special: PathPattern): boolean {
  return general.segments.every((segment, i) => coversSegment(segment, special, i)) && coversRest(general, special);
}

/** Whether every path of `special` has a segment at `i`, and one that `segment` takes. */
function coversSegment(segment: Segment, special: PathPattern, i: number): boolean {
  const counterpart = special.segments[i];
  if (counterpart !== undefined) {
    if (segment.kind === 'literal') return counterpart.kind === 'literal' && counterpart.text === segment.text;
    // An empty last segment is the path's trailing slash, which no parameter takes.
    return counterpart.kind === 'param' || counterpart.text !== '';
  }
  // `/:x` takes the first segment of whatever `/a*` takes; of `/*` it may be empty.
  return segment.kind === 'param' && i === special.segments.length && isPrefix(special.restPrefix);
}

/** As `takesRest`, of every path of `special` at once. */
function coversRest({ segments, restPrefix }: PathPattern, special: PathPattern): boolean {
  if (restPrefix === '') return true;
  const next = special.segments[segments.length];
  if (restPrefix !== null) {
    if (next !== undefined) return next.kind === 'literal' && next.text.startsWith(restPrefix);
    return segments.length === special.segments.length && special.restPrefix?.startsWith(restPrefix) === true;
  }
  // `/a` takes no more than the slash of `/a/`.
  return special.restPrefix === null && (next === undefined || (next.kind === 'literal' && next.text === ''));
}

function isPrefix(restPrefix: string | null): boolean {
  return restPrefix !== null && restPrefix !== '';
}
