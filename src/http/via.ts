/**
 * `Via` (RFC 9110 section 7.6.3): what this gateway calls itself in it, and whether a request has been here before.
 *
 * Invariant: only its own name counts. Another gateway of the same kind in front is no loop.
 */

import { fieldLines } from '../core/field-lines.js';

/** Every gateway's name begins with it. */
export const PRODUCT = 'oneflight';

/** What the gateway calls itself: another configuration may change it. */
export type Identity = { readonly pseudonym: string };

/** The value of the line that a message of this version gets. */
export function viaValue(httpVersion: string, pseudonym: string): string {
  return `${httpVersion} ${pseudonym}`;
}

/** Whether one of the members names the gateway. Names are compared as hosts are, without regard to case. */
export function hasPassed(fields: readonly string[], pseudonym: string): boolean {
  const wanted = pseudonym.toLowerCase();
  return fieldLines(fields, 'via').some((line) =>
    line.split(',').some(
      (member) =>
        member
          .trim()
          .split(/[\t ]+/, 2)[1]
          ?.toLowerCase() === wanted,
    ),
  );
}
