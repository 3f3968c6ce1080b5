/**
 * A log of requests, replayed against the rules of a configuration: per route what would have become of them, how many
 * upstream calls that saves, and where keys do not fit.
 *
 * Invariants: rule, key and decision are those of the gateway (judged-request.ts, imagined-flights.ts); memory is bounded
 * whatever the length of the log; what the log does not tell is not guessed, but counted as not judged.
 */

import type { Config } from '../config/config.js';
import { needsContent, traceKey } from '../core/key.js';
import { likenessOf, likenessText } from '../core/likeness.js';
import type { KeyedPolicy, Policy } from '../core/rule.js';
import { FacetNames } from './facets.js';
import { type Fate, ImaginedFlights, type KeyedRequest } from './imagined-flights.js';
import { InOrder } from './in-order.js';
import { RequestJudge } from './judged-request.js';
import { type Counted, type FitRequest, KeyFit, type Misfits, noMisfits, partHashes } from './key-fit.js';
import { type LogEntry, readLogEntry } from './log-entry.js';

/** Beside what becomes of a request with a key. */
type Other = 'passed' | 'keyMissing' | 'refused' | 'notJudged';

export type RouteReport = {
  /** The rule's name, or `unmatched`. */
  readonly route: string;
  readonly policy: Policy['kind'];
  readonly requests: number;
  /** Those that happened; the others are 0. */
  readonly fates: Readonly<Record<Fate | Other, number>>;
  /** Upstream calls that would not have been made, and how long they took, ms. */
  readonly savedCalls: number;
  readonly savedMs: number;
  readonly tooFine: MisfitReport;
  readonly byCaller: MisfitReport;
  readonly tooCoarse: MisfitReport;
};

/** How many pairs of requests, and in what they differ: most often first. */
export type MisfitReport = { readonly pairs: number; readonly differing: readonly { name: string; pairs: number }[] };

export type LogReport = {
  readonly requests: number;
  readonly badLines: number;
  readonly firstBadLines: readonly { readonly line: number; readonly fault: string }[];
  /** Lines without a duration: such a flight ends when it begins. */
  readonly withoutDuration: number;
  /** Lines that came too late to be put in order. */
  readonly late: number;
  /** Keys and requests that were forgotten for want of room, although they might have been met again. */
  readonly forgotten: number;
  readonly routes: readonly RouteReport[];
};

export type ReplayBounds = {
  /** Lines that are held to put them in order. */
  readonly mostHeld: number;
  /** Keys, and requests, that are remembered. */
  readonly mostRemembered: number;
};

const BOUNDS: ReplayBounds = { mostHeld: 5_000, mostRemembered: 50_000 };
const MOST_FAULTS = 5;
const MOST_NAMES = 20;

/** A request as far as it can be judged before the others; small, since many are held. */
type Judged = {
  readonly atMs: number;
  readonly tally: Tally;
  readonly durationMs: number;
  readonly fate: Other | { readonly keyed: KeyedRequest; readonly fit: FitRequest };
};

type Tally = {
  readonly route: string;
  readonly policy: Policy['kind'];
  requests: number;
  readonly fates: Record<Fate | Other, number>;
  savedCalls: number;
  savedMs: number;
  readonly misfits: Misfits;
};

/** Of these an upstream call is made. */
const CALLS: ReadonlySet<Fate | Other> = new Set(['led', 'queued', 'passed', 'keyMissing', 'notJudged']);

export class LogReplay {
  readonly #judge: RequestJudge;
  readonly #names = new FacetNames();
  readonly #flights: ImaginedFlights;
  readonly #fit: KeyFit;
  readonly #order: InOrder<Judged>;
  readonly #tallies = new Map<string, Tally>();
  readonly #faults: { readonly line: number; readonly fault: string }[] = [];
  #requests = 0;
  #badLines = 0;
  #withoutDuration = 0;

  constructor(config: Config, { mostHeld, mostRemembered }: ReplayBounds = BOUNDS) {
    this.#judge = new RequestJudge(config);
    this.#flights = new ImaginedFlights(mostRemembered);
    this.#fit = new KeyFit(this.#names, mostRemembered);
    this.#order = new InOrder(mostHeld);
    for (const { name, policy } of config.rules) this.#tallies.set(name, newTally(name, policy.kind));
  }

  /** Takes a line; `number` counts from 1. */
  line(text: string, number: number): void {
    if (text.trim() === '') return;
    const entry = readLogEntry(text);
    if (typeof entry === 'string') return this.bad(entry, number);
    this.#requests += 1;
    if (entry.tells.duration === 'no') this.#withoutDuration += 1;
    const next = this.#order.put(this.#judged(entry));
    if (next !== null) this.#play(next);
  }

