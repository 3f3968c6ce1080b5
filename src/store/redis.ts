/**
 * The store in Redis (6.2 and later, or Valkey). What is called what there: redis-names.ts; what a key's record holds:
 * claim.lua; of queues: queue.lua and redis-queue.ts.
 *
 * Invariants: each question is one script, so each answer is atomic; all times are the server's; a claim of which the
 * answer was lost is owed a release, paid by token as soon as the server answers, so that no key stays locked by nobody;
 * with a secret no response is given to the server but sealed, in records, results and pushes alike (frames.ts).
 */

import type { HostPort, RedisAccess, RedisServers } from '../config/config.js';
import type {
  ClaimResult,
  Expects,
  FlightRef,
  Held,
  KeyMaterial,
  Lease,
  Purged,
  Settlement,
  TakenKey,
} from '../core/claim.js';
import { newFlightId } from '../core/claim.js';
import { Frames } from './frames.js';
import type { LeaseHolder, WaitOptions } from './leases.js';
import { NamedQueue } from './named-queue.js';
import { newProcessId } from './process-id.js';
import type { Queue } from './queue.js';
import { type Audit, auditOf, look } from './redis-audit.js';
import { BYTES_PER_MS, GRACE_MS, INLINE_BYTES, wholeMs } from './redis-bounds.js';
import type { ScriptedRedis } from './redis-client.js';
import { ClusterRoute } from './redis-cluster.js';
import { ConfirmedQueue } from './redis-confirmed-queue.js';
import { RedisHearing } from './redis-hearing.js';
import { type Answer, answered, heldOrLost, type RedisLink, type StoreLog } from './redis-link.js';
import { RedisNames } from './redis-names.js';
import { RedisOperator } from './redis-operator.js';
import { Owed } from './redis-owed.js';
import { RedisPurge } from './redis-purge.js';
import { RedisQueue } from './redis-queue.js';
import { RedisRelay } from './redis-relay.js';
import { RedisReplicas } from './redis-replicas.js';
import { type AskSmall, pushLink, type RedisRoute, type RouteOptions, type Run, SingleRoute } from './redis-route.js';
import { type Looked, Waits } from './redis-waits.js';
import type { Piece, PieceReader, Reading, StillRead } from './relay.js';
import { Revocations } from './revocations.js';
import { claimUnderAllNames, lookUnderAllNames } from './rotation.js';
import {
  type ClaimRequest,
  type FlightStanding,
  type Looked as LookedAt,
  type SettleAs,
  type Store,
  StoreUnavailable,
  type TakenOptions,
} from './store.js';

export type RedisStoreOptions = {
  readonly access: RedisAccess;
  /** First part of every key and channel. Default `oneflight`. */
  readonly prefix?: string;
  /** The longest that a claim, a renewal or a release takes before it is `StoreUnavailable`. Default 250. */
  readonly commandTimeoutMs?: number;
  /** How many replicas must have a claim for it to count. Default: none, the primary's word is enough. */
  readonly waitReplicas?: number;
  /** What responses are sealed with: by the first, opened by all. Default: none, and nothing is sealed. */
  readonly secrets?: readonly string[];
  /** Names this process and its channel; unique among all gateways, a word without `@`. Default: host, process number and a random part. */
  readonly processId?: string;
  /** Told about outages. Default: nobody is. */
  readonly log?: StoreLog;
};

/** How long it is remembered that somebody was elected after a flight: until all its followers must have asked. */
const ELECTION_MS = 120_000;
/** How long a claim that was given up may be under way and still be turned away. */
const BAR_MS = 60_000;
/** Time for what nobody's answer waits for: a frame of unknown size, pieces of a response. */
const FETCH_MS = 2_000;
/** Time for a look at a server, and how long after a connect it is taken. */
const AUDIT_MS = 1_000;
const AUDIT_AFTER_MS = 20;
/** No process has this name. */
const NOBODY = '-';
/** Marker of a push that says that a lease is lost (settle.lua, queue.lua). */
const LOST = 'l'.charCodeAt(0);
/** How long `open` waits for the first connection. */
const OPEN_MS = 2_000;

