/** What would replay to the wrong caller, too little, too much, or for too long. */

import type { ReplayPolicy } from '../core/rule.js';
import type { Doubt, FieldPath } from './fault.js';
import { tellsCallersApart } from './key-doubts.js';
import { valueAt } from './locate.js';
import type { Located } from './source.js';

/** What is doubtful about a route that replays. */
export function replayDoubts(policy: ReplayPolicy, path: FieldPath, root: Located): Doubt[] {
  return [
    ...replayedAcrossCallers(policy, path),
    ...keyAsItStands(policy, path),
    ...unknownBeyondKeep(policy, path, root),
    ...doubtfulRelease(policy, path),
  ];
}

function replayedAcrossCallers(policy: ReplayPolicy, path: FieldPath): Doubt[] {
  if (policy.identity.kind !== 'public' || policy.key.some(tellsCallersApart)) return [];
  const message =
    policy.fingerprint === 'none'
      ? "with fingerprint: none, public answers one caller with another caller's response to a different request " +
        'whenever their keys are the same: keep callers apart, or compare requests'
      : "public replays one caller's response to every caller that sends an equal request with the same key, and tells " +
        'by 422 that a key is taken: right only when keys cannot be guessed and no two callers share one';
  return [{ code: 'shared-across-callers', path: [...path, 'identity'], message }];
}

/** `Idempotency-Key` as a header is a list of lines like any other. */
function keyAsItStands(policy: ReplayPolicy, path: FieldPath): Doubt[] {
  return policy.key.flatMap((part, index) => {
    if (part.from !== 'header' || part.name !== 'idempotency-key') return [];
    const message =
      'read as it stands, so that "abc" and abc are two keys and lists are keys too: leave key out to have the field ' +
      'read as Idempotency-Key';
    return [{ code: 'key-as-it-stands', path: [...path, 'key', index, 'header'], message }];
  });
}

/** Only for a time that was written: the default is not the author's. */
function unknownBeyondKeep(policy: ReplayPolicy, path: FieldPath, root: Located): Doubt[] {
  const written = [...path, 'unknownFor'];
  if (policy.unknownForMs <= policy.keepMs || valueAt(root, written) === undefined) return [];
  const message =
    'longer than keep: a repeat is refused for longer after an outcome that nobody knows than it would be answered ' +
    'after one that was known';
  return [{ code: 'unknown-beyond-keep', path: written, message }];
}

/** Answers that mean "later": recorded, they are all that the client ever gets. */
const LATER = [429, 503];

function doubtfulRelease(policy: ReplayPolicy, path: FieldPath): Doubt[] {
  const doubts = policy.release
    .filter((status) => status < 300)
    .map((status) => `a request that was answered with ${status} was done, and its repeat would do it once more`);
  const recorded = LATER.filter((status) => !policy.release.includes(status));
  if (recorded.length > 0) {
    doubts.push(
      `without ${recorded.join(' and ')} a refusal for now is recorded, and every repeat gets it until keep ends`,
    );
  }
  return doubts.length === 0
    ? []
    : [{ code: 'doubtful-release', path: [...path, 'release'], message: doubts.join('; ') }];
}
