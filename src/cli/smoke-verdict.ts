/**
 * What the answers of a smoke run say about a rule. Pure.
 *
 * Invariant: a scenario is `ok` only when the gateway's own fields prove it. Where two requests may simply not have met
 * in time the verdict is `inconclusive`, never `ok`.
 */

import { isDeepStrictEqual } from 'node:util';
import { fieldLines } from '../core/field-lines.js';
import { waits } from '../core/policy.js';
import type { KeyedPolicy, KeyPart, Rule } from '../core/rule.js';
import { partText } from './request-parts.js';
import type { Answer } from './send.js';

export type Verdict = { readonly kind: 'ok' | 'fail' | 'inconclusive'; readonly reason: string };
export type Pair = readonly [Answer, Answer];
export type KeyedRule = Rule & { readonly policy: KeyedPolicy };

/** What the gateway did with a request, by its `Cache-Status` (RFC 9211) and its problem code (RFC 9457). */
type Role =
  | { readonly kind: 'leader' | 'queued' | 'follower' | 'kept' | 'in-flight' | 'unmatched' }
  | { readonly kind: 'bypass' | 'problem'; readonly detail: string };

/** Problems that only a request which met somebody else's flight can get. */
const FOLLOWER_PROBLEMS: ReadonlySet<string> = new Set([
  'wait-timeout',
  'queue-full',
  'leader-failed',
  'not-shareable',
]);

/** One request alone: the rule must apply to it. */
export function judgeAlone(rule: KeyedRule, answer: Answer): Verdict {
  const role = roleOf(answer);
  if (role.kind === 'leader') return ok(`forwarded as leader, ${inWords(answer)}`);
  if (role.kind === 'kept') return ok(`answered from the kept response of an earlier run, ${inWords(answer)}`);
  return notApplied(rule, role) ?? fail('somebody else is using this key now: take a request of a test account');
}

/** Two requests that mean the same: one leader. `differing` are the rule's parts that differ between the two. */
export function judgeSame(rule: KeyedRule, pair: Pair, differing: readonly KeyPart[]): Verdict {
  const roles = pair.map(roleOf);
  const trouble = roles.map((role) => notApplied(rule, role)).find((each) => each !== null);
  if (trouble !== undefined && trouble !== null) return trouble;
  const count = (kind: Role['kind']): number => roles.filter((role) => role.kind === kind).length;
  if (count('leader') === 2) return judgeTwoLeaders(rule, pair, differing);
  if (rule.policy.kind === 'queue') return judgeQueued(roles);
  if (rule.policy.kind === 'reject') return judgeRejected(rule.policy.conflict.status, pair, count('leader') === 1);
  // Who repeats while the first one is under way is refused as well, unless the rule has it wait.
  if (rule.policy.kind === 'replay' && !waits(rule.policy) && count('in-flight') > 0)
    return judgeRejected(409, pair, count('leader') === 1);
  if (!isEqualAnswer(pair)) return fail('the two answers differ in status or content');
  if (count('kept') === 2) return ok('one key: both got the kept response of the first scenario');
  if (count('leader') === 1) return ok(`one leader, one ${count('kept') === 1 ? 'hit' : 'collapsed'}, equal answers`);
  return fail('neither was the leader: somebody else is using this key now');
}

/** Two requests that differ in `varied`: neither may get, or wait for, what belongs to the other. */
export function judgeDifferent(rule: KeyedRule, [first, second]: Pair, varied: KeyPart): Verdict {
  const roles = [roleOf(first), roleOf(second)] as const;
  const isTaken = (role: Role): boolean =>
    role.kind === 'follower' ||
    role.kind === 'queued' ||
    role.kind === 'in-flight' ||
    (role.kind === 'problem' && FOLLOWER_PROBLEMS.has(role.detail));
  // The unchanged request may meet the response kept from the scenarios before; the changed one is new to everybody.
  if (isTaken(roles[0]) || isTaken(roles[1]) || roles[1].kind === 'kept') return tooCoarse(rule, varied);
  const trouble = notApplied(rule, roles[0]) ?? notApplied(rule, roles[1]);
  if (trouble !== null) return trouble;
  return ok(roles[0].kind === 'kept' ? 'two keys: one kept response, one leader' : 'two keys: both forwarded');
}