export class RedisStore implements Store {
  readonly #names: RedisNames;
  readonly #process: string;
  readonly #timeoutMs: number;
  readonly #log: StoreLog;
  readonly #frames: Frames;
  readonly #commands: RedisRoute;
  readonly #pushes: RedisLink;
  readonly #hearing: RedisHearing;
  /** Large frames have connections of their own, so that no small question waits behind them. */
  readonly #bulk: RedisRoute;
  /** Bytes of large frames under way: each is given the time that all of them take. */
  #bulkBytes = 0;
  readonly #servers: RedisServers['kind'];
  readonly #waits: Waits;
  readonly #revocations = new Revocations((lease) => this.#relay.ended(lease));
  readonly queue: Queue;
  readonly #turns: RedisQueue;
  readonly #waitReplicas: number;
  /** Null: claims count at once. */
  readonly #replicas: RedisReplicas | null;
  /** Only for claims that replicas must have: WAIT blocks its connection. */
  readonly #confirmations: RedisRoute | null;
  readonly #relay: RedisRelay;
  readonly #operator: RedisOperator;
  readonly #purge: RedisPurge;
  /** Claims that may have been executed without an answer, and releases that were not answered. */
  readonly #owed = new Owed();
  /** Numbers the questions that may register this process as a waiter, in the order in which they are sent. */
  #registration = 0;
  #checking = false;
  #auditTimer: NodeJS.Timeout | null = null;
  /** The audit that was told last. */
  #told = '';
  #closed = false;
  #subscribing: Promise<void> = Promise.resolve();

