/**
 * One request's life, in order: is it readable in one way only? which rule? what key? who has it? What can be said without
 * asking anybody is said by judging.ts; the rest is flights.ts for requests with a key, turns.ts for those that queue,
 * passing.ts for those without, and observing.ts for those whose rule only observes.
 */

import { keyOf, needsContent } from '../core/key.js';
import type { RuleTable } from '../core/match.js';
import type { KeyedPolicy, Policy } from '../core/rule.js';
import type { Target } from '../core/target.js';
import type { Identity } from '../http/via.js';
import type { Caller } from './caller.js';
import type { Calls } from './calls.js';
import { readContent } from './content.js';
import type { Flights } from './flights.js';
import type { Generation } from './generation.js';
import {
  type Asking,
  fingerprintBy,
  headFault,
  located,
  otherNames,
  readableBytes,
  readsContentForFingerprint,
  unkeyed,
  wayOf,
} from './judging.js';
import type { KeyHealth } from './key-health.js';
import type { ExchangeObserver } from './observer.js';
import type { Observing } from './observing.js';
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
  readonly observing: Observing;
  readonly observer: ExchangeObserver;
  readonly calls: Calls;
  /** What the gateway calls itself to upstreams. */
  readonly identity: Identity;
  readonly overload: AskOverload;
  readonly health: KeyHealth;
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
  return match === null || !protects(match.rule.policy);
}

/** Whether requests may be held up, or answered by the gateway, for the sake of their key. */
function protects(policy: Policy): policy is KeyedPolicy {
  return policy.kind !== 'pass' && policy.mode === 'protects';
}

function route(caller: Caller, options: HandleOptions): void {
  const { generation, observer } = options;
  const { target, host, match } = located(caller, generation.rules);
  const fault = headFault(caller, target);
  if (fault !== null) return caller.refuse(fault.code, fault.detail === null ? {} : { detail: fault.detail });
  caller.rule = match?.rule ?? null;
  const upstream = match === null ? generation.unmatched : generation.upstreamOf(match.rule.upstream);
  if (upstream === null) return caller.refuse('no-route');
  caller.goesTo(upstream, generation);
  const policy = match?.rule.policy;
  const way = wayOf(caller, policy, options.identity.pseudonym);
  if (way.kind === 'loop') return caller.refuse('loop-detected');
  const overload = options.overload();
  if (overload !== null && !(overload === 'event-loop' && mayFollow(caller, policy))) {
    return refuseOverloaded(caller, overload, observer);
  }
  if (way.kind === 'pass') {
    if (caller.offer !== null) return passUpgrade(caller, caller.offer, upstream, options);
    return pass(caller, upstream, { kind: 'passed' }, options);
  }
  const request = { target, host, params: match?.params ?? NO_PARAMS, overload };
  if (way.kind === 'observed') return options.observing.arrive(caller, way.policy, request);
  keyed(caller, way.policy, request, options).catch((error) => {
    options.observer.failed(error);
    caller.refuse('internal-error');
  });
}

const NO_PARAMS: ReadonlyMap<string, string> = new Map();

/**
 * Whether a request may turn out to be the duplicate of one that is under way here: to tell it so, or to give it that
 * one's response, is cheaper than to have it come again. Only where its key can be had for next to nothing.
 */
function mayFollow(caller: Caller, policy: Policy | undefined): boolean {
  if (policy === undefined || !protects(policy) || policy.kind === 'queue') return false;
  if (!needsContent(policy) && !readsContentForFingerprint(policy)) return true;
  return !caller.announcesContent || (caller.announcedBytes > 0 && caller.announcedBytes <= CHEAP_CONTENT_BYTES);
}

type Keyless = {
  readonly target: Target;
  readonly host: string;
  readonly params: ReadonlyMap<string, string>;
  /** Why it is one too many, unless it is the duplicate of one that is not. */
  readonly overload: ReturnType<AskOverload>;
};

async function keyed(caller: Caller, policy: KeyedPolicy, keyless: Keyless, options: HandleOptions): Promise<void> {
  const secret = options.secrets[0] ?? null;
  const { target, host, params, overload } = keyless;
  const { method, fields } = caller;
  const viewNow = () => ({ method, fields, content: caller.content, target, host, params });
  if (needsContent(policy) && !(await hasContent(caller, policy))) return;
  const key = keyOf(policy, viewNow(), secret);
  const isAlone = key.kind !== 'key' || !options.flights.has(key.digest);
  if (overload !== null && isAlone) return refuseOverloaded(caller, overload, options.observer);
  if (key.kind !== 'key') {
    const { kind, reason } = unkeyed(policy, key);
    // The part is named as the configuration names it; its value is the client's and stays out of every answer and log.
    if (kind === 'refuse') return caller.refuse(reason, { detail: `Key part "${key.part}".` });
    return bypass(caller, caller.upstream, reason, options);
  }
  if (readsContentForFingerprint(policy) && !(await hasContent(caller, policy))) return;
  const view = viewNow();
  caller.fingerprint = fingerprintBy(policy, view, secret);
  caller.trace?.keyed(key.digest);
  caller.keyValue = key.value;
  caller.names = { material: key.material, others: otherNames(policy, view, options.secrets) };
  options.health.arrived(caller, policy, key, view, options.flights.has(key.digest) ? 'joins' : 'alone');
  return policy.kind === 'queue'
    ? options.turns.arrive(caller, policy, key.digest)
    : options.flights.arrive(caller, key.digest);
}

/** Reads the whole content, once; false when the request is over because that cannot be done. */
async function hasContent(caller: Caller, policy: KeyedPolicy): Promise<boolean> {
  if (caller.content !== null) return true;
  const read = await readContent(caller.req, readableBytes(policy, caller.maxContentBytes));
  if (read.kind === 'whole') caller.content = read.content;
  if (read.kind === 'too-large') caller.refuse('content-too-large');
  return read.kind === 'whole';
}
