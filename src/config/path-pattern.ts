/**
 * The language of `match.path`: `/literal/:param/*`.
 *
 * Invariants: requests are matched on a normalised path (RFC 3986 section 6.2.2, `//` collapsed), so a pattern that is
 * not itself in that form could never match and is refused; a `*` is the whole last segment and stands for the rest of
 * the path, however long.
 */

const PARAM = /^:[A-Za-z_][A-Za-z0-9_]*$/;
/** pchar of RFC 3986 without the star; a leading colon makes a parameter. */
const LITERAL = /^(?:[A-Za-z0-9\-._~!$&'()+,;=@:]|%[0-9A-F]{2})*$/;
const UNRESERVED = /^[A-Za-z0-9\-._~]$/;

/** What should have been written instead, or null for a pattern that can match. */
export function pathFault(pattern: string): string | null {
  if (!pattern.startsWith('/')) return 'a path that begins with /';
  const segments = pattern.slice(1).split('/');
  for (const [index, segment] of segments.entries()) {
    const last = index === segments.length - 1;
    const fault = segmentFault(segment, last);
    if (fault !== null) return fault;
  }
  const names = paramsOf(pattern);
  if (new Set(names).size !== names.length) return 'a path in which every :param has a name of its own';
  return null;
}

function segmentFault(segment: string, last: boolean): string | null {
  if (segment === '') return last ? null : 'a path without // (requests are matched with // collapsed)';
  if (segment === '*') return last ? null : 'a path with * as its last segment only';
  if (segment.startsWith(':')) return PARAM.test(segment) ? null : 'a parameter such as :id, as a whole segment';
  if (segment === '.' || segment === '..') return 'a path without . and .. segments';
  if (segment.includes('*')) return 'a path with * as a whole segment';
  if (segment.includes('?') || segment.includes('#')) return 'a path without query or fragment';
  if (!LITERAL.test(segment)) return 'a path of URL characters, others percent-encoded as in %C3%A4';
  for (const [encoded] of segment.matchAll(/%../g)) {
    const character = String.fromCharCode(Number.parseInt(encoded.slice(1), 16));
    if (UNRESERVED.test(character)) return `a path with ${character} instead of ${encoded}`;
  }
  return null;
}

/** Names of the `:param` segments, in order. */
export function paramsOf(pattern: string): string[] {
  return pattern
    .split('/')
    .filter((segment) => segment.startsWith(':'))
    .map((segment) => segment.slice(1));
}

/** Whether every path that `other` matches is matched by `pattern` too. */
export function pathCovers(pattern: string, other: string): boolean {
  const general = pattern.split('/');
  const special = other.split('/');
  for (const [index, segment] of general.entries()) {
    const counterpart = special[index];
    if (counterpart === undefined) return false;
    if (segment === '*') return true;
    if (counterpart === '*') return false;
    // An empty last segment is the path's trailing slash, which no parameter matches.
    const matches = segment.startsWith(':') ? counterpart !== '' : segment === counterpart;
    if (!matches) return false;
  }
  return general.length === special.length;
}
