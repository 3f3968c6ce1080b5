/**
 * Whether the keys of a rule fit, as it is seen in passing: flights that had a duplicate, duplicates that are other requests
 * than the one whose key they have (too coarse), and requests that were there before under another key (too fine).
 *
 * Invariants: nothing is asked of the store; hashes are held for a fixed number of requests of each rule, and no value; a
 * request counts once at most as too coarse and once as too fine.
 */

import { DigestTable } from '../core/digest-table.js';
import type { KeyElements } from '../core/key.js';
import { partLabels } from '../core/key.js';
import {
  comparedOf,
  differenceOf,
  digestHalves,
  type Likeness,
  likenessOf,
  requestHalves,
  textHash,
} from '../core/likeness.js';
import { sharesResponses } from '../core/policy.js';
import type { RequestView } from '../core/request-view.js';
import type { KeyedPolicy } from '../core/rule.js';
import type { Caller } from './caller.js';
import type { ExchangeObserver } from './observer.js';

/** With a request: the hash of its key, then those of its parts. */
const KEY = 0;
const PARTS = 1;
/** With a key: what its leader asked, and what stands for its content. */
const LED = { method: 0, host: 1, target: 2, content: 3, by: 4, count: 5 } as const;
const BY = ['bytes', 'fingerprint', 'length'] as const;

/** What is known of a leader's request. */
type Led = Omit<Likeness, 'more'>;

type Tables = {
  readonly labels: readonly string[];
  readonly requests: DigestTable;
  /** Null where nothing is kept of a flight beyond its end. */
  readonly led: DigestTable | null;
};

/** A key with what it is made of. */
export type MadeKey = { readonly digest: string; readonly elements: KeyElements };

/** What of a request key health reads, and what it leaves with it. */
export type Seen = Pick<Caller, 'route' | 'fingerprint' | 'announcesContent' | 'announcedBytes' | 'likeness'>;

export class KeyHealth {
  readonly #observer: Pick<ExchangeObserver, 'keyFound'>;
  /** Of a rule that is replaced they go with its last request. */
  readonly #tables = new WeakMap<KeyedPolicy, Tables>();
  #ledCount = 0;

  constructor(observer: Pick<ExchangeObserver, 'keyFound'>) {
    this.#observer = observer;
  }

  /** A request whose key is known. `alone`: nobody here has the key, so that it is looked for under other keys. */
  arrived(caller: Seen, policy: KeyedPolicy, key: MadeKey, view: RequestView, place: 'alone' | 'joins'): void {
    const unreadBytes = caller.announcesContent ? caller.announcedBytes || -1 : 0;
    caller.likeness = likenessOf(view, caller.fingerprint, unreadBytes);
    if (place === 'alone') this.#compareWithOtherKeys(caller.route, caller.likeness, policy, key);
  }

  /** A flight has its first duplicate here. */
  flightMet(route: string, leader: 'here' | 'elsewhere'): void {
    this.#observer.keyFound(route, { kind: 'flight-met', leader });
  }

  /** It leads: what it asked is what later duplicates should ask. */
  led({ likeness }: Seen, policy: KeyedPolicy, key: string): void {
    const { led } = this.#tablesOf(policy);
    if (led === null || likeness === null) return;
    const id = digestHalves(key);
    const known = led.find(id);
    const place = known === -1 ? led.roomFor(id) : known;
    this.#ledCount += 1;
    led.set(place, id, this.#ledCount);
    led.setWord(place, LED.method, likeness.method);
    led.setWord(place, LED.host, likeness.host);
    led.setWord(place, LED.target, likeness.target);
    led.setWord(place, LED.content, likeness.content);
    led.setWord(place, LED.by, BY.indexOf(likeness.by));
  }

  /** A duplicate of a flight in this process, of which `leader` is known. */
  duplicate(caller: Seen, leader: Led | null): void {
    const { likeness } = caller;
    if (likeness === null || leader === null) return;
    const differsIn = differenceOf(leader, likeness);
    if (differsIn !== null) this.#tooCoarse(caller, differsIn);
  }

  /** A duplicate of what the store remembers: it is compared if the flight was led here. `mismatch`: it differs, by the store's word. */
  duplicateOfKept(caller: Seen, policy: KeyedPolicy, key: string, as: 'kept' | 'mismatch'): void {
    const leader = this.#leaderOf(policy, key);
    const { likeness } = caller;
    const differsIn = leader === null || likeness === null ? null : differenceOf(leader, likeness);
    if (differsIn !== null) this.#tooCoarse(caller, differsIn);
    else if (as === 'mismatch') this.#tooCoarse(caller, 'unknown');
  }

  #tooCoarse(caller: Seen, differsIn: ReturnType<typeof differenceOf> | 'unknown'): void {
    const { likeness } = caller;
    if (likeness === null || differsIn === null) return;
    // It may come to another flight, after an election or as a variant: it counts once.
    caller.likeness = null;
    this.#observer.keyFound(caller.route, { kind: 'too-coarse', differsIn, compared: comparedOf(likeness) });
  }

  #leaderOf(policy: KeyedPolicy, key: string): Led | null {
    const { led } = this.#tablesOf(policy);
    const place = led?.find(digestHalves(key)) ?? -1;
    if (led === null || place === -1) return null;
    return {
      method: led.word(place, LED.method),
      host: led.word(place, LED.host),
      target: led.word(place, LED.target),
      content: led.word(place, LED.content),
      by: BY[led.word(place, LED.by)] ?? 'bytes',
    };
  }

  #compareWithOtherKeys(route: string, likeness: Likeness, policy: KeyedPolicy, key: MadeKey): void {
    const { requests, labels } = this.#tablesOf(policy);
    const { apart, parts } = key.elements;
    const id = requestHalves(likeness, apart);
    const keyHash = digestHalves(key.digest).low;
    const nowMs = performance.now();
    const known = requests.find(id);
    const place = known === -1 ? requests.roomFor(id) : known;
    const isRecent = nowMs - requests.usedAt(place) < policy.leaseMs;
    if (known === -1 && isRecent) this.#observer.keyFound(route, { kind: 'forgotten' });
    const isApart = known !== -1 && isRecent && requests.word(place, KEY) !== keyHash;
    requests.set(place, id, nowMs);
    requests.setWord(place, KEY, keyHash);
    // Of a single part it is known that it differs when the key does.
    let part: string | null = isApart && parts.length === 1 ? (labels[0] as string) : null;
    for (let i = 0; parts.length > 1 && i < parts.length; i += 1) {
      const hash = textHash(parts[i] as string);
      if (isApart && requests.word(place, PARTS + i) !== hash) part ??= labels[i] as string;
      requests.setWord(place, PARTS + i, hash);
    }
    if (part !== null) this.#observer.keyFound(route, { kind: 'too-fine', part, compared: comparedOf(likeness) });
  }

  #tablesOf(policy: KeyedPolicy): Tables {
    const known = this.#tables.get(policy);
    if (known !== undefined) return known;
    const fresh: Tables = {
      labels: partLabels(policy),
      requests: new DigestTable(PARTS + policy.key.length),
      led: sharesResponses(policy) ? new DigestTable(LED.count) : null,
    };
    this.#tables.set(policy, fresh);
    return fresh;
  }
}
