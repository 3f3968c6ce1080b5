/**
 * The way from a key to its server in a Redis Cluster.
 *
 * Invariants: each primary has a connection of its own, with the three answers of redis-link.ts; a question goes to whom
 * the slot is known to belong, follows MOVED and ASK within its own budget, and is never sent to a second node after an
 * answer that says nothing about the first (uncertain); what was redirected was not executed. Whoever does not answer,
 * or answers that the cluster is down, makes us ask the others who has what by now, until all slots have a node that is
 * connected.
 */

import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { HostPort } from '../config/config.js';
import { askingOf } from './redis-client.js';
import { type Answer, addressText, RedisLink, type StoreLog } from './redis-link.js';
import type { RedisNode, RedisRoute, RouteOptions, Run } from './redis-route.js';
import { merged, type Redirection, redirectionOf, type SlotMap, slotOf, type View, viewOf } from './redis-slots.js';
import { StoreUnavailable } from './store.js';

/** How many nodes are asked at a time who has what, and how long each may take. */
const ASK_MOST = 5;
const ASK_MS = 1_000;
/** As long as something is missing it is asked again. */
const AGAIN_MS = 250;
/** While names move from node to node. */
const TRY_AGAIN_MS = 10;
/** After so many redirections each of the next ones waits for a moment as well; the question's own time ends them. */
const HOPS_AT_ONCE = 3;

const EMPTY: SlotMap = { owners: [], primaries: [], nodes: [] };

type Known = { readonly at: HostPort; readonly link: RedisLink; readonly opened: Promise<void> };

export class ClusterRoute implements RedisRoute {
  readonly #options: RouteOptions;
  readonly #seeds: readonly HostPort[];
  /** By `host:port`. */
  readonly #known = new Map<string, Known>();
  #map: SlotMap = EMPTY;
  /** Slots of which a node said that they moved, since the map was made. */
  readonly #moved = new Map<number, HostPort>();
  #refreshing: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;
  /** Why a node did not say who has what, the last time that one was asked. */
  #refusal = '';
  readonly #said = new Set<string>();

  constructor(options: RouteOptions) {
    this.#options = options;
    this.#seeds = options.access.servers.kind === 'cluster' ? options.access.servers.hosts : [];
  }

  /** Every node of the cluster that is known, replicas too. */
  get nodes(): readonly HostPort[] {
    return this.#map.nodes;
  }

  ready(key: string): boolean {
    const at = this.#ownerOf(slotOf(key));
    return at !== undefined && (this.#known.get(addressText(at))?.link.ready ?? false);
  }

  async ask<T>(key: string, run: Run<T>, budgetMs: number): Promise<Answer<T>> {
    const deadline = performance.now() + budgetMs;
    const slot = slotOf(key);
    let at = this.#ownerOf(slot);
    let asking = false;
    let answer: Answer<T> = { kind: 'refused', cause: new Error('no node of the cluster is known to have the key') };
    for (let hop = 1; at !== undefined; hop += 1) {
      answer = await this.#askNode(at, asking ? (client) => run(askingOf(client)) : run, deadline);
      const turned: Redirection | null = answer.kind === 'refused' ? redirectionOf(answer.cause, at) : null;
      if (turned === null) break;
      // In the middle of a move nobody may have it yet, or each of two sends us to the other.
      if (turned.kind === 'try-again' || hop > HOPS_AT_ONCE) {
        if (performance.now() + TRY_AGAIN_MS >= deadline) break;
        await sleep(TRY_AGAIN_MS);
      }
      asking = turned.kind === 'ask';
      at = turned.kind === 'try-again' ? this.#ownerOf(slot) : turned.to;
      if (turned.kind !== 'moved') continue;
      this.#moved.set(turned.slot, turned.to);
      void this.#refresh();
    }
    if (answer.kind !== 'answered') this.#refreshSoon(0);
    return answer;
  }

  async primaries(): Promise<readonly RedisNode[]> {
    await this.#refresh();
    const { owners, primaries } = this.#map;
    if (owners.length === 0 || owners.includes(undefined)) {
      const why = this.#refusal === '' ? 'some slots of the cluster have no node that is known' : this.#refusal;
      throw new StoreUnavailable(`store unavailable: ${why}`);
    }
    return Promise.all(
      primaries.map(async (at) => {
        const { link, opened } = this.#node(at);
        await opened;
        return link;
      }),
    );
  }

  async open(): Promise<void> {
    await this.#refresh();
    await Promise.all([...this.#known.values()].map(({ opened }) => opened));
  }

  close(): void {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    for (const { link } of this.#known.values()) link.close();
    this.#known.clear();
  }

  #ownerOf(slot: number): HostPort | undefined {
    return this.#moved.get(slot) ?? this.#map.owners[slot];
  }

  async #askNode<T>(at: HostPort, run: Run<T>, deadline: number): Promise<Answer<T>> {
    const { link, opened } = this.#node(at);
    if (!link.ready && !(await inTime(opened, deadline))) return { kind: 'refused', cause: new Error('not connected') };
    return link.ask(run, Math.max(1, deadline - performance.now()));
  }

  #node(at: HostPort): Known {
    const address = addressText(at);
    const known = this.#known.get(address);
    if (known !== undefined) return known;
    const { role, onReady, ...options } = this.#options;
    const link = new RedisLink(
      role,
      { ...options, next: () => at },
      () => onReady(),
      () => this.#refreshSoon(AGAIN_MS),
    );
    const added = { at, link, opened: this.#closed ? Promise.resolve() : link.open() };
    this.#known.set(address, added);
    return added;
  }

  #refreshSoon(ms: number): void {
    if (this.#timer !== null || this.#refreshing !== null || this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#refresh();
    }, ms).unref();
  }