  constructor(options: RedisStoreOptions) {
    this.#names = new RedisNames(options.prefix ?? 'oneflight');
    this.#process = options.processId ?? newProcessId();
    this.#timeoutMs = options.commandTimeoutMs ?? 250;
    this.#log = options.log ?? (() => {});
    this.#frames = new Frames(options.secrets ?? []);
    this.#waits = new Waits({
      look: (flight) => this.#look(flight),
      withdraw: (flight, registration) => this.#withdraw(flight, registration),
      onLostPush: () => this.#checkPushes(),
      decode: (frame, flight) => this.#frames.decode(frame, flight),
      log: this.#log,
    });
    const { access } = options;
    const link = { access, commandTimeoutMs: this.#timeoutMs, log: this.#log };
    const routes = {
      commands: { ...link, role: 'commands', onReady: () => this.#connected() },
      bulk: { ...link, role: 'bulk', onReady: () => {} },
    };
    let nodes = (): readonly HostPort[] => [];
    if (access.servers.kind === 'cluster') {
      const cluster = new ClusterRoute(routes.commands);
      nodes = () => cluster.nodes;
      this.#commands = cluster;
    } else {
      this.#commands = new SingleRoute(routes.commands);
    }
    this.#bulk = routeBy(routes.bulk);
    const wanted = options.waitReplicas ?? 0;
    this.#waitReplicas = wanted;
    this.#confirmations = wanted === 0 ? null : routeBy({ ...link, role: 'confirmations', onReady: () => {} });
    this.#replicas =
      this.#confirmations === null
        ? null
        : new RedisReplicas({
            route: this.#confirmations,
            wanted,
            waitMs: Math.ceil(this.#timeoutMs / 2),
            // Behind somebody else's WAIT, and then its own.
            budgetMs: this.#timeoutMs * 1.5,
          });
    this.#servers = access.servers.kind;
    this.#pushes = pushLink(
      link,
      nodes,
      () => {
        this.#subscribing = this.#hearing.subscribe();
      },
      () => this.#waits.deaf(),
    );
    this.#hearing = new RedisHearing({
      link: this.#pushes,
      channel: `${this.#names.channels}${this.#process}`,
      channels: `${this.#names.channels}*`,
      timeoutMs: this.#timeoutMs,
      log: this.#log,
      onListening: () => {
        this.#waits.listening();
        this.#turns.listening();
        this.#relay.listening();
      },
    });
    this.#pushes.client.on('messageBuffer', (_channel: Buffer, message: Buffer) => this.#onPush(message));
    this.#relay = new RedisRelay({
      ask: (key, run, bytes) => this.#askBulk(key, run, bytes, FETCH_MS),
      frames: this.#frames,
      log: this.#log,
      names: this.#names,
      process: this.#process,
    });
    const ask: AskSmall = (key, run, extraMs = 0) => this.#commands.ask(key, run, this.#timeoutMs + extraMs);
    this.#turns = new RedisQueue({
      ask,
      owed: this.#owed,
      names: this.#names,
      process: this.#process,
      revocations: this.#revocations,
    });
    this.queue = new NamedQueue(
      this.#replicas === null ? this.#turns : new ConfirmedQueue(this.#turns, this.#replicas),
    );
    const walk = { ask, primaries: () => this.#commands.primaries(), timeoutMs: this.#timeoutMs, names: this.#names };
    this.#operator = new RedisOperator({
      ...walk,
      frames: this.#frames,
      turns: this.#turns,
      revocations: this.#revocations,
    });
    this.#purge = new RedisPurge(walk);
  }

  claim(request: ClaimRequest): Promise<ClaimResult> {
    return claimUnderAllNames(request, {
      claim: async (asked) => {
        // Asked again, so it is wanted again.
        this.#owed.cancel(asked.flight);
        return this.#confirmed(asked, claimed(await this.#claim(asked, 'take')));
      },
      look: (asked) => this.#claim(asked, 'look'),
      giveBack: (lease, election) => this.#giveBack(lease, election),
    });
  }

  look(request: ClaimRequest): Promise<LookedAt> {
    // Its own flight would be renewed by it.
    const asked = { ...request, flight: newFlightId() };
    return lookUnderAllNames(asked, (named) => this.#claim(named, 'look'));
  }

  async #claim(request: ClaimRequest, how: 'take' | 'look'): Promise<LookedAt> {
    const { key, flight, leaseMs, election, join, material } = request;
    let registration = 0;
    const answer = await this.#commands.ask(
      key,
      (client) => {
        registration = this.#nextRegistration();
        return client.oneflightClaimBuffer(
          this.#names.record(key),
          this.#names.result(key, flight),
          this.#names.elected(key, request.after),
          this.#names.mark(key),
          flight,
          // The server takes whole milliseconds only.
          Math.ceil(leaseMs),
          election,
          this.#process,
          join ? registration : '',
          request.fingerprint,
          Math.ceil(request.holdMs),
          request.route,
          request.after,
          ELECTION_MS,
          INLINE_BYTES,
          how === 'take' ? '1' : '',
        );
      },
      this.#timeoutMs,
    );
    if (answer.kind === 'uncertain' && how === 'take') this.#owe(key, flight);
    const reply = answered(answer) as readonly [Buffer, ...(Buffer | number)[]];
    switch (String(reply[0])) {
      case 'L':
        return {
          kind: 'leader',
          lease: { key, flight, fence: Number(reply[1]), leaseMs, material },
          expects: expectsOf(reply[2]),
        };
      case 'F': {
        const expects = expectsOf(reply[5]);
        if (join && expects === 'shareable') this.#waits.joined(String(reply[1]), registration);
        return { kind: 'follower', flight: followed(request, reply), expects };
      }
      case 'S':
        return (reply[5] as number) > INLINE_BYTES
          ? this.#fetchStored(request, how, reply)
          : this.#stored(request, reply, reply[2] as Buffer);
      case 'X':
        return { kind: 'late' };
      case 'M':
        return { kind: 'mismatch' };
      case 'U':
        return { kind: 'unknown', key, material, flight: String(reply[1]), ttlMs: reply[2] as number };
      case 'N':
        return { kind: 'free' };
      default:
        throw new StoreUnavailable('the flight was given up after an outage; ask with a new flight id');
    }
  }

  /** Nothing was executed under a claim that does not count: it is given back. */
  async #confirmed({ election }: ClaimRequest, result: ClaimResult): Promise<ClaimResult> {
    if (result.kind !== 'leader' || this.#replicas === null) return result;
    const { lease } = result;
    try {
      await this.#replicas.confirm(lease, (client) => this.#renewBy(client, lease));
    } catch (error) {
      void this.#giveBack(lease, election);
      throw error;
    }
    return result;
  }

  #renewBy(client: ScriptedRedis, { key, flight, fence, leaseMs }: Lease): Promise<unknown> {
    return client.oneflightRenewBuffer(this.#names.record(key), flight, fence, Math.ceil(leaseMs));
  }

  /** Whoever joined meanwhile asks again. */
  async #giveBack(lease: Lease, election: number): Promise<void> {
    try {
      await this.complete(lease, { kind: 'withdrawn', election }, 0);
    } catch {
      this.#owe(lease.key, lease.flight);
    }
  }

  /** The frame of a kept response that is too large for a reply among small ones. */
  async #fetchStored(
    request: ClaimRequest,
    how: 'take' | 'look',
    reply: readonly (Buffer | number)[],
  ): Promise<LookedAt> {
    const { key } = request;
    const fetch = (client: ScriptedRedis) => client.hmgetBuffer(this.#names.record(key), 'f', 'b');
    const [flight, frame] = answered(await this.#askBulk(key, fetch, reply[5] as number)) as (Buffer | null)[];
    // Expired or replaced since: the key has a new answer.
    if (frame == null || String(flight) !== String(reply[1])) return this.#claim(request, how);
    return this.#stored(request, reply, frame);
  }

  #stored({ key, material }: ClaimRequest, reply: readonly (Buffer | number)[], frame: Buffer): ClaimResult {
    const [, id, , ageMs, ttlMs] = reply;
    const flight = String(id);
    let settlement: Settlement;
    try {
      settlement = this.#frames.decode(frame, { key, flight, material });
    } catch (cause) {
      this.#log('warn', 'kept response cannot be read', { error: (cause as Error).message });
      throw new StoreUnavailable('the kept response cannot be read', { cause });
    }
    if (settlement.kind !== 'response' && settlement.kind !== 'not-kept') {
      throw new StoreUnavailable('what is kept is not a response');
    }
    return { kind: 'stored', flight, ended: settlement, ageMs: ageMs as number, ttlMs: ttlMs as number };
  }

  /** Asks with, or for, so many bytes: within the budget of any command, and what their transfer takes. */
  async #askBulk<T>(key: string, run: Run<T>, bytes: number, budgetMs = this.#timeoutMs): Promise<Answer<T>> {
    const route = this.#bulk.ready(key) ? this.#bulk : this.#commands;
    this.#bulkBytes += bytes;
    try {
      return await route.ask(key, run, budgetMs + this.#bulkBytes / BYTES_PER_MS);
    } finally {
      this.#bulkBytes -= bytes;
    }
  }

  async renew(lease: Lease): Promise<Held> {
    const answer = await this.#commands.ask(lease.key, (client) => this.#renewBy(client, lease), this.#timeoutMs);
    if (answered(answer) === 1) return 'held';
    this.#relay.ended(lease);
    return 'lost';
  }

  async complete(lease: Lease, settlement: Settlement, keepMs: number): Promise<Held> {
    const { key, flight, fence } = lease;
    if (settlement.kind === 'unshareable') this.#relay.goesOn(lease);
    const frame = this.#frames.encode(settlement, lease);
    const run = (client: ScriptedRedis) =>
      client.oneflightCompleteBuffer(
        this.#names.record(key),
        this.#names.result(key, flight),
        this.#names.mark(key),
        this.#names.readers(key, flight),
        flight,
        fence,
        frame,
        isKept(settlement) ? wholeMs(keepMs) : 0,
        this.#names.channels,
        GRACE_MS,
        INLINE_BYTES,
        settlement.kind === 'unknown' ? 'u' : 'd',
        markMsAfter(settlement, keepMs),
        settlement.kind === 'unshareable' ? '1' : '',
      );
    const small = frame.length <= INLINE_BYTES;
    const answer = await (small
      ? this.#commands.ask(key, run, this.#timeoutMs)
      : this.#askBulk(key, run, frame.length));
    this.#relay.ended(lease);
    return heldOrLost(answer);
  }

  async release(lease: Lease, options: { readonly unlessAwaited: boolean }): Promise<Held | 'awaited'> {
    const { key, flight, fence } = lease;
    const answer = await this.#commands.ask(
      key,
      (client) => this.#releaseBy(client, key, flight, fence, options.unlessAwaited, 0),
      this.#timeoutMs,
    );
    // Nobody will ask again. Only a flight that may have waiters is left to its lease: to end it is the caller's choice.
    if (answer.kind !== 'answered' && !options.unlessAwaited) this.#owe(key, flight);
    if (answer.kind === 'answered' && answer.value === 2) return 'awaited';
    this.#relay.ended(lease);
    return heldOrLost(answer);
  }

  watch(lease: Lease, holder: LeaseHolder): void {
    this.#revocations.watch(lease, holder);
  }

  unwatch(lease: Lease): void {
    this.#revocations.unwatch(lease);
  }

  relay(lease: Lease, piece: Piece): Promise<Held> {
    return this.#relay.relay(lease, piece);
  }

  relayOn(lease: Lease, piece: Piece | null, dropBefore: number): Promise<StillRead | null> {
    return this.#relay.relayOn(lease, piece, dropBefore);
  }

  relayed(flight: FlightRef, reader: PieceReader, options: WaitOptions): Reading {
    return this.#relay.relayed(flight, reader, options);
  }

  settled(flight: FlightRef, options: WaitOptions): Promise<Settlement> {
    if (this.#closed) return Promise.reject(new StoreUnavailable('the store is closed'));
    return this.#waits.settled(flight, options);
  }

  settle(key: string, as: SettleAs, flight: string | null): Promise<'settled' | 'absent' | 'other'> {
    return this.#operator.settle(key, as, flight);
  }

  settleUnknown(key: string, flight: string, as: SettleAs, material: KeyMaterial): Promise<'settled' | 'absent'> {
    return this.#operator.settleUnknown(key, flight, as, material);
  }

  standing(key: string, flight: string): Promise<FlightStanding> {
    return this.#operator.standing(key, flight);
  }

  taken(options: TakenOptions): Promise<TakenKey[]> {
    return this.#operator.taken(options);
  }

  purge(key: string): Promise<Purged> {
    return this.#purge.key(key);
  }

  purgeRoute(route: string): Promise<number> {
    return this.#purge.route(route);
  }

  async ping(): Promise<void> {
    const nodes = await this.#commands.primaries();
    const each = await Promise.all(nodes.map((node) => node.ask((client) => client.ping(), this.#timeoutMs)));
    for (const answer of each) answered(answer);
  }

  async open(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, OPEN_MS);
    });
    await Promise.race([this.#connect(), enough]);
    clearTimeout(timer);
  }

  async close(): Promise<void> {
    this.#closed = true;
    if (this.#auditTimer !== null) clearTimeout(this.#auditTimer);
    this.#hearing.close();
    this.#owed.close();
    this.#turns.close();
    this.#relay.close();
    this.#waits.close(new StoreUnavailable('the store is closed'));
    this.#commands.close();
    this.#bulk.close();
    this.#confirmations?.close();
    this.#pushes.close();
  }

  /** The channel first: no claim with `join` is answered before this process hears. */
  async #connect(): Promise<void> {
    await this.#pushes.open();
    await this.#subscribing;
    if (this.#closed) return;
    await Promise.all([this.#commands.open(), this.#bulk.open(), this.#confirmations?.open()]);
  }

  #onPush(message: Buffer): void {
    if (message[0] === LOST) this.#revocations.tell(message.toString('latin1', 2, 2 + (message[1] ?? 0)));
    else if (!this.#turns.push(message) && !this.#relay.push(message)) this.#waits.push(message);
  }

  /** A push was missed: is the line that brings them dead without having said so? */
  #checkPushes(): void {
    if (this.#checking) return;
    this.#checking = true;
    void this.#pushes
      .ask((client) => client.ping(), this.#timeoutMs)
      .then((answer) => {
        this.#checking = false;
        // A node of a cluster that has lost the others answers, and hears nothing of what they say.
        if (answer.kind === 'uncertain' || this.#servers === 'cluster') this.#pushes.drop();
      });
  }

  async #look(flight: FlightRef): Promise<Looked> {
    let registration = 0;
    const route = this.#bulk.ready(flight.key) ? this.#bulk : this.#commands;
    const answer = await route.ask(
      flight.key,
      (client) => {
        registration = this.#nextRegistration();
        return client.oneflightLookBuffer(
          this.#names.record(flight.key),
          this.#names.result(flight.key, flight.flight),
          flight.flight,
          this.#process,
          registration,
        );
      },
      FETCH_MS + this.#bulkBytes / BYTES_PER_MS,
    );
    if (answer.kind !== 'answered') return null;
    const [kind, value] = answer.value as readonly [Buffer, Buffer | number];
    switch (String(kind)) {
      case 'S':
        return { kind: 'settled', frame: value as Buffer };
      case 'F':
        return { kind: 'in-flight', leaseLeftMs: value as number, registration };
      default:
        return { kind: 'gone' };
    }
  }

  /** Best effort: a registration that stays makes the leader go on for nobody, and costs a push that nobody hears. */
  #withdraw({ key, flight }: FlightRef, registration: number): void {
    void this.#commands.ask(
      key,
      (client) => client.oneflightLeaveBuffer(this.#names.record(key), flight, this.#process, registration),
      this.#timeoutMs,
    );
  }

  #nextRegistration(): number {
    this.#registration += 1;
    return this.#registration;
  }

  #connected(): void {
    void this.#owed.payAll();
    // Of the nodes of a cluster several connect at about the same time.
    this.#auditTimer ??= setTimeout(() => {
      this.#auditTimer = null;
      void this.#tellAudit();
    }, AUDIT_AFTER_MS).unref();
  }

  /** Looks at the servers. Throws `StoreUnavailable` when one of them does not answer. */
  async audit(): Promise<Audit> {
    const audit = await this.#auditServers();
    const { warning } = this.#hearing;
    return warning === null ? audit : { ...audit, warnings: [...audit.warnings, warning] };
  }

  async #auditServers(): Promise<Audit> {
    const nodes = await this.#commands.primaries();
    const channel = `${this.#names.channels}${NOBODY}`;
    const facts = await Promise.all(nodes.map((node) => node.ask((client) => look(client, channel), AUDIT_MS)));
    return auditOf(facts.map(answered), this.#servers, this.#waitReplicas);
  }

  /** Says what was seen: at the start, and whenever there are other servers or they promise something else. */
  async #tellAudit(): Promise<void> {
    // What is not heard has been told already.
    const audit = await this.#auditServers().catch(() => null);
    if (audit === null || this.#closed || JSON.stringify(audit) === this.#told) return;
    this.#told = JSON.stringify(audit);
    this.#log('info', 'store audited', audit.fields);
    if (audit.error !== null) this.#log('error', `the store cannot be used: ${audit.error}`, {});
    for (const { message, fields } of audit.warnings) this.#log('warn', message, fields);
  }

  #owe(key: string, flight: string): void {
    this.#owed.owe(flight, async () => {
      const answer = await this.#commands.ask(
        key,
        (client) => this.#releaseBy(client, key, flight, '', false, BAR_MS),
        this.#timeoutMs,
      );
      return answer.kind === 'answered';
    });
  }

  #releaseBy(
    client: ScriptedRedis,
    key: string,
    flight: string,
    fence: number | '',
    unlessAwaited: boolean,
    barMs: number,
  ): Promise<unknown> {
    return client.oneflightReleaseBuffer(
      this.#names.record(key),
      this.#names.result(key, flight),
      flight,
      fence,
      unlessAwaited ? '1' : '',
      this.#names.channels,
      GRACE_MS,
      barMs,
    );
  }
}

