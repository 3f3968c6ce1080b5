/** What is valid but probably not meant. Each says what would happen and what to write instead. */

import { type CoalescePolicy, isSafe, type KeyPart, type ReplayPolicy, type Rule } from '../core/rule.js';
import type { Config } from './config.js';
import { type ConfigWarning, type FieldPath, pathText } from './fault.js';
import { namePosition, valueAt } from './locate.js';
import { covering } from './shadowing.js';
import type { Located } from './source.js';

type Doubt = { readonly path: FieldPath; readonly message: string };

/** Finds the doubtful fields of a valid configuration, in file order. */
export function warningsOf(config: Config, root: Located, file: string): ConfigWarning[] {
  const covers = covering(config.rules.map((rule) => rule.match));
  const doubts = config.rules.flatMap((rule, index) => {
    const path = ['routes', index];
    const cover = covers[index] ?? null;
    const found = cover === null ? [] : [shadowed(rule, config.rules[cover]!, path)];
    if (rule.policy.kind === 'coalesce') {
      found.push(
        ...sharedAcrossCallers(rule.policy, path),
        ...longWait(config, rule, rule.policy.waitMs, path, root),
        ...repeatAfterFlight(config, rule, rule.policy, path),
      );
    }
    if (rule.policy.kind === 'replay') {
      found.push(
        ...keyAsItStands(rule.policy, path),
        ...replayedAcrossCallers(rule.policy, path),
        ...unknownBeyondKeep(rule.policy, path, root),
        ...doubtfulRelease(rule.policy, path),
      );
      if (rule.policy.wait.kind === 'bounded')
        found.push(...longWait(config, rule, rule.policy.wait.waitMs, path, root));
    }
    return found;
  });
  return doubts
    .map(({ path, message }) => {
      const position = valueAt(root, path)?.position ?? namePosition(root, path.slice(0, -1));
      return { file, line: position.line, column: position.column, path: pathText(path), message };
    })
    .sort((a, b) => a.line - b.line || a.column - b.column);
}

function shadowed(rule: Rule, cover: Rule, path: FieldPath): Doubt {
  const message = `route ${rule.name} can never match: route ${cover.name} comes first and matches all of its requests`;
  return { path: [...path, 'match'], message };
}

function sharedAcrossCallers(policy: CoalescePolicy, path: FieldPath): Doubt[] {
  if (policy.identity.kind !== 'public' || policy.key.some(tellsCallersApart)) return [];
  const message =
    'public shares one response with every caller, and nothing in the key tells callers apart: ' +
    'right only when the response is the same for everybody';
  return [{ path: [...path, 'identity'], message }];
}

function replayedAcrossCallers(policy: ReplayPolicy, path: FieldPath): Doubt[] {
  if (policy.identity.kind !== 'public' || policy.key.some(tellsCallersApart)) return [];
  const message =
    policy.fingerprint === 'none'
      ? "with fingerprint: none, public answers one caller with another caller's response to a different request " +
        'whenever their keys are the same: keep callers apart, or compare requests'
      : "public replays one caller's response to every caller that sends an equal request with the same key, and tells " +
        'by 422 that a key is taken: right only when keys cannot be guessed and no two callers share one';
  return [{ path: [...path, 'identity'], message }];
}

/** `Idempotency-Key` as a header is a list of lines like any other. */
function keyAsItStands(policy: ReplayPolicy, path: FieldPath): Doubt[] {
  return policy.key.flatMap((part, index) => {
    if (part.from !== 'header' || part.name !== 'idempotency-key') return [];
    const message =
      'read as it stands, so that "abc" and abc are two keys and lists are keys too: leave key out to have the field ' +
      'read as Idempotency-Key';
    return [{ path: [...path, 'key', index, 'header'], message }];
  });
}

/** Only for a time that was written: the default is not the author's. */
function unknownBeyondKeep(policy: ReplayPolicy, path: FieldPath, root: Located): Doubt[] {
  const written = [...path, 'unknownFor'];
  if (policy.unknownForMs <= policy.keepMs || valueAt(root, written) === undefined) return [];
  const message =
    'longer than keep: a repeat is refused for longer after an outcome that nobody knows than it would be answered ' +
    'after one that was known';
  return [{ path: written, message }];
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
  return doubts.length === 0 ? [] : [{ path: [...path, 'release'], message: doubts.join('; ') }];
}

/** Names of things that only their caller holds. */
const CREDENTIAL = /auth|token|secret|session|credential|passw|api[-_]?key|jwt|signature|^sid$/i;
/** Fields in which a trusted proxy or a client says who is calling. In a path or query the same words name what is asked for. */
const CALLER_FIELD = /user|account|customer|tenant|client|device|subject/i;

function tellsCallersApart(part: KeyPart): boolean {
  switch (part.from) {
    case 'cookie':
      return true;
    case 'header':
      return part.name === 'cookie' || CREDENTIAL.test(part.name) || CALLER_FIELD.test(part.name);
    case 'request':
    case 'idempotency-key':
      return false;
    default:
      return CREDENTIAL.test(part.name);
  }
}

/** Only for a wait that was written: the default is not the author's promise. */
function longWait(config: Config, rule: Rule, waitMs: number, path: FieldPath, root: Located): Doubt[] {
  const upstream = config.upstreams.get(rule.upstream)!;
  const deadlineMs = upstream.connectTimeoutMs + upstream.headersTimeoutMs;
  const written = [...path, 'wait'];
  if (waitMs <= deadlineMs || valueAt(root, written) === undefined) return [];
  const exact = [...written, 'max'];
  const message =
    `longer than upstream ${upstream.name} may take to answer (connect and headers: ${deadlineMs} ms): ` +
    'no follower can wait that long';
  return [{ path: valueAt(root, exact) === undefined ? written : exact, message }];
}

/** With one process the duplicate that is late finds the flight just ended; over several it may also be late by the network. */
function repeatAfterFlight(config: Config, rule: Rule, policy: CoalescePolicy, path: FieldPath): Doubt[] {
  if (config.store.kind !== 'redis' || policy.keep.kind !== 'fixed' || policy.keep.keepMs > 0) return [];
  const { methods } = rule.match;
  if (methods.length > 0 && methods.every(isSafe)) return [];
  const message =
    'with 0 a duplicate that reaches another gateway just after the flight has ended is executed again: ' +
    'keep the response for a few seconds';
  return [{ path: [...path, 'keep'], message }];
}
