/**
 * One response while it passes: a record that grows, many readers at their own pace, and what later duplicates will be
 * given.
 *
 * Invariants:
 * - every reader gets every byte, once and in order, or its connection is cut; nobody's answer ends cleanly before the
 *   response is concluded, which its leader does when the store knows of the end;
 * - no reader slows another while the record is whole, and its memory is bounded by its limit and by the budget that all
 *   records of the process share; a record that outgrows either goes on as a window, for those who read already: it holds
 *   what the slowest has not read, is full at `WINDOW_BYTES`, and who keeps it full for `stallMs` in all is cut;
 * - it becomes a response only with the upstream's end of message and only whole.
 */

import type { MemoryBudget } from '../core/memory-budget.js';
import { type SharedResponse, sizeOf, type Vary } from '../core/sharing.js';
import type { Caller } from './caller.js';
import { eachOf, inSlices } from './in-slices.js';

export type ResponseHead = {
  readonly status: number;
  readonly reason: string;
  readonly fields: readonly string[];
  readonly vary: Vary;
};

export type RecordingOptions = {
  /** Largest content that is kept whole. */
  readonly limitBytes: number;
  readonly budget: MemoryBudget;
  /** How long, in all, a reader may hold up the others. */
  readonly stallMs: number;
  /** There is room again after `full`. */
  readonly onRoom: () => void;
  /** A reader has left, or was cut. */
  readonly onReaderGone: () => void;
};

/** Whoever reads: a client whose answer has begun. */
export type RecordingReader = Pick<Caller, 'gone' | 'write' | 'whenDrained' | 'hold' | 'end' | 'cut'>;

type Reader = {
  readonly caller: RecordingReader;
  /** `relay`: it reads for other processes, and sees to it that none of them holds it up for longer than `stallMs`. */
  readonly as: 'client' | 'relay';
  /** Place of the next chunk to write, counted from the response's first. */
  next: number;
  state: 'reading' | 'blocked';
  /** How long it has kept the window full since it last had everything. */
  heldUpMs: number;
  progressAtMs: number;
};

/**
 * How long a response is held for somebody who takes nothing of it and holds up nobody. The system takes up to 4 MiB ahead of
 * a client, and more of them only when a third of that was read: one that reads 10 KB/s is seen to do so every 80 s.
 */
export const IDLE_MS = 180_000;
const LEAST_TIMER_MS = 10;
/** What holding a piece costs beside its bytes. */
const CHUNK_COST_BYTES = 256;
const ALONE_BYTES = 256 * 1_024;
const FEW_READERS = 16;
/** What a reader is given at a time of a response that is here already. */
export const PART_BYTES = 256 * 1_024;
/** How much of a response that is not kept whole is held for its readers. */
const WINDOW_BYTES = 4 * 1_048_576;

