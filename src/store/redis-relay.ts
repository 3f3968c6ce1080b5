/**
 * The pieces of responses under way in Redis: sent by relay.lua, kept in a stream of each flight, and put in order here.
 *
 * Invariants: pieces are told in order, without a gap, each once; a push that is ahead waits until what is before it was
 * fetched; what was pushed before anybody asked is found in the stream. Whoever reads says how far it has come with every
 * fetch: beyond the end of the flight (relay-on.lua) that is what pieces are let go by. A reader that is full is told
 * nothing, and nothing is held for it here: it finds everything in the stream.
 */

import type { FlightRef, Held, Lease } from '../core/claim.js';
import { Registry } from '../core/roster.js';
import type { Frames } from './frames.js';
import type { WaitOptions } from './leases.js';
import { type Answer, answered, heldOrLost, type StoreLog } from './redis-link.js';
import type { RedisNames } from './redis-names.js';
import type { Run } from './redis-route.js';
import type { Piece, PieceReader, Reading, Relay, StillRead } from './relay.js';

export type RedisRelayOptions = {
  /** Asks about a key over the connections for large frames; the bytes that are sent, for its deadline. */
  readonly ask: <T>(key: string, run: Run<T>, bytes: number) => Promise<Answer<T>>;
  readonly frames: Frames;
  readonly log: StoreLog;
  readonly names: RedisNames;
  readonly process: string;
};

type Following = {
  readonly flight: FlightRef;
  readonly reader: PieceReader;
  readonly pollMs: number;
  next: number;
  /** Size of the largest piece so far. */
  largestBytes: number;
  /** How much was told since it was last said how far this process has come. */
  unsaidBytes: number;
  /** The store knows that this process reads. */
  registered: boolean;
  full: boolean;
  /** A piece is gone while the flight is up: its settlement has it. */
  blind: boolean;
  /** Pushes that are ahead of what has been told. */
  readonly ahead: Map<number, Buffer>;
  fetching: boolean;
  fetchAgain: boolean;
  timer: NodeJS.Timeout | null;
};

/** What pieces.lua says of a flight. */
type Said = {
  readonly state: 'up' | 'beyond' | 'over';
  /** What this process wants next is gone. */
  readonly lost: boolean;
  readonly pieces: readonly Piece[];
};

const STATES: Readonly<Record<string, Said['state']>> = { i: 'up', b: 'beyond', o: 'over' };

/** How long the pieces of a flight stay after the newest: for whoever joins while the upstream is silent. */
const KEEP_MS = 120_000;
/** The most pieces that one fetch brings, and about how many bytes. */
const FETCH_MOST = 500;
const FETCH_BYTES = 4 * 1_024 * 1_024;
/** After so much it is said how far this process has come. */
const SAID_EVERY_BYTES = 512 * 1_024;
/** How often it is asked at least whether anything can come. */
const LOOK_MS = 2_000;
/** Age at which a sign of life of a response beyond its flight is none any more. */
const SIGN_MS = 6_000;
const INDEX_BYTES = 4;
/** The most flights of which it is known that they have pieces; those of the oldest expire. */
const SENT_MOST = 100_000;

export class RedisRelay implements Relay {
  readonly #options: RedisRelayOptions;
  readonly #followed = new Registry<Set<Following>>();
  /** Flights of which this process has sent pieces, and whether they go on beyond it. */
  readonly #sent = new Map<string, 'within' | 'beyond'>();

  constructor(options: RedisRelayOptions) {
    this.#options = options;
  }

  async relay(lease: Lease, piece: Piece): Promise<Held> {
    const { ask, frames, names } = this.#options;
    const { key, flight, fence } = lease;
    const bytes = frames.encodePiece(piece, lease);
    this.#remember(flight);
    const answer = await ask(
      key,
      (client) =>
        client.oneflightRelayBuffer(
          names.record(key),
          names.pieces(key, flight),
          names.readers(key, flight),
          flight,
          fence,
          piece.index,
          bytes,
          names.channels,
          KEEP_MS,
        ),
      bytes.length,
    );
    const held = heldOrLost(answer);
    if (held === 'lost') this.ended(lease);
    return held;
  }

