/**
 * The client's side of one request: what it asked, and the one answer it gets.
 *
 * Invariants: an answer is begun once, by whoever decides the outcome; an answer that cannot be finished is cut, never
 * ended cleanly; the report is made exactly once, when the response is over, whichever way.
 */

import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { KeyMaterial } from '../core/claim.js';
import { fieldLines } from '../core/field-lines.js';
import type { Likeness } from '../core/likeness.js';
import type { Outcome, ProblemCode, Role } from '../core/outcome.js';
import type { Rule } from '../core/rule.js';
import type { SharedResponse } from '../core/sharing.js';
import type { SpanContext } from '../core/trace-context.js';
import { cacheStatus } from '../http/cache-status.js';
import {
  ageSecondsOf,
  contentLengthOf,
  forwardedFields,
  hasNoContent,
  type Peer,
  withoutField,
} from '../http/fields.js';
import { type ProblemOptions, problemMessage } from '../http/problem.js';
import type { OtherName } from '../store/store.js';
import type { Upstream } from '../upstream/upstream.js';
import { flushAfterTurn } from './after-turn.js';
import { type ClientRequest, type ClientResponse, isStreamed } from './client-side.js';
import type { Generation } from './generation.js';
import { interimHead, isWritableReason, writableReason } from './message-head.js';
import { isRepeatable, prepare, prepared, sendWhole } from './prepared.js';
import type { RequestTrace } from './trace.js';
import { reset } from './tunnel.js';

const NOTHING = Buffer.alloc(0);
/**
 * Refusals that end the connection: what follows a request that can be read in several ways may be part of it, and what is
 * left of a large upload is not read to its end for an answer that is already clear.
 */
const ENDS_CONNECTION: ReadonlySet<ProblemCode> = new Set(['bad-request', 'content-too-large', 'draining']);

/** What was asked, for those who tell of it. */
export type AskedRequest = {
  readonly req: Pick<ClientRequest, 'httpVersion'>;
  readonly target: string;
  readonly fields: readonly string[];
  readonly peer: Peer;
  readonly rule: Rule | null;
  /** Content of its answer that was given to its connection, bytes. */
  readonly sentBytes: number;
};

/** What is known of a finished request: what logs and metrics read. */
export type Report = {
  readonly request: AskedRequest;
  readonly method: string;
  /** The rule's name, or `unmatched`. */
  readonly route: string;
  readonly outcome: Outcome;
  readonly status: number;
  readonly requestId: string;
  readonly durationMs: number;
  /** Time spent waiting for a leader or a turn; null for those who did not wait. */
  readonly waitedMs: number | null;
  readonly policy: string;
  /** Null: it was not traced. */
  readonly trace: RequestTrace | null;
};

/** What goes with a key's digest: what its contents are sealed with, and what other gateways may call it. */
export type KeyNames = {
  readonly material: KeyMaterial;
  readonly others: readonly OtherName[];
};

export class Caller {
  readonly req: ClientRequest;
  readonly requestId: string;
  readonly peer: Peer;
  readonly method: string;
  readonly target: string;
  /** The request's field lines as the upstream will know them: what rules, keys and `Vary` read. */
  readonly fields: readonly string[];
  /** Largest content that it may send. */
  readonly maxContentBytes: number;
  /** The protocols that it offers to switch to, where its connection can be handed over; null: an ordinary request. */
  readonly offer: string | null;
  /** Null until a rule matched, and for traffic of no rule. */
  rule: Rule | null = null;
  /** The whole content, where it was read for the key; null when it is still in the stream. */
  content: Buffer | null = null;
  /** What a request of the same key must equal to be its duplicate; empty: the key says enough. */
  fingerprint = '';
  /** What key health compares it by; null: it has no key, or was counted as another request than its flight's. */
  likeness: Likeness | null = null;
  /** The value of its key, byte text, where its rule asks the API about it; it goes nowhere else. */
  keyValue: string | null = null;
  /** Of its key, or of the variant that it came to. */
  names: KeyNames = { material: null, others: [] };
  role: Role = 'none';
  /** Null: it is not traced. */
  trace: RequestTrace | null = null;
  /** Monotonic time (ms) since when it waits for its turn, or for the end of a flight, over elections too. */
  waitingSinceMs: number | null = null;
  readonly #res: ClientResponse;
  readonly #startedMs = performance.now();
  #outcome: Outcome | null = null;
  #status = 0;
  #sentBytes = 0;
  #waitedMs: number | null = null;
  #onLeft: (() => void) | null = null;
  #onDrain: (() => void) | null = null;
  #onDone: (() => void) | null = null;
  #onContentBroken: (() => void) | null = null;
  #unflushed = false;
  #isOver = false;
  #generation: Generation | null = null;
  #upstream: Upstream | null = null;
  /** The connection speaks another protocol: the request is over when the connection is. */
  #switched = false;
  #endsConnection = false;
  readonly #onOver: (report: Report) => void;

