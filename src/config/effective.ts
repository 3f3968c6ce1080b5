/**
 * The configuration that is in effect: every option with its value, and where the value came from.
 *
 * Invariants: what is shown is a configuration again, and loads as the same one but for what is masked; defaults that no
 * configuration can spell, because they depend on the request, are told in words.
 */

import {
  byDefault,
  type Effective,
  type EffectiveList,
  type EffectiveMapping,
  type EffectiveValue,
  inWords,
  plainOf,
  treeOf,
  type ValueSource,
} from './effective-tree.js';
import { type FieldPath, pathText } from './fault.js';
import type { Written } from './load.js';
import { DEFAULT_ELECTIONS, DEFAULT_POLL, DEFAULT_UNKNOWN_FOR, ROUTE_POLICIES } from './route-schema.js';
import { configSchema, DEFAULT_DRAIN_DELAY, STORE_KINDS } from './schema.js';
import { DEFAULT_EJECT, upstream as upstreamSchema } from './upstream-schema.js';

/** All options of a valid configuration. */
export function effectiveOf({ root, output }: Written): EffectiveMapping {
  const whole = treeOf(output, root, []) as EffectiveMapping;
  const { upstreams, routes, store, limits, drain, include } = Object.fromEntries(whole.entries) as Sections;
  const names = [...upstreams.entries.keys()];
  const only = names.length === 1 ? names[0] : undefined;
  const entries = new Map<string, Effective>([
    ...whole.entries,
    ['store', withOwn(store, STORE_KINDS[output.store.kind ?? 'memory'].shape, { kind: byDefault('memory') })],
    [
      'upstreams',
      { ...upstreams, entries: new Map([...upstreams.entries].map(([name, one]) => [name, upstreamOf(one)])) },
    ],
    ['routes', { ...routes, items: routes.items.map((route) => routeOf(route as EffectiveMapping, only)) }],
    ['limits', withOwn(limits, configSchema.shape.limits.unwrap().shape, NO_LIMITS)],
    ['drain', drainOf(drain)],
    ['include', includeOf(include, output.include)],
  ]);
  return withOwn({ ...whole, entries }, configSchema.shape, {
    unmatched: byDefault(only ?? false),
    tracing: inWords('as the environment says by OTEL_EXPORTER_OTLP_ENDPOINT; none without it'),
  });
}

type Sections = {
  readonly upstreams: EffectiveMapping & { readonly entries: ReadonlyMap<string, EffectiveMapping> };
  readonly routes: EffectiveList;
  readonly store: EffectiveMapping;
  readonly limits: EffectiveMapping;
  readonly drain: Effective;
  readonly include: EffectiveList;
};

const NO_LIMITS = { maxContent: inWords('any size'), maxConnections: inWords('any number') };

export type EffectiveJson = {
  readonly config: unknown;
  /** By path, such as `routes[0].lease`. `words`: what happens instead of a value. */
  readonly sources: Readonly<Record<string, ValueSource & { readonly words?: string }>>;
};

/** The same as plain values, and the sources beside them. */
export function effectiveJson(whole: Effective): EffectiveJson {
  const sources = new Map<string, ValueSource & { readonly words?: string }>();
  const config = plainValue(whole, [], sources);
  return { config, sources: Object.fromEntries(sources) };
}

function plainValue(node: Effective, path: FieldPath, sources: Map<string, ValueSource & { words?: string }>): unknown {
  const below = (one: Effective, step: string | number): unknown => plainValue(one, [...path, step], sources);
  const note = (words = {}): void => void sources.set(pathText(path), { ...node.source, ...words });
  switch (node.kind) {
    case 'value':
      note();
      return node.value;
    case 'words':
      note({ words: node.words });
      return undefined;
    case 'list':
      if (node.items.length === 0) note();
      return node.items.map(below);
    case 'mapping':
      if (node.entries.size === 0) note();
      return Object.fromEntries([...node.entries].map(([name, one]) => [name, below(one, name)]));
  }
}

/** What is included stands in the place of its own: named again, it would be there twice. */
function includeOf(include: EffectiveList, patterns: readonly string[]): Effective {
  if (patterns.length === 0) return include;
  return { kind: 'words', words: `what ${patterns.join(', ')} have stands here`, source: include.source };
}

/** A mapping with what was not written, in the order of its schema. */
function withOwn(
  mapping: EffectiveMapping,
  shape: object,
  defaults: Readonly<Record<string, Effective | null>>,
): EffectiveMapping {
  const entries = new Map<string, Effective>();
  for (const name of Object.keys(shape)) {
    const entry = mapping.entries.get(name) ?? defaults[name];
    if (entry !== undefined && entry !== null) entries.set(name, entry);
  }
  return { ...mapping, entries };
}

function upstreamOf(upstream: EffectiveMapping): EffectiveMapping {
  const addresses = upstream.entries.get('urls');
  const isOneOfSeveral = addresses?.kind === 'list' && addresses.items.length > 1;
  const eject = isOneOfSeveral ? treeOf(DEFAULT_EJECT, undefined, []) : byDefault(false);
  return withOwn(upstream, upstreamSchema.shape, { eject });
}

function drainOf(drain: Effective): Effective {
  if (drain.kind !== 'value') return drain;
  return {
    kind: 'mapping',
    source: drain.source,
    entries: new Map([
      ['delay', byDefault(DEFAULT_DRAIN_DELAY)],
      ['timeout', drain],
    ]),
  };
}

function routeOf(route: EffectiveMapping, only: string | undefined): EffectiveMapping {
  const { entries } = route;
  const policy = (plainOf(entries.get('policy')) ?? 'pass') as keyof typeof ROUTE_POLICIES;
  const match = entries.get('match') as EffectiveMapping;
  const wait = entries.get('wait');
  const whole = new Map<string, Effective>([
    ...entries,
    [
      'match',
      {
        ...match,
        entries: new Map([
          ...(match.entries.has('methods') ? [] : [['methods', inWords('all')] as const]),
          ...match.entries,
        ]),
      },
    ],
    ...(wait?.kind === 'value' ? [['wait', waitOf(wait)] as const] : []),
  ]);
  return withOwn({ ...route, entries: whole }, ROUTE_POLICIES[policy].shape, {
    upstream: only === undefined ? null : byDefault(only),
    maxRequests: inWords('any number'),
    policy: byDefault(policy),
    ...(policy === 'pass' ? {} : ofKeyed(policy, entries)),
  });
}

/** Those of policies with a key that depend on other fields. */
function ofKeyed(
  policy: Exclude<keyof typeof ROUTE_POLICIES, 'pass'>,
  entries: EffectiveMapping['entries'],
): Record<string, Effective | null> {
  const isHeld = plainOf(entries.get('onUnknown')) === 'hold';
  const isElected = plainOf(entries.get('onLeaderFailure')) === 'elect';
  return {
    scope: byDefault(plainOf(entries.get('name')) ?? ''),
    key: inWords('the Idempotency-Key field, quoted or not'),
    unknownFor: isHeld ? byDefault(DEFAULT_UNKNOWN_FOR[policy]) : null,
    wait: inWords('not at all: a repeat gets 409 at once'),
    keep: inWords('5s for unsafe methods, 0s for safe ones'),
    elections: isElected ? byDefault(DEFAULT_ELECTIONS) : null,
    onUnshareable: inWords('forward for safe methods, fail for others'),
  };
}

function waitOf(wait: EffectiveValue): EffectiveMapping {
  return {
    kind: 'mapping',
    source: wait.source,
    entries: new Map([
      ['max', wait],
      ['poll', byDefault(DEFAULT_POLL)],
    ]),
  };
}