  /** Takes a line that cannot be read. */
  bad(fault: string, number: number): void {
    this.#badLines += 1;
    if (this.#faults.length < MOST_FAULTS) this.#faults.push({ line: number, fault });
  }

  /** The end of the log. */
  report(): LogReport {
    for (let next = this.#order.take(); next !== null; next = this.#order.take()) this.#play(next);
    const met = [...this.#tallies.values()].filter(({ requests }) => requests > 0);
    return {
      requests: this.#requests,
      badLines: this.#badLines,
      firstBadLines: this.#faults,
      withoutDuration: this.#withoutDuration,
      late: this.#order.late,
      forgotten: this.#flights.forgotten + this.#fit.forgotten,
      routes: met.map(({ misfits, ...tally }) => ({
        ...tally,
        tooFine: reported(misfits.tooFine),
        byCaller: reported(misfits.byCaller),
        tooCoarse: reported(misfits.tooCoarse),
      })),
    };
  }

  #judged(entry: LogEntry): Judged {
    const { atMs, durationMs, status, request } = entry;
    const { rule, step, view } = this.#judge.judge(request);
    const tally = this.#tally(rule?.name ?? null);
    const judged = (fate: Judged['fate']): Judged => ({ atMs, durationMs, tally, fate });
    if (rule !== null && rule.policy.kind !== 'pass' && !tellsEnough(entry, rule.policy)) return judged('notJudged');
    if (step.kind === 'refused' || step.kind === 'passed') return judged(step.kind);
    if (step.kind === 'unkeyed') return judged(step.effect.kind === 'bypass' ? 'keyMissing' : 'refused');
    const { policy, key, fingerprint } = step;
    const { digest } = key;
    const { method } = request;
    return judged({
      keyed: { atMs, durationMs, status, method, policy, digest, fingerprint },
      fit: {
        atMs,
        leaseMs: policy.leaseMs,
        route: tally.route,
        digest,
        equality: likenessText(likenessOf(view, fingerprint, 0)),
        facets: this.#names.facetsOf(view),
        parts: partHashes(traceKey(policy, view), view.fields),
      },
    });
  }

  #play({ tally, durationMs, fate: judged }: Judged): void {
    tally.requests += 1;
    const fate = typeof judged === 'string' ? judged : this.#flights.arrive(judged.keyed);
    if (typeof judged !== 'string') this.#fit.compare(judged.fit, tally.misfits);
    tally.fates[fate] += 1;
    if (CALLS.has(fate)) return;
    tally.savedCalls += 1;
    tally.savedMs += durationMs;
  }

  #tally(route: string | null): Tally {
    const name = route ?? 'unmatched';
    const known = this.#tallies.get(name);
    if (known !== undefined) return known;
    const fresh = newTally(name, 'pass');
    this.#tallies.set(name, fresh);
    return fresh;
  }
}

function newTally(route: string, policy: Policy['kind']): Tally {
  const fates = {
    led: 0,
    coalesced: 0,
    replayed: 0,
    rejected: 0,
    queued: 0,
    keyReused: 0,
    waitTimeout: 0,
    queueFull: 0,
    notShareable: 0,
    passed: 0,
    keyMissing: 0,
    refused: 0,
    notJudged: 0,
  };
  return { route, policy, requests: 0, fates, savedCalls: 0, savedMs: 0, misfits: noMisfits() };
}

const SAFE_WITHOUT_CONTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'DELETE']);

/** Whether the line has what the key is made of: a member that is left out may have been there. */
function tellsEnough({ tells, request }: LogEntry, policy: KeyedPolicy): boolean {
  if (tells.content === 'no' && needsContent(policy) && !SAFE_WITHOUT_CONTENT.has(request.method)) return false;
  const { key, identity } = policy;
  const parts = identity.kind === 'parts' ? [...key, ...identity.parts] : key;
  const readsFields = parts.some(({ from, optional }) => !optional && FROM_FIELDS.has(from));
  return tells.fields === 'yes' || !readsFields;
}

const FROM_FIELDS: ReadonlySet<string> = new Set(['header', 'cookie', 'idempotency-key']);

function reported({ pairs, differing }: Counted): MisfitReport {
  const all = [...differing].map(([name, count]) => ({ name, pairs: count }));
  return { pairs, differing: all.sort((a, b) => b.pairs - a.pairs).slice(0, MOST_NAMES) };
}
