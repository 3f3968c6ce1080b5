/**
 * What the servers of a store can promise: their version, and how they keep what they are told.
 *
 * Invariants: it only looks, and speaks where nobody listens; what a server forbids to look at (managed ones do) is named as not looked at, and is no failure;
 * of several primaries the weakest counts.
 */

import type { RedisServers } from '../config/config.js';
import type { ScriptedRedis } from './redis-client.js';
import { isReply } from './redis-link.js';

type Persistence = 'none' | 'snapshots' | 'append-only' | 'append-only-always';

/** What one server says of itself; null: it did not. */
type Facts = {
  /** Changes with each start. */
  readonly run: string;
  readonly name: string | null;
  readonly version: readonly [major: number, minor: number] | null;
  readonly mode: string | null;
  readonly role: string | null;
  /** The policy by which it evicts; '': it does not. */
  readonly eviction: string | null;
  /** Whether it has as much in its memory as it may, or more. */
  readonly isFull: boolean;
  readonly persistence: Persistence | null;
  readonly replicas: number | null;
  readonly minReplicas: number | null;
  /** Why it passes no wake-ups on; null: it does. */
  readonly silence: string | null;
};

export type AuditWarning = { readonly message: string; readonly fields: { readonly [name: string]: unknown } };

export type Audit = {
  /** The servers that were looked at, as they were started: another text, other servers. */
  readonly servers: string;
  /** For the one line of the log. */
  readonly fields: {
    readonly server: string;
    readonly shape: string;
    readonly guaranteed: string;
    /** What could not be looked at. */
    readonly unseen?: string;
  };
  readonly warnings: readonly AuditWarning[];
  /** Why the store cannot be used at all; null: it can. */
  readonly error: string | null;
};

/** The oldest version that has every command of the scripts. */
const OLDEST = [6, 2] as const;

/** Looks at one server. Nobody subscribes to the channel. */
export async function look(client: ScriptedRedis, channel: string): Promise<Facts> {
  const [info, save, fsync, minReplicas, silence] = await Promise.all([
    told(client.info()),
    told(client.config('GET', 'save')),
    told(client.config('GET', 'appendfsync')),
    told(client.config('GET', 'min-replicas-to-write')),
    silenceOf(client.publish(channel, '')),
  ]);
  const text = typeof info === 'string' ? info : '';
  const field = (name: string): string | null => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(text)?.[1] ?? null;
  const valkey = field('valkey_version');
  const version = valkey ?? field('redis_version');
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(version ?? '') ?? [];
  return {
    run: field('run_id') ?? '',
    name: version === null ? null : `${valkey === null ? 'Redis' : 'Valkey'} ${version}`,
    version: major === undefined ? null : [Number(major), Number(minor)],
    // Valkey has its own word.
    mode: field('redis_mode') ?? field('server_mode'),
    role: field('role'),
    eviction: evictionOf(field('maxmemory'), field('maxmemory_policy')),
    isFull: isFull(field('maxmemory'), field('used_memory')),
    persistence: persistenceOf(field('aof_enabled'), settingOf(save), settingOf(fsync)),
    replicas: numberOf(field('connected_slaves')),
    // Without CONFIG: INFO has this line only where the number is not zero.
    minReplicas:
      numberOf(settingOf(minReplicas)) ?? (info === null ? null : field('min_slaves_good_slaves') === null ? 0 : 1),
    silence,
  };
}

/** Bytes, as INFO has them. */
function isFull(most: string | null, used: string | null): boolean {
  const bound = Number(most ?? 0);
  return bound > 0 && Number(used ?? 0) >= bound;
}

/** Only a missing right counts: a sentinel has reasons of its own. */
function silenceOf(reply: Promise<unknown>): Promise<string | null> {
  return reply.then(
    () => null,
    (error: unknown) => {
      if (!isReply(error)) throw error;
      return error.message.startsWith('NOPERM') ? error.message : null;
    },
  );
}

/** The reply; null when the server refuses the command. */
function told(reply: Promise<unknown>): Promise<unknown> {
  return reply.catch((error: unknown) => {
    if (isReply(error)) return null;
    throw error;
  });
}

/** Of a reply to CONFIG GET of one setting. */
function settingOf(reply: unknown): string | null {
  if (Array.isArray(reply)) return reply.length > 1 ? String(reply[1]) : null;
  const [value] = typeof reply === 'object' && reply !== null ? Object.values(reply) : [];
  return value === undefined ? null : String(value);
}

function numberOf(text: string | null): number | null {
  return text === null || !/^\d+$/.test(text) ? null : Number(text);
}

function evictionOf(maxMemory: string | null, policy: string | null): string | null {
  if (policy === null) return null;
  return policy === 'noeviction' || maxMemory === '0' ? '' : policy;
}

function persistenceOf(appendOnly: string | null, save: string | null, fsync: string | null): Persistence | null {
  if (appendOnly === '1') return fsync === 'always' ? 'append-only-always' : 'append-only';
  if (save === null) return null;
  return save === '' ? 'none' : 'snapshots';
}

/** What follows from what the primaries say. `configured`: how the gateway was told to get at them. */
export function auditOf(nodes: readonly Facts[], configured: RedisServers['kind'], waitReplicas: number): Audit {
  const unseen = unseenOf(nodes);
  return {
    servers: nodes
      .map(({ run }) => run)
      .sort()
      .join(' '),
    fields: {
      server: [...new Set(nodes.map(({ name }) => name ?? 'unknown version'))].join(', '),
      shape: shapeOf(nodes, configured),
      guaranteed: guaranteeOf(nodes, configured, waitReplicas),
      ...(unseen === '' ? {} : { unseen }),
    },
    warnings: warningsOf(nodes, configured, waitReplicas),
    error: errorOf(nodes, configured),
  };
}

