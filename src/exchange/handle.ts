/**
 * One request's life, in order: is it readable in one way only? which rule? what key? who has it? The rest is
 * flights.ts for requests with a key, turns.ts for those that queue, and passing.ts for those without.
 */

import { fieldLines } from '../core/field-lines.js';
import { fingerprintNeedsContent, fingerprintOf } from '../core/fingerprint.js';
import { keyOf, needsContent, type RequestView } from '../core/key.js';
import { matchRule, type RuleTable } from '../core/match.js';
import type { ProblemCode } from '../core/outcome.js';
import type { KeyedPolicy, Policy } from '../core/rule.js';
import { parseTarget, type Target } from '../core/target.js';
import { requestFault } from '../http/framing.js';
import { hasPassed, type Identity } from '../http/via.js';
import type { OtherName } from '../store/store.js';
import type { Caller } from './caller.js';
import type { Calls } from './calls.js';
import { readContent } from './content.js';
import type { Flights } from './flights.js';
import type { Generation } from './generation.js';
import type { ExchangeObserver } from './observer.js';
import { type AskOverload, refuseOverloaded } from './overload.js';
import { bypass, pass } from './passing.js';
import type { Turns } from './turns.js';
import { passUpgrade } from './upgrading.js';

export type HandleOptions = {
  /** What requests that arrive now are handled by. */
  readonly generation: Generation;
  /** Keys of the digests (`store.secret`): the first is in use. */
  readonly secrets: readonly string[];
  readonly flights: Flights;
  readonly turns: Turns;
  readonly observer: ExchangeObserver;
  readonly calls: Calls;
  /** What the gateway calls itself to upstreams. */
  readonly identity: Identity;
  readonly overload: AskOverload;
};

/** Content that is read for a key when there is no time to lose. */
const CHEAP_CONTENT_BYTES = 16_384;

/** Takes a request and sees to it that it gets an answer, or a cut connection. Never throws, never rejects. */
export function handle(caller: Caller, options: HandleOptions): void {
  try {
    route(caller, options);
  } catch (error) {
    options.observer.failed(error);
    caller.refuse('internal-error');
  }
}

/**
 * Whether a request may switch protocols: not where it has a key. A connection is nobody's answer, cannot be shared, and
 * would hold the key for as long as it lasts; there the request is an ordinary one, without its offer.
 */
export function maySwitch(request: Asking, rules: RuleTable): boolean {
  const { match } = located(request, rules);
  return match === null || match.rule.policy.kind === 'pass';
}

/** What of a request decides which rule is its own. `fields` are the forwarded ones. */
export type Asking = { readonly method: string; readonly target: string; readonly fields: readonly string[] };

function located({ method, target: raw, fields }: Asking, rules: RuleTable) {
  const target = parseTarget(raw);
  const host = target.host ?? fieldLines(fields, 'host')[0] ?? '';
  return { target, host, match: matchRule(rules, { method, path: target.path, host, fields }) };
}

function route(caller: Caller, options: HandleOptions): void {
  const { generation, observer } = options;
  const { target, host, match } = located(caller, generation.rules);
  const { httpVersion, rawHeaders } = caller.req;
  const fault = requestFault({ httpVersion, isStreamed: caller.isStreamed, fields: rawHeaders, target });
  if (fault !== null) return caller.refuse('bad-request', { detail: fault });
  if (caller.announcedBytes > caller.maxContentBytes) return caller.refuse('content-too-large');
  caller.rule = match?.rule ?? null;
  const upstream = match === null ? generation.unmatched : generation.upstreamOf(match.rule.upstream);
  if (upstream === null) return caller.refuse('no-route');
  caller.goesTo(upstream, generation);
  // Before its key is asked for: it would wait for itself.
  if (hasPassed(caller.fields, options.identity.pseudonym)) return caller.refuse('loop-detected');
  const overload = options.overload();
  if (overload !== null && !(overload === 'event-loop' && mayFollow(caller, match?.rule.policy))) {
    return refuseOverloaded(caller, overload, observer);
  }
  if (match === null || match.rule.policy.kind === 'pass') {
    if (caller.offer !== null) return passUpgrade(caller, caller.offer, upstream, options);
    return pass(caller, upstream, { kind: 'passed' }, options);
  }
  const request = { target, host, params: match.params, overload };
  keyed(caller, match.rule.policy, request, options).catch((error) => {
    options.observer.failed(error);
    caller.refuse('internal-error');
  });
}

