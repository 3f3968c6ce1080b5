/** Keys that are too coarse, too fine, or not shared although they look so. */

import type { CoalescePolicy, KeyedPolicy, KeyPart, Rule } from '../core/rule.js';
import { PER_ATTEMPT_FIELDS } from '../http/fields.js';
import type { Doubt, FieldPath } from './fault.js';
import { valueAt } from './locate.js';
import type { Located } from './source.js';

/** What is doubtful about the key of one rule. */
export function keyDoubts({ policy }: Rule, path: FieldPath): Doubt[] {
  if (policy.kind === 'pass') return [];
  return [...(policy.kind === 'coalesce' ? sharedAcrossCallers(policy, path) : []), ...newPerAttempt(policy, path)];
}

function sharedAcrossCallers(policy: CoalescePolicy, path: FieldPath): Doubt[] {
  if (policy.identity.kind !== 'public' || policy.key.some(tellsCallersApart)) return [];
  const message =
    'public shares one response with every caller, and nothing in the key tells callers apart: ' +
    'right only when the response is the same for everybody';
  return [{ code: 'shared-across-callers', path: [...path, 'identity'], message }];
}

/** Names of things that only their caller holds. */
export const CREDENTIAL = /auth|token|secret|session|credential|passw|api[-_]?key|jwt|signature|^sid$/i;
/** Fields in which a trusted proxy or a client says who is calling. In a path or query the same words name what is asked for. */
const CALLER_FIELD = /user|account|customer|tenant|client|device|subject/i;

/** Whether two callers with the same value of this part are probably one. */
export function tellsCallersApart(part: KeyPart): boolean {
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

function newPerAttempt({ key, identity }: KeyedPolicy, path: FieldPath): Doubt[] {
  const lists = { key, identity: identity.kind === 'parts' ? identity.parts : [] };
  return Object.entries(lists).flatMap(([field, parts]) =>
    parts.flatMap((part, index) => {
      const fresh = part.from === 'header' && PER_ATTEMPT_FIELDS.some((name) => name === part.name);
      const at = [...path, field, index, 'header'];
      return fresh ? [{ code: 'key-too-fine' as const, path: at, message: tooFine(part.name) }] : [];
    }),
  );
}

function tooFine(name: string): string {
  const made = name === 'x-request-id' ? ', and the gateway makes one where it is absent' : '';
  return `too fine: many clients make a new ${name} for every attempt${made}, so that a retry has a key of its own`;
}

/** One queue has one bound for all: what is said here would change with each request. */
function otherBounds(first: Rule, { policy }: Rule, route: FieldPath, root: Located): Doubt[] {
  if (first.policy.kind !== 'queue' || policy.kind !== 'queue') return [];
  const at = (field: string) => (valueAt(root, [...route, field]) !== undefined ? field : 'scope');
  const doubts: Doubt[] = [];
  if (first.policy.concurrency !== policy.concurrency) {
    const message =
      `route ${first.name} has ${first.policy.concurrency} under the same scope and here it is ${policy.concurrency}: ` +
      'the request that came last decides for all of the queue';
    doubts.push({ code: 'bounds-differ', path: [...route, at('concurrency')], message });
  }
  if (first.policy.unknownForMs > 0 !== policy.unknownForMs > 0) {
    const message =
      `route ${first.name} and this one have one queue, and only one of them holds it after an outcome that nobody ` +
      'knows: requests of the other are refused meanwhile';
    doubts.push({ code: 'holds-differ', path: [...route, at('onUnknown')], message });
  }
  return doubts;
}

/** The one observes as if the other were not there. */
function observedApart(first: Rule, { name, policy }: Rule, route: FieldPath): Doubt {
  const observes = policy.kind !== 'pass' && policy.mode === 'observes' ? name : first.name;
  const message =
    `routes ${first.name} and ${name} share no key under their scope as long as only one of them observes: ` +
    `${observes} does not see the requests of the other`;
  return { code: 'scope-not-shared', path: [...route, 'observe'], message };
}

/** Rules of different policies that name one scope: whoever wrote them expected one lock. */
export function scopeDoubts(rules: readonly Rule[], root: Located): Doubt[] {
  const firstOfScope = new Map<string, Rule>();
  return rules.flatMap((rule, index) => {
    const { name, policy } = rule;
    if (policy.kind === 'pass') return [];
    const first = firstOfScope.get(policy.scope);
    if (first === undefined) firstOfScope.set(policy.scope, rule);
    if (first === undefined || first.policy.kind === 'pass') return [];
    const route = ['routes', index];
    if (first.policy.mode !== policy.mode) return [observedApart(first, rule, route)];
    if (first.policy.kind === policy.kind) return otherBounds(first, rule, route, root);
    const written = valueAt(root, [...route, 'scope']) !== undefined;
    const message =
      `routes ${first.name} and ${name} share no key under scope ${policy.scope}: the policy is part of the key ` +
      `(${first.policy.kind} there, ${policy.kind} here)`;
    return [{ code: 'scope-not-shared', path: [...route, written ? 'scope' : 'name'], message }];
  });
}
