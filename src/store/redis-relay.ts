/**
 * The pieces of responses under way in Redis: sent by relay.lua, kept in a stream of each flight, and put in order here.
 *
 * Invariants: pieces are told in order, without a gap, each once; a push that is ahead waits until what is before it was
 * fetched; what was pushed before anybody asked is found in the stream.
 */

import type { FlightRef, Held, Lease } from '../core/claim.js';
import type { Frames } from './frames.js';
import type { WaitOptions } from './leases.js';
import { type Answer, answered, heldOrLost, type ScriptedRedis, type StoreLog } from './redis-link.js';
import type { RedisNames } from './redis-names.js';
import type { Piece, Relay } from './relay.js';

export type RedisRelayOptions = {
  /** Asks over the connection for large frames; the bytes that are sent, for its deadline. */
  readonly ask: <T>(run: (client: ScriptedRedis) => Promise<T>, bytes: number) => Promise<Answer<T>>;
  readonly frames: Frames;
  readonly log: StoreLog;
  readonly names: RedisNames;
};

type Reading = {
  readonly flight: FlightRef;
  readonly onPiece: (piece: Piece) => void;
  readonly pollMs: number;
  next: number;
  /** Pushes that are ahead of what has been told. */
  readonly ahead: Map<number, Buffer>;
  fetching: boolean;
  fetchAgain: boolean;
  timer: NodeJS.Timeout | null;
};

/** How long the pieces of a flight stay after the newest: for whoever joins while the upstream is silent. */
const KEEP_MS = 120_000;
/** The most pieces that one fetch brings. */
const FETCH_MOST = 500;
const INDEX_BYTES = 4;
/** The most flights of which it is known that they have pieces; those of the oldest expire. */
const SENT_MOST = 100_000;

export class RedisRelay implements Relay {
  readonly #options: RedisRelayOptions;
  readonly #readings = new Map<string, Set<Reading>>();
  /** Flights of which this process has sent pieces. */
  readonly #sent = new Set<string>();

  constructor(options: RedisRelayOptions) {
    this.#options = options;
  }

  async relay(lease: Lease, piece: Piece): Promise<Held> {
    const { ask, frames, names } = this.#options;
    const { key, flight, fence } = lease;
    const bytes = frames.encodePiece(piece, lease);
    this.#remember(flight);
    const answer = await ask(
      (client) =>
        client.oneflightRelayBuffer(
          names.record(key),
          names.pieces(key, flight),
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

  relayed(flight: FlightRef, onPiece: (piece: Piece) => void, { pollMs, signal }: WaitOptions): void {
    if (signal.aborted) return;
    const reading: Reading = {
      flight,
      onPiece,
      pollMs,
      next: 0,
      ahead: new Map(),
      fetching: false,
      fetchAgain: false,
      timer: null,
    };
    const same = this.#readings.get(flight.flight) ?? new Set();
    this.#readings.set(flight.flight, same.add(reading));
    signal.addEventListener('abort', () => this.#end(reading), { once: true });
    void this.#fetch(reading);
  }

  /** The pieces of a flight that is over, or of a lease that was lost, are of no use any more. Best effort: they expire. */
  ended({ key, flight }: Lease): void {
    const { ask, names } = this.#options;
    if (!this.#sent.has(flight)) return;
    void ask((client) => client.unlink(names.pieces(key, flight)), 0).then(({ kind }) => {
      // Without an answer the end will be told again.
      if (kind === 'answered') this.#sent.delete(flight);
    });
  }

  /** Takes a push as relay.lua writes it; false: it is none of its own. */
  push(message: Buffer): boolean {
    if (message[0] !== 's'.charCodeAt(0)) return false;
    const end = 2 + (message[1] ?? 0);
    const readings = this.#readings.get(message.toString('latin1', 2, end));
    if (readings === undefined) return true;
    const index = message.readUInt32BE(end);
    const bytes = message.subarray(end + INDEX_BYTES);
    for (const reading of readings) {
      reading.ahead.set(index, bytes);
      this.#tell(reading);
      if (reading.ahead.size > 0) void this.#fetch(reading);
    }
    return true;
  }

  /** Pushes arrive from now on: something may have been missed. */
  listening(): void {
    for (const readings of this.#readings.values()) for (const reading of readings) void this.#fetch(reading);
  }

  close(): void {
    for (const readings of [...this.#readings.values()]) for (const reading of [...readings]) this.#end(reading);
  }

  #remember(flight: string): void {
    this.#sent.add(flight);
    if (this.#sent.size > SENT_MOST) this.#sent.delete(this.#sent.values().next().value as string);
  }

  /** Tells what is here without a gap. */
  #tell(reading: Reading): void {
    for (const index of reading.ahead.keys()) if (index < reading.next) reading.ahead.delete(index);
    for (;;) {
      const bytes = reading.ahead.get(reading.next);
      if (bytes === undefined) return;
      reading.ahead.delete(reading.next);
      const index = reading.next;
      reading.next += 1;
      const piece = this.#open(reading, { index, bytes });
      if (piece === null) return this.#end(reading);
      reading.onPiece(piece);
    }
  }

  /** Null for what cannot be opened: the settlement has it all. */
  #open(reading: Reading, piece: Piece): Piece | null {
    try {
      return { index: piece.index, bytes: this.#options.frames.decodePiece(piece, reading.flight) };
    } catch (error) {
      this.#options.log('warn', 'a piece of a response cannot be read', { error: (error as Error).message });
      return null;
    }
  }

  async #fetch(reading: Reading): Promise<void> {
    if (reading.fetching) {
      reading.fetchAgain = true;
      return;
    }
    reading.fetching = true;
    reading.fetchAgain = false;
    const from = reading.next;
    const { key, flight } = reading.flight;
    const answer = await this.#options.ask(
      (client) =>
        client.xrangeBuffer(this.#options.names.pieces(key, flight), `${reading.next + 1}-0`, '+', 'COUNT', FETCH_MOST),
      0,
    );
    reading.fetching = false;
    if (!this.#isOpen(reading)) return;
    const found = answer.kind === 'answered' ? (answered(answer) as [Buffer, Buffer[]][]) : [];
    for (const [id, [, bytes]] of found) {
      if (bytes !== undefined) reading.ahead.set(Number.parseInt(id.toString(), 10) - 1, bytes);
    }
    this.#tell(reading);
    if (!this.#isOpen(reading)) return;
    // Behind a gap there is nothing to be told, however much there is.
    if ((found.length === FETCH_MOST && reading.next > from) || reading.fetchAgain) return this.#fetch(reading);
    if (reading.timer !== null) clearTimeout(reading.timer);
    reading.timer = setTimeout(() => void this.#fetch(reading), reading.pollMs);
  }

  #isOpen(reading: Reading): boolean {
    return this.#readings.get(reading.flight.flight)?.has(reading) ?? false;
  }

  #end(reading: Reading): void {
    if (reading.timer !== null) clearTimeout(reading.timer);
    const same = this.#readings.get(reading.flight.flight);
    same?.delete(reading);
    if (same?.size === 0) this.#readings.delete(reading.flight.flight);
  }
}