function routeBy(options: RouteOptions): RedisRoute {
  return options.access.servers.kind === 'cluster' ? new ClusterRoute(options) : new SingleRoute(options);
}

/** A claim takes what is free. */
function claimed(looked: LookedAt): ClaimResult {
  if (looked.kind === 'free') throw new Error('a free key was not taken');
  return looked;
}

/** For how long the key is marked after such an end; `''`: as it was. */
function markMsAfter({ kind }: Settlement, keepMs: number): number | '' {
  if (kind === 'response') return 0;
  return kind === 'unshareable' && keepMs > 0 ? Math.ceil(keepMs) : '';
}

function expectsOf(mark: Buffer | number | undefined): Expects {
  return mark === 1 ? 'unshareable' : 'shareable';
}

/** Whether a flight that ended like this can go on to have its key. */
function isKept({ kind }: Settlement): boolean {
  return kind === 'response' || kind === 'not-kept' || kind === 'unknown';
}

function followed(
  { key, material }: ClaimRequest,
  [, flight, leaseLeftMs, ageMs, election]: readonly (Buffer | number)[],
): FlightRef {
  return {
    key,
    flight: String(flight),
    leaseLeftMs: Math.max(0, leaseLeftMs as number),
    ageMs: ageMs as number,
    election: election as number,
    material,
  };
}
