/**
 * What a gateway of a configuration makes of a request before it asks the store, for requests that are told of and do not
 * arrive: the same rules, the same key, by the same code (exchange/judging.ts).
 *
 * Invariants: nothing is asked, sent or written; the request is taken as an HTTP/1.1 client would send it, with the
 * fields in the form in which the gateway would forward them.
 */

import type { Config } from '../config/config.js';
import { pseudonymOf } from '../config/pseudonym.js';
import { fieldLines } from '../core/field-lines.js';
import { type KeyResult, keyOf, needsContent, type RequestView } from '../core/key.js';
import { compileRules, type RuleTable } from '../core/match.js';
import type { ProblemCode } from '../core/outcome.js';
import type { KeyedPolicy, Rule } from '../core/rule.js';
import {
  fingerprintBy,
  headFault,
  isKnownMethod,
  located,
  otherNames,
  readableBytes,
  readsContentForFingerprint,
  type Unkeyed,
  unkeyed,
  wayOf,
} from '../exchange/judging.js';
import { forwardedFields, type Peer } from '../http/fields.js';
import { statusOf } from '../http/problem.js';
import type { ToldRequest } from '../http/told-request.js';
import { Peers } from '../server/peers.js';
import { requestIdOf } from '../server/request-id.js';
import type { OtherName } from '../store/store.js';

/** What is made of it, in the order of the gateway's own questions. */
export type Step =
  | { readonly kind: 'refused'; readonly code: ProblemCode; readonly status: number; readonly detail: string | null }
  | { readonly kind: 'passed' }
  | { readonly kind: 'unkeyed'; readonly policy: KeyedPolicy; readonly part: string; readonly effect: Unkeyed }
  | {
      readonly kind: 'keyed';
      readonly policy: KeyedPolicy;
      readonly key: KeyResult & { readonly kind: 'key' };
      /** Empty: the key says enough. */
      readonly fingerprint: string;
      readonly others: readonly OtherName[];
    };

export type JudgedRequest = {
  /** Whether its rule only observes: it is forwarded, and `step` is what would be. */
  readonly mode: 'acted' | 'observed';
  readonly view: RequestView;
  /** As sent, with what the client's library adds. */
  readonly sentFields: readonly string[];
  readonly rule: Rule | null;
  /** Null: it goes nowhere. */
  readonly upstream: string | null;
  readonly step: Step;
};

export type JudgeOptions = {
  /** What the gateway calls itself; default: what one of this configuration would. */
  readonly pseudonym?: string;
  /** Address that requests come from. */
  readonly peerAddress?: string;
};

/** Judges requests by one configuration. */
export class RequestJudge {
  readonly config: Config;
  readonly rules: RuleTable;
  readonly #pseudonym: string;
  readonly #peer: Peer;

  constructor(config: Config, { pseudonym, peerAddress = '127.0.0.1' }: JudgeOptions = {}) {
    this.config = config;
    this.rules = compileRules(config.rules);
    this.#pseudonym = pseudonym ?? pseudonymOf(config);
    this.#peer = new Peers(config.trustedProxies).of(peerAddress, config.listen.tls === null ? 'http' : 'https');
  }

  judge(request: ToldRequest): JudgedRequest {
    const { method, target: raw, content } = request;
    const sentFields = this.#sentFields(request);
    const ids = fieldLines(sentFields, 'x-request-id');
    // Node joins the lines of a field in the object of fields.
    const headers = ids.length === 0 ? {} : { 'x-request-id': ids.join(', ') };
    const requestId = requestIdOf(headers, this.#peer, this.config.requestId.trust);
    const fields = forwardedFields(sentFields, this.#peer, requestId);
    const { target, host, match } = located({ method, target: raw, fields }, this.rules);
    const view: RequestView = { method, target, host, fields, params: match?.params ?? new Map(), content };
    const unmatched = this.config.unmatched.kind === 'upstream' ? this.config.unmatched.name : null;
    const upstream = match === null ? unmatched : match.rule.upstream;
    const rule = match?.rule ?? null;
    const { mode, step } = this.#step(view, content, sentFields, rule, upstream);
    return { mode, view, sentFields, rule, upstream, step };
  }

  #step(
    view: RequestView,
    content: Buffer,
    sentFields: readonly string[],
    rule: Rule | null,
    upstream: string | null,
  ): Pick<JudgedRequest, 'mode' | 'step'> {
    const { method, fields, target } = view;
    const { maxContentBytes } = this.config.limits;
    if (!isKnownMethod(method) || method === 'CONNECT') return acted(refused('bad-request', null, 501));
    const announcedBytes = Number(fieldLines(sentFields, 'content-length')[0] ?? 0);
    const req = { httpVersion: '1.1', rawHeaders: sentFields };
    const head = { method, target: target.raw, fields, req, isStreamed: false, announcedBytes, maxContentBytes };
    const fault = headFault(head, target);
    if (fault !== null) return acted(refused(fault.code, fault.detail));
    if (upstream === null) return acted(refused('no-route', null));
    const way = wayOf(head, rule?.policy, this.#pseudonym);
    if (way.kind === 'loop') return acted(refused('loop-detected', null));
    // In chunks it announces nothing, and is cut off where it is too much.
    if (content.length > maxContentBytes) return acted(refused('content-too-large', null));
    if (way.kind === 'pass') return acted({ kind: 'passed' });
    const step = this.#keyed(way.policy, view, content);
    return way.kind === 'observed' ? { mode: 'observed', step } : acted(step);
  }

  #keyed(policy: KeyedPolicy, view: RequestView, content: Buffer): Step {
    const { secrets } = this.config.store;
    const isTooLarge = content.length > readableBytes(policy, this.config.limits.maxContentBytes);
    if (isTooLarge && needsContent(policy)) return refused('content-too-large', null);
    const key = keyOf(policy, view, secrets[0] ?? null);
    if (key.kind !== 'key') return { kind: 'unkeyed', policy, part: key.part, effect: unkeyed(policy, key) };
    if (isTooLarge && readsContentForFingerprint(policy)) return refused('content-too-large', null);
    const fingerprint = fingerprintBy(policy, view, secrets[0] ?? null);
    return { kind: 'keyed', policy, key, fingerprint, others: otherNames(policy, view, secrets) };
  }

  #sentFields({ method, fields, content }: ToldRequest): string[] {
    const sent = [...fields];
    if (fieldLines(sent, 'host').length === 0) sent.unshift('Host', this.#authority);
    const isFramed = ['content-length', 'transfer-encoding'].some((name) => fieldLines(sent, name).length > 0);
    if (!isFramed && (content.length > 0 || ['POST', 'PUT', 'PATCH'].includes(method))) {
      sent.push('Content-Length', String(content.length));
    }
    return sent;
  }

  /** As a client on this machine would write it. */
  get #authority(): string {
    const { host, port } = this.config.listen;
    const name = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
    return `${name.includes(':') ? `[${name}]` : name}:${port}`;
  }
}

function acted(step: Step): Pick<JudgedRequest, 'mode' | 'step'> {
  return { mode: 'acted', step };
}

function refused(code: ProblemCode, detail: string | null, status = statusOf(code)): Step {
  return { kind: 'refused', code, detail, status };
}
