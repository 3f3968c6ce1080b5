/** What is valid but probably not meant. Each says what would happen and what to write instead. */

import { type CoalescePolicy, isSafe, type KeyPart, type Rule } from '../core/rule.js';
import type { Config } from './config.js';
import { type ConfigWarning, type FieldPath, pathText } from './fault.js';
import { namePosition, valueAt } from './locate.js';
import { covers } from './shadowing.js';
import type { Located } from './source.js';

type Doubt = { readonly path: FieldPath; readonly message: string };

/** Finds the doubtful fields of a valid configuration, in file order. */
export function warningsOf(config: Config, root: Located, file: string): ConfigWarning[] {
  const doubts = config.rules.flatMap((rule, index) => {
    const path = ['routes', index];
    const found = shadowed(config.rules, index, path);
    if (rule.policy.kind === 'coalesce') {
      found.push(
        ...sharedAcrossCallers(rule.policy, path),
        ...longWait(config, rule, rule.policy, path, root),
        ...repeatAfterFlight(config, rule, rule.policy, path),
      );
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

function shadowed(rules: readonly Rule[], index: number, path: FieldPath): Doubt[] {
  const rule = rules[index]!;
  const cover = rules.slice(0, index).find((earlier) => covers(earlier.match, rule.match));
  if (cover === undefined) return [];
  const message = `route ${rule.name} can never match: route ${cover.name} comes first and matches all of its requests`;
  return [{ path: [...path, 'match'], message }];
}

function sharedAcrossCallers(policy: CoalescePolicy, path: FieldPath): Doubt[] {
  if (policy.identity.kind !== 'public' || policy.key.some(tellsCallersApart)) return [];
  const message =
    'public shares one response with every caller, and nothing in the key tells callers apart: ' +
    'right only when the response is the same for everybody';
  return [{ path: [...path, 'identity'], message }];
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
      return false;
    default:
      return CREDENTIAL.test(part.name);
  }
}

/** Only for a wait that was written: the default is not the author's promise. */
function longWait(config: Config, rule: Rule, policy: CoalescePolicy, path: FieldPath, root: Located): Doubt[] {
  const upstream = config.upstreams.get(rule.upstream)!;
  const deadlineMs = upstream.connectTimeoutMs + upstream.headersTimeoutMs;
  const written = [...path, 'wait'];
  if (policy.waitMs <= deadlineMs || valueAt(root, written) === undefined) return [];
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