function shapeOf(nodes: readonly Facts[], configured: RedisServers['kind']): string {
  const replicas = nodes.map((node) => node.replicas);
  const least = replicas.includes(null) ? null : Math.min(...(replicas as number[]));
  const primaries = configured === 'cluster' ? `cluster of ${nodes.length} primaries` : 'one primary';
  const behind = configured === 'sentinel' ? ' behind sentinels' : '';
  const each = configured === 'cluster' ? ' each at least' : '';
  return `${primaries}${behind}, ${least === null ? 'unknown' : least}${each} replica${least === 1 ? '' : 's'}`;
}

function errorOf(nodes: readonly Facts[], configured: RedisServers['kind']): string | null {
  for (const { name, version, mode, role } of nodes) {
    if (mode === 'sentinel') return 'this is a sentinel and no store: name it in store.sentinel';
    if (version !== null && (version[0] < OLDEST[0] || (version[0] === OLDEST[0] && version[1] < OLDEST[1]))) {
      return `${name} is too old: ${OLDEST.join('.')} or newer is needed`;
    }
    if (mode === 'cluster' && configured !== 'cluster') {
      return 'this is a node of a cluster, which has a part of the keys only: name it in store.cluster';
    }
    if (role === 'slave') return 'this is a replica, which takes no claims: name its primary, or sentinels';
  }
  return null;
}

function warningsOf(nodes: readonly Facts[], configured: RedisServers['kind'], waitReplicas: number): AuditWarning[] {
  const warnings: AuditWarning[] = [];
  const policy = nodes.find(({ eviction }) => eviction !== null && eviction !== '')?.eviction;
  if (policy != null) {
    const message =
      'the store evicts keys when its memory is full, and with them claims; set maxmemory-policy to noeviction';
    warnings.push({ message, fields: { policy } });
  }
  if (policy == null && nodes.some((node) => node.isFull)) {
    const message =
      'the store is full: it takes claims and what is kept, but may be ended for it; give it more maxmemory';
    warnings.push({ message, fields: {} });
  }
  if (nodes.some(({ replicas }) => replicas !== null && replicas < waitReplicas)) {
    const message = 'a primary of the store has fewer replicas than waitReplicas asks for: no claim counts there';
    warnings.push({ message, fields: { waitReplicas } });
  }
  const alone = nodes.some(({ replicas }) => replicas === 0);
  if (configured !== 'single' && alone) {
    warnings.push({ message: 'a primary of the store has no replica: nothing takes over when it fails', fields: {} });
  }
  // With waitReplicas no such claim counts.
  const isBlind = nodes.some(({ replicas, minReplicas }) => replicas !== null && replicas > 0 && minReplicas === 0);
  if (isBlind && waitReplicas === 0) {
    const message =
      'a primary of the store that is cut off from its replicas goes on to give claims that its successor does not know; set min-replicas-to-write';
    warnings.push({ message, fields: {} });
  }
  const persistence = weakest(nodes);
  if (persistence === 'none' || persistence === 'snapshots') {
    const message =
      persistence === 'none'
        ? 'a restart of the store forgets every claim; set appendonly to yes'
        : 'a restart of the store forgets the claims since its last snapshot; set appendonly to yes';
    warnings.push({ message, fields: { persistence } });
  }
  const silence = nodes.find((node) => node.silence !== null)?.silence;
  if (silence != null) {
    const message =
      'the store refuses PUBLISH to the gateway: nobody elsewhere is woken when a flight ends, polls do for it';
    warnings.push({ message, fields: { error: silence } });
  }
  return warnings;
}

const BY_STRENGTH: readonly Persistence[] = ['none', 'snapshots', 'append-only', 'append-only-always'];

/** Null: one of them did not say, and none is known to be weak. */
function weakest(nodes: readonly Facts[]): Persistence | null {
  const weak = BY_STRENGTH.find((one) => nodes.some(({ persistence }) => persistence === one)) ?? null;
  const isWeak = weak === 'none' || weak === 'snapshots';
  return isWeak || nodes.every(({ persistence }) => persistence !== null) ? weak : null;
}

const AFTER_RESTART: Readonly<Record<Persistence, string>> = {
  none: 'a restart forgets them all',
  snapshots: 'a restart forgets those since the last snapshot',
  'append-only': 'a restart forgets those of the last second',
  'append-only-always': 'a restart forgets none',
};

/** One sentence, as strong as what was seen. */
function guaranteeOf(nodes: readonly Facts[], configured: RedisServers['kind'], waitReplicas: number): string {
  const evicts = nodes.some(({ eviction }) => eviction !== null && eviction !== '');
  const parts = [
    evicts ? 'one leader a key until memory is full' : 'one leader a key while its primary keeps its claims',
  ];
  const persistence = weakest(nodes);
  if (persistence !== null) parts.push(AFTER_RESTART[persistence]);
  if (waitReplicas > 0) parts.push(`a claim counts when ${waitReplicas} of its replicas have it`);
  else if (configured !== 'single') parts.push('a fail-over forgets those that had not reached the replica');
  return parts.join('; ');
}

function unseenOf(nodes: readonly Facts[]): string {
  const looked = {
    version: nodes.every(({ version }) => version !== null),
    eviction: nodes.every(({ eviction }) => eviction !== null),
    persistence: nodes.every(({ persistence }) => persistence !== null),
    replicas: nodes.every(({ replicas, minReplicas }) => replicas !== null && minReplicas !== null),
  };
  return Object.entries(looked)
    .filter(([, seen]) => !seen)
    .map(([what]) => what)
    .join(', ');
}
