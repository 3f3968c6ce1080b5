/**
 * What of a new configuration a running gateway can take into use, and what has changed by it.
 *
 * Invariants: every field of the configuration is either taken into use at once or named as needing a restart; what needs
 * one keeps the value that the gateway was started with, so that taking it back in the file takes the need back too.
 */

import type { Rule } from '../core/rule.js';
import type { Config, LimitsConfig } from './config.js';
import { pathText } from './fault.js';
import type { Written } from './load.js';
import type { Located } from './source.js';

type Section = { readonly written: string; readonly taken: 'now' | 'at-start' };

const now = (written: string): Section => ({ written, taken: 'now' });
const atStart = (written: string): Section => ({ written, taken: 'at-start' });

/** How each part of the configuration is called in the file, and when it is taken into use. */
const SECTIONS: Readonly<Record<Exclude<keyof Config, 'limits'>, Section>> = {
  listen: atStart('listen'),
  admin: atStart('admin'),
  workers: atStart('workers'),
  // Its keys, secrets and connections are those of flights that are under way.
  store: atStart('store'),
  upstreams: now('upstreams'),
  rules: now('routes'),
  unmatched: now('unmatched'),
  trustedProxies: now('trustedProxies'),
  requestId: now('requestId'),
  log: now('log'),
  tracing: atStart('tracing'),
  drainMs: now('drain'),
  drainDelayMs: now('drain'),
};

/** Those that Node is told once, when its servers are made, are for the next start. */
const LIMITS: Readonly<Record<keyof LimitsConfig, Section>> = {
  maxFieldBytes: atStart('maxFields'),
  maxContentBytes: now('maxContent'),
  maxRequests: now('maxRequests'),
  eventLoopDelayMs: now('eventLoopDelay'),
  maxConnections: atStart('maxConnections'),
  maxConcurrentStreams: atStart('maxConcurrentStreams'),
  fieldsTimeoutMs: atStart('fieldsTimeout'),
  contentTimeoutMs: now('contentTimeout'),
  stallTimeoutMs: now('stallTimeout'),
  minBytesPerSecond: now('minRate'),
  keepAliveTimeoutMs: now('keepAliveTimeout'),
};

export type Taken = {
  /** The new configuration, but with what the gateway was started with where that cannot change. */
  readonly config: Config;
  /** Fields, as written, that say something else than what is in use and stays so until a restart. */
  readonly needsRestart: readonly string[];
};

/** What can be taken into use of `next` by a gateway that was started with `started`. */
export function takenNow(next: Config, started: Config): Taken {
  const limits = merged(next.limits, started.limits, LIMITS);
  const whole = merged<Omit<Config, 'limits'>>(next, started, SECTIONS);
  const needsRestart = [
    ...differing<Omit<Config, 'limits'>>(next, whole, SECTIONS),
    ...differing(next.limits, limits, LIMITS).map((field) => `limits.${field}`),
  ];
  return { config: { ...whole, limits }, needsRestart };
}

/** What was written of what is in use: `next`, but with what the gateway was started with where that cannot change. */
export function writtenInUse(next: Written, started: Written): Written {
  if (next === started) return next;
  const kept = (sections: Readonly<Record<string, Section>>): string[] =>
    Object.values(sections).flatMap(({ written, taken }) => (taken === 'at-start' ? [written] : []));
  const limits = withEntries(entryOf(next.root, 'limits'), entryOf(started.root, 'limits'), kept(LIMITS));
  const root = withEntries(next.root, started.root, kept(SECTIONS)) ?? next.root;
  const startedLimits = Object.fromEntries(
    kept(LIMITS).map((field) => [field, (started.output.limits as Readonly<Record<string, unknown>>)[field]]),
  );
  const startedSections = Object.fromEntries(
    kept(SECTIONS).map((field) => [field, (started.output as Readonly<Record<string, unknown>>)[field]]),
  );
  return {
    root: limits === undefined ? root : withEntry(root, 'limits', limits),
    output: { ...next.output, ...startedSections, limits: { ...next.output.limits, ...startedLimits } },
  };
}

function entryOf(node: Located | undefined, name: string): Located | undefined {
  return node?.kind === 'mapping' ? node.entries.get(name)?.value : undefined;
}

/** One mapping with those entries of another, which may be there or not in either. */
function withEntries(
  one: Located | undefined,
  other: Located | undefined,
  names: readonly string[],
): Located | undefined {
  if (one?.kind !== 'mapping' && other?.kind !== 'mapping') return one;
  const { position } = one ?? (other as Located);
  const entries = new Map(one?.kind === 'mapping' ? one.entries : []);
  for (const name of names) {
    const entry = other?.kind === 'mapping' ? other.entries.get(name) : undefined;
    if (entry === undefined) entries.delete(name);
    else entries.set(name, entry);
  }
  return { kind: 'mapping', position, entries };
}

function withEntry(root: Located, name: string, value: Located): Located {
  if (root.kind !== 'mapping') return root;
  const { position } = value;
  return { ...root, entries: new Map([...root.entries, [name, { keyPosition: position, value }]]) };
}

/** Fields of the second configuration, as written, that differ from the first; routes and upstreams by their names. */
export function changesBetween(before: Config, after: Config): string[] {
  const fields = differing<Omit<Config, 'limits'>>(before, after, SECTIONS).flatMap((field) => {
    if (field === 'routes') return routesChanged(before.rules, after.rules);
    if (field === 'upstreams') return namesChanged('upstreams', before.upstreams, after.upstreams);
    return [field];
  });
  return [...fields, ...differing(before.limits, after.limits, LIMITS).map((field) => `limits.${field}`)];
}

/** Whether two parts of a configuration say the same. */
export function isSame(one: unknown, other: unknown): boolean {
  return one === other || textOf(one) === textOf(other);
}

function merged<T extends object>(next: T, started: T, sections: Readonly<Record<keyof T, Section>>): T {
  const fields = Object.keys(sections) as (keyof T)[];
  const kept = fields.filter((field) => sections[field].taken === 'at-start').map((field) => [field, started[field]]);
  return { ...next, ...Object.fromEntries(kept) };
}

function differing<T extends object>(one: T, other: T, sections: Readonly<Record<keyof T, Section>>): string[] {
  const fields = (Object.keys(sections) as (keyof T)[]).filter((field) => !isSame(one[field], other[field]));
  return [...new Set(fields.map((field) => sections[field].written))];
}

function routesChanged(before: readonly Rule[], after: readonly Rule[]): string[] {
  const named = (rules: readonly Rule[]) => new Map(rules.map((rule) => [rule.name, rule]));
  const changed = namesChanged('routes', named(before), named(after));
  const order = (rules: readonly Rule[], others: ReadonlyMap<string, Rule>) =>
    rules.map(({ name }) => name).filter((name) => others.has(name));
  // The first that matches wins: another order is another meaning.
  const isMoved = !isSame(order(before, named(after)), order(after, named(before)));
  return isMoved ? ['routes', ...changed] : changed;
}

function namesChanged(section: string, before: ReadonlyMap<string, unknown>, after: ReadonlyMap<string, unknown>) {
  const names = new Set([...before.keys(), ...after.keys()]);
  return [...names]
    .filter((name) => before.has(name) !== after.has(name) || !isSame(before.get(name), after.get(name)))
    .map((name) => pathText([section, name]));
}

/** Equal texts mean equal values: collections are written out, URLs as they are, and infinity is no null. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_name, part: unknown) => {
    if (part instanceof Map || part instanceof Set) return [...part];
    return typeof part === 'number' && !Number.isFinite(part) ? String(part) : part;
  });
}
