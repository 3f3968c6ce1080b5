/**
 * `verify`: of some requests that were given somebody else's response, the upstream is asked as well, and the two responses
 * are compared. What differs was made for one request and given to another: the key is too coarse.
 *
 * Invariants: who was given the response never waits for this, and never gets anything of it; a call is bounded in time, and
 * so many are made at a time; nothing of the second response is kept; what is told has names of parts and fields, no values.
 */

import { ContentComparison, headDifferences } from '../core/comparison.js';
import { partLabel } from '../core/key-part.js';
import type { CoalescePolicy, KeyPart, Verify } from '../core/rule.js';
import type { SharedResponse } from '../core/sharing.js';
import { clientFields, sharedFields } from '../http/fields.js';
import type { UpstreamFailure } from '../upstream/failure.js';
import type { Exchange, ForwardSink } from '../upstream/upstream.js';
import type { Caller } from './caller.js';
import type { CallPlace } from './calls.js';
import type { Leaders } from './leaders.js';
import type { ExchangeObserver, VerifiedReport } from './observer.js';
import { upstreamRequest } from './passing.js';
import { forward } from './traced-call.js';

export type VerifyingOptions = {
  readonly leaders: Pick<Leaders, 'calls' | 'goesOn'>;
  readonly observer: Pick<ExchangeObserver, 'sent' | 'verified' | 'failed'>;
  /** From 0 to 1, 1 not included. Default: random. */
  readonly draw?: () => number;
};

/** In one process; what is more is left out and counted. */
const MOST_AT_A_TIME = 8;
/** From the question to the whole answer. */
const DEADLINE_MS = 15_000;

export class Verifying {
  readonly #options: VerifyingOptions;
  readonly #draw: () => number;
  #underWay = 0;

  constructor(options: VerifyingOptions) {
    this.#options = options;
    this.#draw = options.draw ?? Math.random;
  }

  /** Whether the response that a request is about to be given is to be compared. */
  draws(caller: Caller, policy: { readonly kind: string }): boolean {
    const { verify } = policy as Partial<CoalescePolicy>;
    if (verify === undefined || verify === null || this.#draw() >= verify.share) return false;
    // Content that is still with its client is not there to be sent.
    return caller.content !== null || !caller.announcesContent;
  }

  /** Asks the upstream what a request was answered with somebody else's response to. */
  verify(caller: Caller, policy: CoalescePolicy, given: SharedResponse, as: VerifiedReport['as']): void {
    const { verify } = policy;
    if (verify === null) return;
    const { leaders, observer } = this.#options;
    const { route, method, requestId } = caller;
    const about = { route, method, requestId, as, keyParts: [...policy.key, ...callerParts(policy)].map(partLabel) };
    let second: SecondCall | null = null;
    // A client's call is not refused for the sake of this one.
    const makeRoom = () => second?.giveWay();
    const place = this.#underWay < MOST_AT_A_TIME ? leaders.calls.enter(caller.rule, makeRoom) : null;
    if (place === null) return observer.verified({ ...about, result: 'skipped', differs: [] });
    this.#underWay += 1;
    const done = new Promise<Result>((resolve) => {
      second = new SecondCall(caller, given, verify, place, () => observer.sent(route, 'verify'), resolve);
    });
    leaders.goesOn(
      done
        .finally(() => {
          this.#underWay -= 1;
        })
        .then((result) => observer.verified({ ...about, ...result }))
        .catch(observer.failed),
    );
  }
}

type Result = Pick<VerifiedReport, 'result' | 'differs'>;

function callerParts({ identity }: CoalescePolicy): readonly KeyPart[] {
  return identity.kind === 'parts' ? identity.parts : [];
}

/** The same request once more, whose response nobody gets. */
class SecondCall implements ForwardSink {
  readonly #caller: Caller;
  readonly #given: SharedResponse;
  readonly #verify: Verify;
  readonly #place: CallPlace;
  readonly #onSend: () => void;
  readonly #resolve: (result: Result) => void;
  readonly #content: ContentComparison;
  readonly #timer: NodeJS.Timeout;
  #exchange: Exchange | null = null;
  #differs: string[] = [];
  #saysNothing = false;
  #isOver = false;

  constructor(
    caller: Caller,
    given: SharedResponse,
    verify: Verify,
    place: CallPlace,
    onSend: () => void,
    resolve: (result: Result) => void,
  ) {
    this.#caller = caller;
    this.#given = given;
    this.#verify = verify;
    this.#place = place;
    this.#onSend = onSend;
    this.#resolve = resolve;
    this.#content = new ContentComparison(given.content);
    this.#timer = setTimeout(() => this.#giveUp(), DEADLINE_MS);
    caller.upstream.hold();
    this.#exchange = forward(caller, caller.upstream, upstreamRequest(caller, caller.upstream), this, 'spare');
  }

  onSend(): boolean {
    if (!this.#isOver) this.#onSend();
    return !this.#isOver;
  }

  onInterim(): void {}

  onFields(status: number, _reason: string, fields: string[]): void {
    // That it has too much to do just now, or fails, says nothing of the key.
    this.#saysNothing = status !== this.#given.status && (status >= 500 || status === 429);
    const own = { status, fields: sharedFields(clientFields(fields)) };
    this.#differs = headDifferences(this.#given, own, this.#verify.fields);
  }

  onContent(chunk: Buffer): boolean {
    if (this.#content.add(chunk) === 'same') return true;
    // What is known need not be read to its end, which may never come. Not now: the exchange is in the midst of it.
    setImmediate(() => this.#conclude());
    return false;
  }

  onEnd(): void {
    this.#conclude();
  }

  /** `limit`: there are as many calls as there may be. */
  onFailure({ cause }: UpstreamFailure): void {
    this.#end({ result: cause === 'limit' ? 'skipped' : 'failed', differs: [] });
  }

  /** Somebody needs its place. */
  giveWay(): void {
    this.#end({ result: 'skipped', differs: [] });
  }

  #conclude(): void {
    if (this.#saysNothing) return this.#giveUp();
    if (this.#content.differs) this.#differs.push('content');
    const { length } = this.#differs;
    this.#end({ result: length === 0 ? 'same' : 'different', differs: this.#differs });
  }

  #giveUp(): void {
    this.#end({ result: 'failed', differs: [] });
  }

  #end(result: Result): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#exchange?.abort();
    this.#place.leave();
    this.#caller.upstream.letGo();
    this.#resolve(result);
  }
}