export class Recording {
  readonly head: ResponseHead;
  readonly #options: RecordingOptions;
  #state: 'whole' | 'window' | 'concluded' | 'failed' = 'whole';
  #outgrown = false;
  #chunks: Buffer[] = [];
  /** Place of the first chunk that is held. */
  #first = 0;
  #heldBytes = 0;
  /** The response whose content the chunks are parts of: it is what takes room then. */
  #shared: SharedResponse | null = null;
  #receivedBytes = 0;
  /** The newest chunk completes the message: it is kept back until the response is concluded. */
  #completed = false;
  #trailers: readonly string[] = [];
  #leader: RecordingReader | null = null;
  #leadersTrailers: readonly string[] = [];
  readonly #readers = new Map<RecordingReader, Reader>();
  /** The one that reads for other processes; null: none has. */
  #relay: RecordingReader | null = null;
  /** Whether all readers are being given what is there; `again`: with more come since. */
  #pumping: 'not' | 'once' | 'again' = 'not';
  #trimming = false;
  #fullSinceMs: number | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(head: ResponseHead, options: RecordingOptions) {
    this.head = head;
    this.#options = options;
  }

  /** Whether a new reader can have the response from its beginning. */
  get isWhole(): boolean {
    return this.#state === 'whole';
  }

  /** Whether it is, or was, a window: no settlement has the response. */
  get outgrown(): boolean {
    return this.#outgrown;
  }

  /** Nothing more should be added until `onRoom`. */
  get full(): boolean {
    return this.#fullSinceMs !== null;
  }

  /** Whether anybody reads here, for a client or for other processes. */
  get isRead(): boolean {
    return this.#readers.size > 0;
  }

  /** Clients that read here. */
  readerCount(): number {
    return this.#readers.size - (this.#relay !== null && this.#readers.has(this.#relay) ? 1 : 0);
  }

  /** Bytes of content so far. */
  get receivedBytes(): number {
    return this.#receivedBytes;
  }

  /**
   * Adds what came from the upstream. `outgrown`: with this piece the record has become a window. `completes`: it is the
   * last one, as the announced length says.
   */
  add(chunk: Buffer, completes: boolean): 'held' | 'outgrown' {
    const { budget, limitBytes } = this.#options;
    let result: 'held' | 'outgrown' = 'held';
    if (this.#state === 'whole' && this.#heldBytes + chunk.length <= limitBytes && budget.take(costOf(chunk))) {
      this.#hold(chunk, completes);
    } else {
      if (this.#state === 'whole') result = 'outgrown';
      this.#state = 'window';
      this.#outgrown = true;
      if (!budget.take(costOf(chunk))) budget.takeAnyway(costOf(chunk));
      this.#hold(chunk, completes);
    }
    this.#pumpAll();
    // After the last piece there is nothing to be held back.
    if (this.#state === 'window' && !completes && this.#heldCost >= this.#windowBytes()) this.#beFull();
    return result;
  }

  /** Gives the content to a caller whose answer has begun, from its first byte on. Only while the record is whole. */
  attach(caller: RecordingReader, as: Reader['as'] = 'client'): void {
    if (caller.gone) return;
    const reader: Reader = { caller, as, next: 0, state: 'reading', heldUpMs: 0, progressAtMs: performance.now() };
    this.#readers.set(caller, reader);
    if (as === 'relay') this.#relay = caller;
    this.#pump(reader);
  }

  /** Whoever has left is not read to any more. */
  detach(caller: RecordingReader): void {
    if (!this.#readers.delete(caller)) return;
    this.#trimBy(null);
    this.#options.onReaderGone();
  }

  /** Whether a response is the one whose beginning is held here. */
  isBeginningOf({ status, reason, fields, content }: SharedResponse): boolean {
    const { head } = this;
    if (status !== head.status || reason !== head.reason || content.length < this.#receivedBytes) return false;
    if (fields.length !== head.fields.length || fields.some((text, i) => text !== head.fields[i])) return false;
    const held = Buffer.concat(this.#chunks);
    return content.subarray(this.#receivedBytes - held.length, this.#receivedBytes).equals(held);
  }

  /** The whole response, at the upstream's end of message; null when it is not held whole. */
  response(trailers: readonly string[]): SharedResponse | null {
    if (this.#state !== 'whole') return null;
    const content = this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks);
    const { status, reason, fields, vary } = this.head;
    const response: SharedResponse = { status, reason, fields, content, trailers, vary };
    this.#share(response);
    return response;
  }

  /** Goes on with a response of which this is the beginning, to its end. */
  concludeWith(response: SharedResponse): void {
    if (this.#state === 'failed' || this.#state === 'concluded') return;
    // With memory short what is here anyway is read to its end, but no more of that than one response at a time.
    if (this.#outgrown && this.#options.budget.isOver) return this.fail();
    const { content, trailers } = response;
    this.#share(response);
    for (let from = this.#receivedBytes; from < content.length; from += PART_BYTES) {
      this.#hold(content.subarray(from, from + PART_BYTES), from + PART_BYTES >= content.length);
    }
    this.conclude(trailers);
  }

  /** What is held here becomes parts of the one content, so that it is in memory once. */
  #share(response: SharedResponse): void {
    const { budget } = this.#options;
    budget.giveBack(this.#heldBytes + this.#chunks.length * CHUNK_COST_BYTES);
    budget.holdAnyway(response, sizeOf(response));
    let from = this.#receivedBytes - this.#heldBytes;
    this.#chunks = this.#chunks.map(({ length }) => {
      const part = response.content.subarray(from, from + length);
      from += length;
      return part;
    });
    this.#shared = response;
  }

  /** Lets everybody come to the end. `leader`, whose response it is, may get another trailer than the others. */
  conclude(
    trailers: readonly string[],
    leader: RecordingReader | null = null,
    leadersTrailers: readonly string[] = trailers,
  ): void {
    if (this.#state === 'failed' || this.#state === 'concluded') return;
    this.#state = 'concluded';
    this.#trailers = trailers;
    this.#leader = leader;
    this.#leadersTrailers = leadersTrailers;
    this.#stopTimer();
    this.#pumpAll();
    this.#watchStalled();
  }

  /** The end will not come: whoever has begun is cut. */
  fail(): void {
    if (this.#state === 'failed' || this.#state === 'concluded') return;
    this.#state = 'failed';
    this.#stopTimer();
    const readers = [...this.#readers.keys()];
    this.#readers.clear();
    this.#trim();
    inSlices(eachOf(readers), (caller) => caller.cut());
  }

  #hold(chunk: Buffer, completes: boolean): void {
    this.#chunks.push(chunk);
    this.#heldBytes += chunk.length;
    this.#receivedBytes += chunk.length;
    this.#completed = completes;
    // A whole answer is to be seen only when it is settled: its head need not go out before.
    if (completes) for (const { caller } of this.#readers.values()) caller.hold();
  }

  #pumpAll(): void {
    if (this.#pumping !== 'not') {
      this.#pumping = 'again';
      return;
    }
    this.#pumping = 'once';
    inSlices(
      eachOf(this.#readers.values()),
      (reader) => this.#pump(reader),
      () => this.#pumped(),
    );
  }

  #pumped(): void {
    const again = this.#pumping === 'again';
    this.#pumping = 'not';
    this.#trim();
    if (again) this.#pumpAll();
  }

  #pump(reader: Reader): void {
    const { caller } = reader;
    const end = this.#first + this.#chunks.length;
    const last = this.#completed ? end - 1 : end;
    while (reader.state === 'reading' && reader.next < last) {
      const chunk = this.#chunks[reader.next - this.#first] as Buffer;
      reader.next += 1;
      reader.progressAtMs = performance.now();
      if (caller.write(chunk)) continue;
      reader.state = 'blocked';
      caller.whenDrained(() => this.#drained(reader));
    }
    if (reader.next < last) return;
    reader.heldUpMs = 0;
    if (this.#state !== 'concluded' || reader.state === 'blocked') return;
    this.#readers.delete(caller);
    const trailers = caller === this.#leader ? this.#leadersTrailers : this.#trailers;
    caller.end(this.#completed ? (this.#chunks.at(-1) as Buffer) : null, trailers);
  }

  #drained(reader: Reader): void {
    if (this.#readers.get(reader.caller) !== reader) return;
    reader.state = 'reading';
    this.#pump(reader);
    this.#trimBy(reader);
  }

  /** For each of a few at once; for each of many once a turn. */
  #trimBy(reader: Reader | null): void {
    if (this.#readers.size <= FEW_READERS) return this.#trim(reader);
    if (this.#trimming) return;
    this.#trimming = true;
    setImmediate(() => {
      this.#trimming = false;
      this.#trim(reader);
    });
  }

  /** Lets go of what nobody will read: of a window what the slowest has read, of a record that is over everything. */
  #trim(by: Reader | null = null): void {
    if (this.#state === 'whole') return;
    const end = this.#first + this.#chunks.length;
    let needed = this.#state === 'window' && this.#completed ? end - 1 : end;
    for (const { next } of this.#readers.values()) needed = Math.min(needed, next);
    const dropped = this.#chunks.splice(0, needed - this.#first);
    this.#first = needed;
    const bytes = dropped.reduce((sum, chunk) => sum + chunk.length, 0);
    this.#heldBytes -= bytes;
    this.#giveBack(bytes + dropped.length * CHUNK_COST_BYTES);
    if (this.#readers.size === 0 && this.#state !== 'window') this.#stopTimer();
    if (this.full && this.#heldCost < this.#windowBytes()) this.#haveRoom(by);
  }

  #giveBack(bytes: number): void {
    const { budget } = this.#options;
    if (this.#shared === null) return budget.giveBack(bytes);
    // Every part keeps the whole content.
    if (this.#chunks.length > 0) return;
    budget.letGo(this.#shared);
    this.#shared = null;
  }

  #beFull(): void {
    if (this.#fullSinceMs !== null || this.#readers.size === 0) return;
    this.#fullSinceMs = performance.now();
    this.#stopTimer();
    this.#watchSlowest();
  }

  /** Whoever is the slowest when its time is over has been so since the window is full: nothing is added to it. */
  #watchSlowest(): void {
    const slowest = this.#slowest();
    if (slowest === null || this.#fullSinceMs === null) return;
    // Alone it holds up nobody, and nobody joins a window: only one that reads nothing at all is cut.
    if (this.#readers.size === 1) {
      const idleMs = performance.now() - slowest.progressAtMs;
      if (idleMs >= IDLE_MS) return this.#cut(slowest);
      this.#timer = setTimeout(() => this.#watchSlowest(), IDLE_MS - idleMs);
      return;
    }
    if (slowest.as === 'relay') {
      this.#timer = setTimeout(() => this.#watchSlowest(), this.#options.stallMs);
      return;
    }
    const leftMs = this.#options.stallMs - slowest.heldUpMs - (performance.now() - this.#fullSinceMs);
    if (leftMs > 0) {
      this.#timer = setTimeout(() => this.#watchSlowest(), Math.max(LEAST_TIMER_MS, leftMs));
      return;
    }
    this.#cut(slowest);
    this.#watchSlowest();
  }

  /** `by`: whose reading has made it; null when somebody is gone. */
  #haveRoom(by: Reader | null): void {
    if (by !== null) by.heldUpMs += performance.now() - (this.#fullSinceMs as number);
    this.#fullSinceMs = null;
    this.#stopTimer();
    if (this.#state === 'window') this.#options.onRoom();
  }

  /** Readers of different pace need a window between them; one alone, or all when memory is short, only to be kept busy. */
  #windowBytes(): number {
    const { budget, limitBytes } = this.#options;
    return Math.min(limitBytes, this.#readers.size > 1 && !budget.isOver ? WINDOW_BYTES : ALONE_BYTES);
  }

  /** What is held, with what it costs to hold it. */
  get #heldCost(): number {
    return this.#heldBytes + this.#chunks.length * CHUNK_COST_BYTES;
  }

  #slowest(): Reader | null {
    let slowest: Reader | null = null;
    for (const reader of this.#readers.values()) {
      if (slowest === null || reader.next < slowest.next) slowest = reader;
    }
    return slowest;
  }

  /** A response that is over is not held for somebody who reads nothing of it. */
  #watchStalled(): void {
    if (this.#readers.size === 0) return;
    this.#timer = setTimeout(() => {
      const since = performance.now() - IDLE_MS;
      for (const reader of [...this.#readers.values()]) if (reader.progressAtMs <= since) this.#cut(reader);
      this.#watchStalled();
    }, IDLE_MS);
  }

  #cut({ caller }: Reader): void {
    this.#readers.delete(caller);
    caller.cut();
    this.#trim();
    this.#options.onReaderGone();
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}

function costOf(chunk: Buffer): number {
  return chunk.length + CHUNK_COST_BYTES;
}
