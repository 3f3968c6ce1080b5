/**
 * The generations of a gateway's configuration, as its requests take them, and the upstreams that they have between them.
 *
 * Invariants: an upstream whose configuration stays the same goes on as it is, with its connections, its health and its
 * breaker; one that is replaced, or not named any more, ends when the last request that goes there is over, and its flight
 * and its questions with it; a generation that cannot be made leaves nothing behind.
 */

import { isSame } from '../config/changes.js';
import type { Config, UpstreamConfig } from '../config/config.js';
import { addressOf } from '../config/resolve-upstream.js';
import { compileRules } from '../core/match.js';
import type { Generation } from '../exchange/generation.js';
import type { Upstream } from '../upstream/upstream.js';
import { KnownRules } from './known-rules.js';

export type GenerationsOptions = {
  /** Makes an upstream that rules name. */
  readonly makeUpstream: (config: UpstreamConfig) => Upstream;
  /** Makes one that is asked about unknown outcomes, and nothing else. */
  readonly makeAsked: (config: UpstreamConfig) => Upstream;
};

/** By name: an upstream and what it was made of. */
type Made = ReadonlyMap<string, { readonly config: UpstreamConfig; readonly upstream: Upstream }>;

type Present = {
  readonly config: Config;
  readonly generation: Generation;
  readonly upstreams: Made;
  readonly asked: Made;
};

const NONE: Made = new Map();

export class Generations {
  readonly #options: GenerationsOptions;
  /** Upstreams that have not ended, those of earlier generations among them. */
  readonly #live = new Set<Upstream>();
  #present: Present;
  /** What operators know of the rules. */
  readonly rules: KnownRules;

  constructor(config: Config, options: GenerationsOptions) {
    this.#options = options;
    this.rules = new KnownRules(config.rules);
    this.#present = this.#make(config, NONE, NONE);
  }

  get present(): Generation {
    return this.#present.generation;
  }

  get config(): Config {
    return this.#present.config;
  }

  /** The upstreams of the present generation, in the order of the file. */
  get upstreams(): Upstream[] {
    return [...this.#present.upstreams.values()].map(({ upstream }) => upstream);
  }

  /** Begins the health checks. */
  open(): void {
    for (const upstream of this.upstreams) upstream.open();
  }

  /** From now on requests get another generation. Throws, with nothing changed, when it cannot be made. */
  swap(config: Config): void {
    const before = this.#present;
    const next = this.#make(config, before.upstreams, before.asked);
    const used = new Set([...next.upstreams.values(), ...next.asked.values()].map(({ upstream }) => upstream));
    const had = new Set([...before.upstreams.values(), ...before.asked.values()].map(({ upstream }) => upstream));
    // Checked before anything is sent there.
    for (const { upstream } of next.upstreams.values()) if (!had.has(upstream)) upstream.open();
    this.#present = next;
    this.rules.replace(config.rules);
    for (const upstream of had) if (!used.has(upstream)) this.#retire(upstream);
  }

  /** Cuts every running exchange, whatever its generation. */
  async destroy(): Promise<void> {
    await Promise.allSettled([...this.#live].map((upstream) => upstream.destroy()));
  }

  #make(config: Config, upstreamsBefore: Made, askedBefore: Made): Present {
    const fresh: Upstream[] = [];
    const { makeUpstream, makeAsked } = this.#options;
    const taken = (configs: Iterable<UpstreamConfig>, before: Made, make: (config: UpstreamConfig) => Upstream): Made =>
      new Map(
        [...configs].map((config) => {
          const there = before.get(config.name);
          if (there !== undefined && isSame(there.config, config)) return [config.name, there] as const;
          const upstream = make(config);
          fresh.push(upstream);
          return [config.name, { config, upstream }] as const;
        }),
      );
    try {
      const rules = compileRules(config.rules);
      const upstreams = taken(config.upstreams.values(), upstreamsBefore, makeUpstream);
      const asked = taken(askedElsewhere(config), askedBefore, makeAsked);
      const upstreamOf = (name: string) => required(upstreams, name).upstream;
      const generation: Generation = {
        rules,
        unmatched: config.unmatched.kind === 'upstream' ? upstreamOf(config.unmatched.name) : null,
        upstreamOf,
        askedAt: (upstream, origin) => this.#hold(required(asked, placeOf(upstream, origin))),
      };
      for (const upstream of fresh) this.#live.add(upstream);
      return { config, generation, upstreams, asked };
    } catch (error) {
      for (const upstream of fresh) upstream.destroy().catch(() => {});
      throw error;
    }
  }

  /** A flight of an earlier generation may ask where nobody has asked since: that has ended, and begins once more. */
  #hold({ config, upstream }: { readonly config: UpstreamConfig; readonly upstream: Upstream }): Upstream {
    if (!upstream.isOver) {
      upstream.hold();
      return upstream;
    }
    const again = this.#options.makeAsked(config);
    this.#live.add(again);
    again.hold();
    this.#retire(again);
    return again;
  }

  #retire(upstream: Upstream): void {
    upstream.retire(() => this.#live.delete(upstream));
  }
}

function required<T>(made: ReadonlyMap<string, T>, name: string): T {
  const there = made.get(name);
  if (there === undefined) throw new Error(`no upstream is named ${name}`);
  return there;
}

/** Where rules ask about unknown outcomes at a URL of its own, under the deadlines of the rule's upstream. */
function askedElsewhere({ rules, upstreams }: Config): UpstreamConfig[] {
  const elsewhere = new Map<string, UpstreamConfig>();
  for (const { upstream, policy } of rules) {
    const origin = policy.kind === 'pass' ? null : (policy.reconcile?.url.origin ?? null);
    const like = upstreams.get(upstream);
    if (origin === null || like === undefined) continue;
    const name = placeOf(upstream, origin);
    elsewhere.set(name, elsewhereLike(like, name, origin));
  }
  return [...elsewhere.values()];
}

/** Another API: what the upstream's own is given, and what is known of it, is not for that one. */
function elsewhereLike(like: UpstreamConfig, name: string, origin: string): UpstreamConfig {
  return {
    ...like,
    name,
    addresses: [addressOf(origin)],
    protocol: 'http/1.1',
    ...{ eject: null, breaker: null, health: null, connections: null, stripPrefix: null },
    tls: { ...like.tls, cert: null, key: null, serverName: null },
    preserveHost: false,
    edits: { request: null, response: null },
  };
}

function placeOf(upstream: string, origin: string): string {
  return `${upstream} ${origin}`;
}
