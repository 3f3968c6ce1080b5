/**
 * What becomes of a request before anybody is asked who has its key. Pure: `handle.ts` carries it out, and `explain` says
 * it, so that what is explained cannot differ from what is done.
 *
 * Invariants: a request that can be read in several ways has no rule; content is asked for only where key or fingerprint
 * are made of it; a malformed `Idempotency-Key` is refused whatever the rule says, since its sender believes to be protected.
 */

import { METHODS } from 'node:http';
import { fieldLines } from '../core/field-lines.js';
import { fingerprintNeedsContent, fingerprintOf } from '../core/fingerprint.js';
import { type KeyResult, keyOf, type RequestView } from '../core/key.js';
import { type MatchResult, matchRule, type RuleTable } from '../core/match.js';
import type { ProblemCode } from '../core/outcome.js';
import type { KeyedPolicy, Policy } from '../core/rule.js';
import { type Vary, variantKey, variantMaterial } from '../core/sharing.js';
import { parseTarget, type Target } from '../core/target.js';
import { requestFault } from '../http/framing.js';
import { hasPassed } from '../http/via.js';
import type { OtherName } from '../store/store.js';

/** What of a request decides which rule is its own. `fields` are the forwarded ones. */
export type Asking = { readonly method: string; readonly target: string; readonly fields: readonly string[] };

export type Located = {
  readonly target: Target;
  /** Of the absolute form, else of `Host`. */
  readonly host: string;
  readonly match: MatchResult | null;
};

/** Finds the rule of a request. */
export function located({ method, target: raw, fields }: Asking, rules: RuleTable): Located {
  const target = parseTarget(raw);
  const host = target.host ?? fieldLines(fields, 'host')[0] ?? '';
  return { target, host, match: matchRule(rules, { method, path: target.path, host, fields }) };
}

/** Whether the method is one that is spoken here: Node's list, over HTTP/2 as well. */
export function isKnownMethod(method: string): boolean {
  return METHODS.includes(method);
}

/** A request's head, with what its connection says of it. */
export type Head = Asking & {
  readonly req: { readonly httpVersion: string; readonly rawHeaders: readonly string[] };
  /** Whether it came on a stream of HTTP/2. */
  readonly isStreamed: boolean;
  /** The length that it announces; 0 where it announces none. */
  readonly announcedBytes: number;
  /** Largest content that it may send. */
  readonly maxContentBytes: number;
};

export type HeadFault = {
  readonly code: ProblemCode & ('bad-request' | 'content-too-large');
  /** A sentence for the client; null: the code says it. */
  readonly detail: string | null;
};

/** Why a request is refused whatever its rule is; null: it is not. */
export function headFault(
  { req, isStreamed, announcedBytes, maxContentBytes }: Head,
  target: Target,
): HeadFault | null {
  const { httpVersion, rawHeaders: fields } = req;
  const detail = requestFault({ httpVersion, isStreamed, fields, target });
  if (detail !== null) return { code: 'bad-request', detail };
  return announcedBytes > maxContentBytes ? TOO_LARGE : null;
}

const TOO_LARGE: HeadFault = { code: 'content-too-large', detail: null };

/** What a request of this rule is from here on; `loop`: it is refused, since it has been here before. */
export type Way =
  | { readonly kind: 'loop' }
  | { readonly kind: 'pass' }
  | { readonly kind: 'keyed'; readonly policy: KeyedPolicy }
  /** Forwarded like one without a policy; its key is asked for beside that. */
  | { readonly kind: 'observed'; readonly policy: KeyedPolicy };

const LOOP: Way = { kind: 'loop' };
const PASS: Way = { kind: 'pass' };

/** Looked at before its key is asked for: a request that comes back would wait for itself. */
export function wayOf({ fields }: Asking, policy: Policy | undefined, pseudonym: string): Way {
  if (hasPassed(fields, pseudonym)) return LOOP;
  if (policy === undefined || policy.kind === 'pass') return PASS;
  return { kind: policy.mode === 'observes' ? 'observed' : 'keyed', policy };
}

/** Most content that is read for a key; more is 413. */
export function readableBytes(policy: KeyedPolicy, maxContentBytes: number): number {
  return Math.min(policy.maxKeyBodyBytes, maxContentBytes);
}

/** What a request is without a key that can be read: refused, or forwarded unprotected. */
export type Unkeyed = {
  readonly kind: 'refuse' | 'bypass';
  readonly reason: ProblemCode & ('key-missing' | 'key-malformed');
};

/** By a key that could not be read. */
export function unkeyed(policy: KeyedPolicy, key: Exclude<KeyResult, { kind: 'key' }>): Unkeyed {
  const reason = key.kind === 'missing' ? 'key-missing' : 'key-malformed';
  const believed = key.kind === 'malformed' && policy.kind === 'replay';
  return { kind: policy.onMissingKey === 'reject' || believed ? 'refuse' : 'bypass', reason };
}

/** Whether the content is read once the key is known: a request without a key is forwarded as it streams, whatever its length. */
export function readsContentForFingerprint(policy: KeyedPolicy): boolean {
  return policy.kind === 'replay' && fingerprintNeedsContent(policy);
}

/** What a request of a key must equal to be its duplicate; empty: the key says enough. */
export function fingerprintBy(policy: KeyedPolicy, view: RequestView, secret: string | null): string {
  return policy.kind === 'replay' ? fingerprintOf(policy, view, secret) : '';
}

/** What gateways call the key whose first secret is another one of the list. */
export function otherNames(policy: KeyedPolicy, view: RequestView, [, ...others]: readonly string[]): OtherName[] {
  return others.flatMap((secret) => {
    const key = keyOf(policy, view, secret);
    if (key.kind !== 'key') return [];
    return [{ key: key.digest, material: key.material, fingerprint: fingerprintBy(policy, view, secret) }];
  });
}

/** A key with all that goes with it. */
export type NamedKey = Pick<OtherName, 'key' | 'material'> & { readonly others: readonly OtherName[] };

/** The variant of a key that a request selects: a key of its own, with names and material of its own. */
export function variantOf({ key, material, others }: NamedKey, vary: Vary, fields: readonly string[]): NamedKey {
  const named = (name: Pick<OtherName, 'key' | 'material'>) => ({
    key: variantKey(name.key, name.material, vary, fields),
    material: variantMaterial(name.material, vary, fields),
  });
  return {
    ...named({ key, material }),
    others: others.map(({ fingerprint, ...other }) => ({ ...named(other), fingerprint })),
  };
}
