/** The `Cache-Status` member of an outcome (RFC 9211). Never the key, never a value of the request. */

import type { Outcome } from '../core/outcome.js';

const LED = {
  yes: 'oneflight; fwd=miss; stored',
  no: 'oneflight; fwd=miss',
  failed: 'oneflight; fwd=miss; detail=not-stored',
} as const;

/** The field value, or null for traffic of no policy. */
export function cacheStatus(outcome: Outcome): string | null {
  switch (outcome.kind) {
    case 'passed':
    case 'upgraded':
      return null;
    case 'led':
      return outcome.came === 'queued' ? `${LED[outcome.stored]}; detail=queued` : LED[outcome.stored];
    case 'collapsed':
      return 'oneflight; fwd=miss; collapsed';
    case 'hit':
      return `oneflight; hit; ttl=${Math.ceil(outcome.ttlMs / 1000)}`;
    case 'bypassed':
      return `oneflight; fwd=bypass; detail=${outcome.reason}`;
    case 'observed':
      return 'oneflight; fwd=bypass; detail=observe';
    case 'refused':
      return refused(outcome);
    case 'cut':
    case 'left':
      return null;
  }
}

function refused(outcome: Outcome & { kind: 'refused' }): string {
  switch (outcome.role) {
    case 'leader':
      return `oneflight; fwd=miss; detail=${outcome.code}`;
    case 'follower':
      return `oneflight; fwd=miss; collapsed; detail=${outcome.code}`;
    case 'queued':
    case 'none':
      return `oneflight; detail=${outcome.code}`;
  }
}
