/**
 * Which node of a Redis Cluster has which keys, as its nodes say it.
 *
 * Invariant: where two nodes claim one slot, the one with the larger configuration epoch has it, as it is among the nodes
 * themselves: what a node that was cut off goes on to say does not count.
 */

import type { HostPort } from '../config/config.js';

export const SLOTS = 16_384;

/** CRC-16/XMODEM, by bytes. */
const CRC = Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  return crc;
});

/** The slot of all names that have the key as their hash tag (redis-names.ts). */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(key)) crc = ((crc << 8) & 0xffff) ^ (CRC[((crc >> 8) ^ byte) & 0xff] as number);
  return crc % SLOTS;
}

/** What one node says: of whom it is, in which slots. */
export type View = {
  readonly ranges: readonly {
    readonly from: number;
    readonly to: number;
    readonly primary: HostPort;
    readonly epoch: number;
    readonly replicas: readonly HostPort[];
  }[];
};

type SlotsReply = readonly (readonly [number, number, ...NodeReply[]])[];
type NodeReply = readonly [host: string | null, port: number, id?: string, ...rest: unknown[]];

/** Replies to CLUSTER SLOTS and CLUSTER NODES of the node at `asked`. The first has the names by which clients are to connect, the second the epochs. */
export function viewOf(slots: unknown, nodes: string, asked: HostPort): View {
  const epochs = new Map<string, number>();
  for (const line of nodes.split('\n')) {
    const [id, , , , , , epoch] = line.trim().split(' ');
    if (id !== undefined && epoch !== undefined) epochs.set(id, Number(epoch));
  }
  const placeOf = ([host, port]: NodeReply): HostPort => ({
    // A node that does not know its own name leaves it out.
    host: host === null || host === '' || host === '?' ? asked.host : host,
    port,
  });
  const ranges = (slots as SlotsReply).flatMap(([from, to, primary, ...replicas]) =>
    primary === undefined
      ? []
      : [
          {
            from,
            to,
            primary: placeOf(primary),
            epoch: epochs.get(String(primary[2])) ?? 0,
            replicas: replicas.map(placeOf),
          },
        ],
  );
  return { ranges };
}

export type SlotMap = {
  /** By slot; undefined: nobody has it. */
  readonly owners: readonly (HostPort | undefined)[];
  readonly primaries: readonly HostPort[];
  /** All of them, replicas too. */
  readonly nodes: readonly HostPort[];
};

/** What follows from what several nodes say. */
export function merged(views: readonly View[]): SlotMap {
  const owners = new Array<HostPort | undefined>(SLOTS).fill(undefined);
  const epochs = new Array<number>(SLOTS).fill(-1);
  const nodes = new Map<string, HostPort>();
  for (const { from, to, primary, epoch, replicas } of views.flatMap(({ ranges }) => ranges)) {
    for (const node of [primary, ...replicas]) nodes.set(`${node.host} ${node.port}`, node);
    for (let slot = from; slot <= to; slot += 1) {
      if (epoch <= (epochs[slot] as number)) continue;
      epochs[slot] = epoch;
      owners[slot] = primary;
    }
  }
  const primaries = new Map(owners.flatMap((at) => (at === undefined ? [] : [[`${at.host} ${at.port}`, at] as const])));
  return { owners, primaries: [...primaries.values()], nodes: [...nodes.values()] };
}

/** Where a node sends the question; null: it answered something else. */
export type Redirection =
  | { readonly kind: 'moved' | 'ask'; readonly slot: number; readonly to: HostPort }
  /** Some of the names of the question are on their way to another node: for a moment nobody can answer. */
  | { readonly kind: 'try-again' };

/** Reads an error reply such as `MOVED 3999 10.0.0.1:6381` of the node at `asked`. */
export function redirectionOf(cause: unknown, asked: HostPort): Redirection | null {
  const message = cause instanceof Error ? cause.message : '';
  if (message.startsWith('TRYAGAIN')) return { kind: 'try-again' };
  const [, word, slot, host, port] = /^(MOVED|ASK) ([0-9]{1,5}) (.*):([0-9]{1,5})$/.exec(message) ?? [];
  if (word === undefined || Number(slot) >= SLOTS) return null;
  const to = { host: host === '' || host === '?' ? asked.host : (host as string), port: Number(port) };
  return { kind: word === 'MOVED' ? 'moved' : 'ask', slot: Number(slot), to };
}