  constructor(
    req: ClientRequest,
    res: ClientResponse,
    requestId: string,
    peer: Peer,
    offer: string | null,
    maxContentBytes: number,
    onOver: (report: Report) => void,
  ) {
    this.req = req;
    this.#res = res;
    this.requestId = requestId;
    this.peer = peer;
    this.offer = offer;
    this.maxContentBytes = maxContentBytes;
    this.method = req.method as string;
    this.target = req.url as string;
    this.fields = forwardedFields(req.rawHeaders, peer, requestId);
    this.#onOver = onOver;
    // The upstream's answer is passed on as it is; a field that the upstream did not send is not made up.
    res.sendDate = false;
    // Node answers an HTTP/1.0 request that names `TE: chunked` in chunks, which HTTP/1.0 does not have (RFC 9112 section 6.1).
    if (req.httpVersion === '1.0') res.useChunkedEncodingByDefault = false;
    res.once('close', () => this.#over());
  }

  /**
   * The connection has ended. The response says so itself only if it had its turn; the answers to pipelined requests
   * that were still queued would never hear of it.
   */
  connectionEnded(): void {
    this.#over();
  }

  /** There is room in the connection, and the response will not hear of it by itself. */
  connectionDrained(): void {
    this.#onDrain?.();
  }

  /** Whether the client is gone, or its answer complete: nothing more can be written. */
  get gone(): boolean {
    return this.#isOver || this.#res.destroyed;
  }

  /** Whether the answer has begun. */
  get begun(): boolean {
    return this.#outcome !== null;
  }

  /** Whether its answer is a refusal after which nothing more of its connection is read. */
  get endsConnection(): boolean {
    return this.#endsConnection;
  }

  /** Whether it shares its connection with others, each on a stream of its own. */
  get isStreamed(): boolean {
    return isStreamed(this.#res);
  }

  /** Whether its connection speaks another protocol now. */
  get switched(): boolean {
    return this.#switched;
  }

  /** The configuration that it arrived under, and keeps. */
  get generation(): Generation {
    if (this.#generation === null) throw new Error('the request has not been looked at');
    return this.#generation;
  }

  /** Content of its answer that was given to its connection, bytes; none of an upgraded one. */
  get sentBytes(): number {
    return this.#sentBytes;
  }

  /** Where it goes. */
  get upstream(): Upstream {
    if (this.#upstream === null) throw new Error('the request has no upstream');
    return this.#upstream;
  }

  /** It goes there, under that configuration; its upstream is there until it is over. */
  goesTo(upstream: Upstream, generation: Generation): void {
    this.#generation = generation;
    this.#upstream = upstream;
    if (!this.#isOver) upstream.hold();
  }

  /** The rule's name for logs and metrics. */
  get route(): string {
    return this.rule?.name ?? 'unmatched';
  }

  /** Whether the message announces content. */
  get announcesContent(): boolean {
    const { headers } = this.req;
    return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
  }

  /** The length that the message announces; 0 where it announces none. */
  get announcedBytes(): number {
    return Number(this.req.headers['content-length'] ?? 0);
  }

  /** Somebody else leads its flight. `leader`: that one's span, where it is known. */
  follows(leader: SpanContext | null): void {
    this.role = 'follower';
    this.trace?.linkTo(leader);
  }

  /** Its turn has come: it leads a flight of its own. */
  hasTurn(): void {
    this.#endWait();
    this.role = 'leader';
  }

  /** The outcome of one that leads and is answered. */
  led(stored: (Outcome & { kind: 'led' })['stored']): Outcome {
    return { kind: 'led', stored, came: this.#waitedMs === null ? 'at-once' : 'queued' };
  }

  /** One listener for the client's leaving before its answer is complete. */
  whenLeft(listener: () => void): void {
    this.#onLeft = listener;
  }

  /** One listener for content that will not come to its end, or that nobody wants any more. */
  whenContentBroken(listener: () => void): void {
    this.#onContentBroken = listener;
  }

  /** One listener for the end of its answer, however it ends: nothing of it lies in the client's connection any more. */
  whenOver(listener: () => void): void {
    this.#onDone = listener;
  }

  /** One listener for room in the client's connection after `write` answered false. */
  whenDrained(listener: () => void): void {
    if (this.#onDrain === null) this.#res.on('drain', () => process.nextTick(this.#drained));
    this.#onDrain = listener;
  }

  /**
   * In a turn of its own: Node tells of room when the answer to a pipelined request is written behind this one, and so from
   * inside that one's upstream exchange, where no other exchange can be resumed.
   */
  readonly #drained = (): void => this.#onDrain?.();

  /** Passes an interim response on (RFC 9110 section 15.2). HTTP/1.0 clients cannot have one. */
  interim(status: number, fields: readonly string[]): void {
    if (this.begun || this.gone || this.req.httpVersion === '1.0') return;
    if (isStreamed(this.#res)) return this.#res.interim(status, fields);
    const { socket } = this.#res;
    // A pipelined request whose turn has not come has no socket yet, and of hints nobody waits until they are taken: a
    // client that does not read would have them piled up here. They are optional, so it goes without.
    if (socket === null || socket.writableNeedDrain) return;
    socket.write(interimHead(status, STATUS_CODES[status] ?? '', fields), 'latin1');
  }

  /** Passes the upstream's 101 on, and gives the connection away. */
  switchProtocols(reason: string, fields: readonly string[]): Socket {
    const { socket } = this.req;
    this.#outcome = { kind: 'upgraded' };
    this.#status = 101;
    this.#switched = true;
    this.#res.detachSocket(socket);
    socket.write(interimHead(101, isWritableReason(reason) ? reason : '', fields), 'latin1');
    return socket;
  }

  /** Begins an answer whose content follows. The head goes out with the first content, or with the turn's end. */
  begin(status: number, reason: string, fields: readonly string[], outcome: Outcome): void {
    this.#begin(status, reason, fields, outcome);
    this.#unflushed = true;
    flushAfterTurn(this);
  }

  /** Sends a head whose content has not come in the same turn. */
  flush(): void {
    if (this.#unflushed && !this.gone) this.write(NOTHING);
  }

  /** Keeps a head that has not gone out back until the end: a whole message is to be seen only when it is settled. */
  hold(): void {
    this.#unflushed = false;
  }

  /** False when the client's connection is full; `whenDrained` tells when there is room. */
  write(chunk: Buffer): boolean {
    this.#unflushed = false;
    if (this.gone || this.#res.writableEnded) return true;
    this.#sentBytes += chunk.length;
    return this.#res.write(chunk);
  }

  /** Ends the answer. Trailers can only follow a chunked message. */
  end(lastChunk: Buffer | null, trailers: readonly string[]): void {
    this.#unflushed = false;
    if (this.gone || this.#res.writableEnded) return;
    if (trailers.length > 0 && this.#res.chunkedEncoding) {
      const pairs: [string, string][] = [];
      for (let i = 0; i + 1 < trailers.length; i += 2) pairs.push([trailers[i] as string, trailers[i + 1] as string]);
      this.#res.addTrailers(pairs);
    }
    if (lastChunk === null) return void this.#res.end();
    this.#sentBytes += lastChunk.length;
    this.#res.end(lastChunk);
  }

  /** Cuts an answer that cannot be finished, so that the client cannot take it for whole. */
  cut(): void {
    // A refusal is whole: there is nothing behind it to be cut.
    if (this.gone || this.#outcome?.kind === 'refused') return;
    this.#outcome = { kind: 'cut', role: this.role };
    // To HTTP/1.0, and to whatever else is spoken now, the end of the connection may be the end of the message.
    if (this.req.httpVersion === '1.0' || this.#switched) reset(this.req.socket);
    this.#res.destroy();
  }

  /**
   * Gives a recorded response. `ageMs` is null for a flight's own followers; `added` are field lines of this copy, in
   * place of those of the same names: an upstream, or an operator, may have sent them as well. `write` writes the content,
   * where there is any, and ends the answer.
   */
  give(
    response: SharedResponse,
    ageMs: number | null,
    outcome: Outcome,
    added: readonly string[] = [],
    write: () => void = () => this.end(response.content, response.trailers),
  ): void {
    if (this.gone || this.begun) return;
    const isPlain = ageMs === null && added.length === 0 && outcome.kind === 'collapsed';
    if (isPlain && this.#giveAgain(response, outcome)) return;
    let fields = copyFields(response, ageMs, added);
    const bodiless = hasNoContent(this.method, response.status);
    if (!bodiless && response.trailers.length === 0 && contentLengthOf(fields) === null) {
      fields = [...withoutField(fields, 'trailer'), 'Content-Length', String(response.content.length)];
    }
    this.#begin(response.status, response.reason, fields, outcome);
    if (isPlain && isRepeatable(this.req, this.#res, response)) prepare(this.#res, response);
    if (bodiless) this.end(null, response.trailers);
    else write();
  }

  /** Gives the bytes that the one before it was given, where they would be the same. */
  #giveAgain(response: SharedResponse, outcome: Outcome): boolean {
    if (prepared?.response !== response || !isRepeatable(this.req, this.#res, response)) return false;
    this.#outcome = outcome;
    this.#status = response.status;
    if (this.role === 'follower') this.#endWait();
    this.#sentBytes = response.content.length;
    sendWhole(this.#res, prepared);
    return true;
  }

  /** Answers with one of the gateway's own messages. */
  refuse(code: ProblemCode, options: ProblemOptions = {}): void {
    if (this.gone) return;
    if (this.begun) return this.cut();
    const message = problemMessage(code, options);
    const outcome: Outcome = { kind: 'refused', code, role: this.role };
    if (ENDS_CONNECTION.has(code)) {
      this.#endsConnection = true;
      message.fields.push('Connection', 'close');
    }
    this.#begin(message.status, STATUS_CODES[message.status] as string, message.fields, outcome);
    this.end(this.method === 'HEAD' ? null : message.content, []);
  }

  /** Its content breaks off, or in something that cannot be read, or is more than is taken: it is told so, and whoever forwards it that it has left. */
  contentUnreadable(options: ProblemOptions, code: 'bad-request' | 'content-too-large' = 'bad-request'): void {
    this.refuse(code, options);
    this.#onContentBroken?.();
    this.#left();
  }

  #left(): void {
    const onLeft = this.#onLeft;
    this.#onLeft = null;
    onLeft?.();
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const finished = this.#switched || this.#res.writableFinished;
    if (!finished && this.#outcome?.kind !== 'cut') this.#outcome = { kind: 'left', role: this.role };
    // What is left of an upload that nobody read would block the connection's next request.
    if (this.offer === null && !this.req.readableEnded) {
      this.#onContentBroken?.();
      this.req.resume();
    }
    this.#onOver(this.#report());
    this.#onDone?.();
    if (!finished) this.#left();
    this.#upstream?.letGo();
  }

  #begin(status: number, reason: string, fields: readonly string[], outcome: Outcome): void {
    if (this.gone || this.begun) return;
    const line = this.rule === null || this.rule.policy.kind === 'pass' ? null : cacheStatus(outcome);
    let all = line === null ? (fields as string[]) : [...fields, 'Cache-Status', line];
    if (!this.#willBeChunked(status, all) && fieldLines(all, 'trailer').length > 0) all = withoutField(all, 'trailer');
    // Node refuses what it cannot write (a control byte in a field, say); the answer has not begun then.
    this.#res.writeHead(status, writableReason(status, reason), all as string[]);
    this.#outcome = outcome;
    this.#status = status;
    if (this.role === 'follower' || this.role === 'queued') this.#endWait();
  }

  #endWait(): void {
    if (this.waitingSinceMs !== null) this.#waitedMs ??= performance.now() - this.waitingSinceMs;
  }

  /** Only a chunked message has trailers; Node refuses to announce them in any other. */
  #willBeChunked(status: number, fields: readonly string[]): boolean {
    return this.req.httpVersion !== '1.0' && !hasNoContent(this.method, status) && contentLengthOf(fields) === null;
  }

  #report(): Report {
    return {
      request: this,
      method: this.method,
      route: this.route,
      policy: this.rule?.policy.kind ?? 'pass',
      outcome: this.#outcome ?? { kind: 'left', role: this.role },
      status: this.#status,
      requestId: this.requestId,
      durationMs: performance.now() - this.#startedMs,
      waitedMs: this.#waitedMs,
      trace: this.trace,
    };
  }
}

/** The field lines of a copy of a recorded response; arguments as of `give`. */
function copyFields(response: SharedResponse, ageMs: number | null, added: readonly string[]): string[] {
  let fields: string[] = [...response.fields];
  for (let i = 0; i < added.length; i += 2) fields = withoutField(fields, (added[i] as string).toLowerCase());
  fields.push(...added);
  if (ageMs === null) return fields;
  const age = ageSecondsOf(fields) + Math.floor(ageMs / 1000);
  return [...withoutField(fields, 'age'), 'Age', String(age)];
}