/**
 * Whether a request may turn out to be the duplicate of one that is under way here: to tell it so, or to give it that
 * one's response, is cheaper than to have it come again. Only where its key can be had for next to nothing.
 */
function mayFollow(caller: Caller, policy: Policy | undefined): boolean {
  if (policy === undefined || policy.kind === 'pass' || policy.kind === 'queue') return false;
  if (!needsContent(policy) && !(policy.kind === 'replay' && fingerprintNeedsContent(policy))) return true;
  return !caller.announcesContent || (caller.announcedBytes > 0 && caller.announcedBytes <= CHEAP_CONTENT_BYTES);
}

type Located = {
  readonly target: Target;
  readonly host: string;
  readonly params: ReadonlyMap<string, string>;
  /** Why it is one too many, unless it is the duplicate of one that is not. */
  readonly overload: ReturnType<AskOverload>;
};

async function keyed(caller: Caller, policy: KeyedPolicy, located: Located, options: HandleOptions): Promise<void> {
  const secret = options.secrets[0] ?? null;
  const { target, host, params } = located;
  const { method, fields } = caller;
  const viewNow = () => ({ method, fields, content: caller.content, target, host, params });
  if (needsContent(policy) && !(await hasContent(caller, policy))) return;
  const key = keyOf(policy, viewNow(), secret);
  const isAlone = key.kind !== 'key' || !options.flights.has(key.digest);
  if (located.overload !== null && isAlone) return refuseOverloaded(caller, located.overload, options.observer);
  if (key.kind === 'key') {
    if (policy.kind === 'replay') {
      // Read only now: a request without a key is forwarded as it streams, whatever its length.
      if (fingerprintNeedsContent(policy) && !(await hasContent(caller, policy))) return;
      caller.fingerprint = fingerprintOf(policy, viewNow(), secret);
    }
    caller.keyValue = key.value;
    caller.names = { material: key.material, others: otherNames(caller, policy, viewNow(), options.secrets) };
    return policy.kind === 'queue'
      ? options.turns.arrive(caller, policy, key.digest)
      : options.flights.arrive(caller, key.digest);
  }
  const reason: ProblemCode & `key-${string}` = key.kind === 'missing' ? 'key-missing' : 'key-malformed';
  // The part is named as the configuration names it; its value is the client's and stays out of every answer and log.
  // A malformed Idempotency-Key is refused whatever the rule says: its sender believes to be protected.
  const believed = key.kind === 'malformed' && policy.kind === 'replay';
  if (policy.onMissingKey === 'reject' || believed) return caller.refuse(reason, { detail: `Key part "${key.part}".` });
  bypass(caller, caller.upstream, reason, options);
}

/** What gateways call the key whose first secret is another one of the list. */
function otherNames(
  { fingerprint }: Caller,
  policy: KeyedPolicy,
  view: RequestView,
  [, ...others]: readonly string[],
): OtherName[] {
  return others.flatMap((secret) => {
    const key = keyOf(policy, view, secret);
    if (key.kind !== 'key') return [];
    const same = policy.kind === 'replay' ? fingerprintOf(policy, view, secret) : fingerprint;
    return [{ key: key.digest, material: key.material, fingerprint: same }];
  });
}

/** Reads the whole content, once; false when the request is over because that cannot be done. */
async function hasContent(caller: Caller, policy: KeyedPolicy): Promise<boolean> {
  if (caller.content !== null) return true;
  const read = await readContent(caller.req, Math.min(policy.maxKeyBodyBytes, caller.maxContentBytes));
  if (read.kind === 'whole') caller.content = read.content;
  if (read.kind === 'too-large') caller.refuse('content-too-large');
  return read.kind === 'whole';
}