function judgeTwoLeaders(rule: KeyedRule, pair: Pair, differing: readonly KeyPart[]): Verdict {
  if (differing.length > 0) {
    const parts = differing.map((part) => `\`${partText(part)}\``).join(', ');
    return fail(`the key is too fine: two equal requests had two keys. Look at ${parts}: it differs between attempts`);
  }
  if (rule.policy.kind === 'queue' && rule.policy.concurrency > 1) {
    return { kind: 'inconclusive', reason: `concurrency is ${rule.policy.concurrency}: two may run at the same time` };
  }
  const quickest = Math.min(...pair.map(({ tookMs }) => tookMs));
  const keeps =
    rule.policy.kind === 'coalesce' && !(rule.policy.keep.kind === 'fixed' && rule.policy.keep.keepMs === 0);
  return {
    kind: 'inconclusive',
    reason:
      `both were forwarded although they have one key: the upstream answers (${quickest.toFixed(0)} ms) before two ` +
      `requests can meet${keeps ? '' : ', and nothing is kept'}; or the gateways behind this URL do not share a store`,
  };
}

function judgeQueued([first, second]: readonly Role[]): Verdict {
  if ((first?.kind === 'leader') === (second?.kind === 'leader')) {
    return fail('neither had its turn at once: somebody else is using this key now');
  }
  return ok('one after the other: the second waited for its turn');
}

function judgeRejected(status: number, pair: Pair, hasLeader: boolean): Verdict {
  const refused = pair.find((answer) => roleOf(answer).kind === 'in-flight');
  if (!hasLeader || refused === undefined) return fail('neither passed: somebody else is using this key now');
  if (refused.status !== status) return fail(`the duplicate got ${refused.status}, the rule says ${status}`);
  return ok(`one passed, one got ${status}`);
}

function tooCoarse(rule: KeyedRule, varied: KeyPart): Verdict {
  const has = partsOf(rule).some((part) => part.from === varied.from && part.name === varied.name);
  const advice = has
    ? `\`${partText(varied)}\` is in it but the gateway does not see the difference: is another rule applied first?`
    : `\`${partText(varied)}\` is not in it: add { ${partText(varied)} } to the key`;
  return fail(`the key is too coarse: requests that differ in \`${partText(varied)}\` share one. ${advice}`);
}

/** The verdict on a request that the rule was not applied to, or null for one that it was. */
function notApplied(rule: KeyedRule, role: Role): Verdict | null {
  if (role.kind === 'unmatched') {
    const methods = rule.match.methods.join(', ') || 'any method';
    return fail(`no rule was applied (no Cache-Status): \`${rule.name}\` wants ${methods} ${rule.match.path}`);
  }
  if (role.kind === 'bypass') {
    const required = partsOf(rule).filter((part) => !part.optional);
    const parts = (required.length > 0 ? required : rule.policy.key).map((part) => `\`${partText(part)}\``);
    const advice = role.detail.startsWith('key-') ? `: does the request have ${parts.join(', ')}?` : '';
    return fail(`forwarded unprotected (${role.detail})${advice}`);
  }
  return role.kind === 'problem' ? fail(`the gateway answered with problem \`${role.detail}\``) : null;
}

/** Every part that a rule's key is made of: key and identity. */
export function partsOf({ policy }: KeyedRule): readonly KeyPart[] {
  return policy.identity.kind === 'parts' ? [...policy.key, ...policy.identity.parts] : policy.key;
}

function roleOf(answer: Answer): Role {
  const problem = problemOf(answer);
  if (problem === 'in-flight') return { kind: 'in-flight' };
  if (problem !== null) return { kind: 'problem', detail: problem };
  const member = fieldLines(answer.fields, 'cache-status')
    .flatMap((line) => line.split(/,(?=(?:[^"]*"[^"]*")*[^"]*$)/))
    .map((text) => text.trim())
    .find((text) => /^oneflight(?:;|\s|$)/.test(text));
  if (member === undefined) return { kind: 'unmatched' };
  const parameters = new Map(
    member.split(';').map((text) => {
      const [name = '', value = ''] = text.trim().split('=');
      return [name, value.replaceAll('"', '')];
    }),
  );
  if (parameters.has('hit')) return { kind: 'kept' };
  if (parameters.has('collapsed')) return { kind: 'follower' };
  if (parameters.get('fwd') === 'bypass')
    return { kind: 'bypass', detail: parameters.get('detail') ?? 'no reason given' };
  return { kind: parameters.get('detail') === 'queued' ? 'queued' : 'leader' };
}

function problemOf(answer: Answer): string | null {
  if (!fieldLines(answer.fields, 'content-type').some((value) => value.startsWith('application/problem+json')))
    return null;
  return /"urn:oneflight:problem:([a-z-]+)"/.exec(answer.content.toString('utf8'))?.[1] ?? null;
}

function isEqualAnswer([first, second]: Pair): boolean {
  return first.status === second.status && isDeepStrictEqual(first.content, second.content);
}

function inWords(answer: Answer): string {
  return `the upstream answered ${answer.status} in ${answer.tookMs.toFixed(0)} ms`;
}

function ok(reason: string): Verdict {
  return { kind: 'ok', reason };
}

function fail(reason: string): Verdict {
  return { kind: 'fail', reason };
}