  async relayOn({ key, flight, material }: Lease, piece: Piece | null, dropBefore: number): Promise<StillRead | null> {
    const { ask, frames, names } = this.#options;
    const bytes = piece === null ? '' : frames.encodePiece(piece, { key, flight, material });
    const answer = await ask(
      key,
      (client) =>
        client.oneflightRelayOnBuffer(
          names.pieces(key, flight),
          names.readers(key, flight),
          flight,
          piece?.index ?? 0,
          bytes,
          names.channels,
          KEEP_MS,
          dropBefore,
        ),
      bytes.length,
    );
    const [wanted, processes] = answered(answer) as [number, number];
    if (wanted >= 0) return { wanted, processes };
    this.#sent.delete(flight);
    return null;
  }

  relayed(flight: FlightRef, reader: PieceReader, { pollMs, signal }: WaitOptions): Reading {
    const following: Following = {
      flight,
      reader,
      pollMs,
      next: 0,
      largestBytes: 0,
      unsaidBytes: 0,
      registered: false,
      full: false,
      blind: false,
      ahead: new Map(),
      fetching: false,
      fetchAgain: false,
      timer: null,
    };
    const resume = (): void => {
      if (!following.full || !this.#isOpen(following)) return;
      following.full = false;
      void this.#fetch(following);
    };
    if (signal.aborted) return { resume };
    const same = this.#followed.get(flight.flight) ?? new Set<Following>();
    this.#followed.set(flight.flight, same.add(following));
    signal.addEventListener('abort', () => this.#end(following), { once: true });
    void this.#fetch(following);
    return { resume };
  }

  /** The pieces go on beyond their flight: to be said before it is ended. They expire. */
  goesOn({ flight }: Lease): void {
    if (this.#sent.has(flight)) this.#sent.set(flight, 'beyond');
  }

  /** The pieces of a flight that is over, or of a lease that was lost, are of no use any more. Best effort: they expire. */
  ended({ key, flight }: Lease): void {
    const { ask, names } = this.#options;
    if (this.#sent.get(flight) !== 'within') return;
    const unlink: Run<number> = (client) => client.unlink(names.pieces(key, flight), names.readers(key, flight));
    void ask(key, unlink, 0).then(({ kind }) => {
      // Without an answer the end will be told again.
      if (kind === 'answered') this.#sent.delete(flight);
    });
  }

  /** Takes a push as relay.lua writes it; false: it is none of its own. */
  push(message: Buffer): boolean {
    if (message[0] !== 's'.charCodeAt(0)) return false;
    const end = 2 + (message[1] ?? 0);
    const followed = this.#followed.get(message.toString('latin1', 2, end));
    if (followed === undefined) return true;
    const index = message.readUInt32BE(end);
    const bytes = message.subarray(end + INDEX_BYTES);
    for (const following of followed) {
      if (following.full || following.blind) continue;
      following.ahead.set(index, bytes);
      this.#tell(following);
      const said = following.unsaidBytes < SAID_EVERY_BYTES;
      if (!following.full && (following.ahead.size > 0 || !said)) void this.#fetch(following);
    }
    return true;
  }

  /** Pushes arrive from now on: something may have been missed. */
  listening(): void {
    for (const followed of this.#followed.values()) for (const following of followed) void this.#fetch(following);
  }

  close(): void {
    for (const followed of [...this.#followed.values()]) for (const one of [...followed]) this.#end(one);
  }

  #remember(flight: string): void {
    if (!this.#sent.has(flight)) this.#sent.set(flight, 'within');
    if (this.#sent.size > SENT_MOST) this.#sent.delete(this.#sent.keys().next().value as string);
  }

  /** Tells what is here without a gap, as far as the reader takes it. */
  #tell(following: Following): void {
    const { ahead, reader } = following;
    for (const index of ahead.keys()) if (index < following.next) ahead.delete(index);
    while (!following.full && this.#isOpen(following)) {
      const bytes = ahead.get(following.next);
      if (bytes === undefined) return;
      ahead.delete(following.next);
      const index = following.next;
      following.next += 1;
      following.unsaidBytes += bytes.length;
      following.largestBytes = Math.max(following.largestBytes, bytes.length);
      const piece = this.#open(following, { index, bytes });
      if (piece === null) return this.#end(following);
      following.full = !reader.onPiece(piece);
    }
    ahead.clear();
  }

  /** Null for what cannot be opened: the settlement has it all. */
  #open(following: Following, piece: Piece): Piece | null {
    try {
      return { index: piece.index, bytes: this.#options.frames.decodePiece(piece, following.flight) };
    } catch (error) {
      this.#options.log('warn', 'a piece of a response cannot be read', { error: (error as Error).message });
      return null;
    }
  }

  async #fetch(following: Following): Promise<void> {
    if (following.full) return;
    if (following.fetching) {
      following.fetchAgain = true;
      return;
    }
    following.fetching = true;
    following.fetchAgain = false;
    if (following.timer !== null) clearTimeout(following.timer);
    const from = following.next;
    const most = Math.max(1, Math.min(FETCH_MOST, Math.floor(FETCH_BYTES / (following.largestBytes || 1))));
    const said = await this.#ask(following, most);
    following.fetching = false;
    if (!this.#isOpen(following)) return;
    let found: readonly Piece[] = [];
    if (said !== null) {
      if (said.state === 'over' || (said.lost && said.state === 'beyond')) return this.#lose(following);
      following.blind ||= said.lost;
      following.reader.onAlive();
      if (!following.blind) found = said.pieces;
    }
    for (const { index, bytes } of found) following.ahead.set(index, bytes);
    this.#tell(following);
    if (!this.#isOpen(following) || following.full) return;
    // Behind a gap there is nothing to be told, however much there is.
    const more = found.length === most && following.next > from;
    if (more || following.fetchAgain || following.unsaidBytes >= SAID_EVERY_BYTES) return this.#fetch(following);
    following.timer = setTimeout(() => void this.#fetch(following), Math.min(following.pollMs, LOOK_MS));
  }

  #lose(following: Following): void {
    this.#end(following);
    following.reader.onLost();
  }

  /** The next pieces, and how far this process has come is said; null: the store did not answer. */
  async #ask(following: Following, most: number): Promise<Said | null> {
    const { flight } = following.flight;
    const { registered } = following;
    following.unsaidBytes = 0;
    let next = following.next;
    for (const same of this.#followed.get(flight) ?? []) next = Math.min(next, same.next);
    const answer = await this.#askPieces(following.flight, next, most, registered, most * following.largestBytes);
    if (answer.kind !== 'answered') return null;
    const [state, lost, found] = answered(answer) as [Buffer, number, [Buffer, Buffer[]][]];
    if (lost === 0) following.registered = true;
    // It ended while it was asked.
    if (!this.#isOpen(following)) this.#deregister(following);
    const pieces = found.flatMap(([id, [, bytes]]) =>
      bytes === undefined ? [] : [{ index: Number.parseInt(id.toString(), 10) - 1, bytes }],
    );
    return { state: STATES[String(state)] ?? 'over', lost: lost === 1, pieces };
  }

  #askPieces(
    { key, flight }: FlightRef,
    next: number | '',
    most: number,
    registered: boolean,
    bytes: number,
  ): Promise<Answer<unknown>> {
    const { ask, names, process } = this.#options;
    return ask(
      key,
      (client) =>
        client.oneflightPiecesBuffer(
          names.record(key),
          names.pieces(key, flight),
          names.readers(key, flight),
          flight,
          next,
          most,
          process,
          registered ? '1' : '',
          KEEP_MS,
          SIGN_MS,
        ),
      bytes,
    );
  }

  #isOpen(following: Following): boolean {
    return this.#followed.get(following.flight.flight)?.has(following) ?? false;
  }

  #end(following: Following): void {
    if (!this.#isOpen(following)) return;
    if (following.timer !== null) clearTimeout(following.timer);
    const same = this.#followed.get(following.flight.flight);
    same?.delete(following);
    if (same?.size === 0) this.#followed.delete(following.flight.flight);
    this.#deregister(following);
  }

  /** Nobody is to wait for this process any more. Best effort: who does gives it up. */
  #deregister({ flight }: Following): void {
    if (!this.#followed.has(flight.flight)) void this.#askPieces(flight, '', 0, false, 0);
  }
}