  #refresh(): Promise<void> {
    this.#refreshing ??= this.#learn().finally(() => {
      this.#refreshing = null;
      const { owners, primaries } = this.#map;
      const complete = owners.length > 0 && !owners.includes(undefined);
      const up = primaries.every((at) => this.#known.get(addressText(at))?.link.ready === true);
      if (!complete || !up) this.#refreshSoon(AGAIN_MS);
    });
    return this.#refreshing;
  }

  async #learn(): Promise<void> {
    const moved = [...this.#moved];
    const views = await this.#views();
    if (views.length === 0 || this.#closed) return;
    this.#map = merged(views);
    this.#said.clear();
    // What was said meanwhile is newer than what was asked for.
    for (const [slot, at] of moved) if (this.#moved.get(slot) === at) this.#moved.delete(slot);
    const wanted = new Set(this.#map.primaries.map(addressText));
    for (const at of this.#moved.values()) wanted.add(addressText(at));
    for (const at of this.#map.primaries) this.#node(at);
    for (const [address, { link }] of this.#known) {
      if (wanted.has(address)) continue;
      this.#known.delete(address);
      link.close();
    }
  }

  /** What some nodes say: those that are connected, and as many others as there is room for. */
  async #views(): Promise<View[]> {
    const connected = shuffled([...this.#known.values()].filter(({ link }) => link.ready));
    const views = await Promise.all(connected.slice(0, ASK_MOST).map(({ at, link }) => this.#askView(at, link)));
    const said = views.filter((view) => view !== null);
    if (said.length > 0 && connected.length > 1) return said;
    const there = new Set(connected.map(({ at }) => addressText(at)));
    const others = [...new Map([...this.#seeds, ...this.#map.nodes].map((at) => [addressText(at), at])).values()];
    const asked = shuffled(others.filter((at) => !there.has(addressText(at)))).slice(0, ASK_MOST);
    const more = await Promise.all(asked.map((at) => this.#askOnce(at)));
    return [...said, ...more.filter((view) => view !== null)];
  }

  /** Of nodes that are asked again and again: each message once, until something was learned. */
  #tellOnce(log: StoreLog): StoreLog {
    return (level, message, fields) => {
      const text = `${message} ${JSON.stringify(fields)}`;
      if (level === 'info' || this.#said.has(text)) return;
      this.#said.add(text);
      log(level, message, fields);
    };
  }

  async #askView(at: HostPort, link: RedisLink): Promise<View | null> {
    const answer = await link.ask((client) => Promise.all([client.cluster('SLOTS'), client.cluster('NODES')]), ASK_MS);
    if (answer.kind === 'answered') return viewOf(answer.value[0], String(answer.value[1]), at);
    this.#refusal = answer.cause instanceof Error ? answer.cause.message : '';
    return null;
  }

  /** Over a connection of its own, which is not kept. */
  async #askOnce(at: HostPort): Promise<View | null> {
    const { role, onReady: _, log, ...rest } = this.#options;
    // A connection that is not kept is news only when it fails.
    const options = { ...rest, log: this.#tellOnce(log) };
    const nothing = () => {};
    const link = new RedisLink(role, { ...options, next: () => at }, nothing, nothing);
    try {
      await inTime(link.open(), performance.now() + ASK_MS);
      return await this.#askView(at, link);
    } finally {
      link.close();
    }
  }
}

/** Whether the promise settles before that time. */
async function inTime(promise: Promise<unknown>, deadline: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, Math.max(0, deadline - performance.now()), false);
  });
  const settled = await Promise.race([promise.then(() => true), late]);
  clearTimeout(timer);
  return settled;
}

function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}
