/**
 * What was seen of one schedule: the upstream's log, each client's view, what was broken when, and what was left.
 *
 * Invariant: facts only, nothing from inside a gateway. Times are milliseconds of one monotonic clock, of the process in
 * which both the upstream and the clients are.
 */

import { createHash } from 'node:crypto';

/** One call at the upstream, from its head to its last byte or the end of its connection. */
export type Execution = {
  readonly route: string;
  readonly path: string;
  readonly body: string;
  /** Id of the client's request that was forwarded. */
  readonly request: string;
  readonly fence: number;
  readonly startMs: number;
  readonly endMs: number;
  /**
   * `abandoned`: the connection was ended from the gateway's side. `perhaps`: the answer was written whole just before the
   * connection was broken; whether it arrived nobody knows.
   */
  readonly how: 'answered' | 'perhaps' | 'cut' | 'hung-up' | 'reset' | 'abandoned';
  /** 0 unless an answer was written whole. */
  readonly status: number;
  /** Status and content, as `answerText` writes them; empty unless it was written whole. */
  readonly answer: string;
  /** The content that was written, of an answer that was cut too. No two calls of a key write the same. */
  readonly content: string;
  /** How much content the fields announced; null when they did not say. */
  readonly announcedBytes: number | null;
  /** How much of the content was written when. */
  readonly grew: readonly { readonly atMs: number; readonly bytes: number }[];
};

/** One request as its client saw it. */
export type View = {
  readonly route: string;
  readonly path: string;
  readonly body: string;
  readonly request: string;
  readonly gateway: number;
  /** Sent when everything was over and whole again. */
  readonly afterwards: boolean;
  readonly startMs: number;
  readonly endMs: number;
  /** `refused`: no connection. `hung`: neither an answer nor an end within the bound. */
  readonly how: 'answered' | 'cut' | 'left' | 'refused' | 'hung';
  readonly status: number;
  readonly answer: string;
  /** What came of an answer, also of one that did not end; empty of one that the gateway made itself. */
  readonly content: string;
  /** When the first of it came. */
  readonly firstMs: number | null;
  /** Code of an answer that the gateway made itself; null for others. */
  readonly problem: string | null;
  readonly cacheStatus: string;
  readonly replayed: boolean;
};

export type Trouble = {
  readonly what: string;
  /** Whose; `all`: every gateway's; `upstream`: no gateway is kept from the store, but calls may fail. */
  readonly gateway: number | 'all' | 'upstream';
  readonly fromMs: number;
  readonly toMs: number;
};

/** A key in Redis when every lease had passed. Of a flight's record also the route and the state, else empty. */
export type Leftover = {
  readonly name: string;
  readonly route: string;
  readonly state: string;
  readonly ttlMs: number;
};

export type Seen = {
  readonly executions: readonly Execution[];
  readonly views: readonly View[];
  readonly troubles: readonly Trouble[];
  /** When the store was emptied. */
  readonly flushesMs: readonly number[];
  /** When every gateway lost the connection that brings it pushes. */
  readonly deafMs: readonly number[];
  readonly leftovers: readonly Leftover[];
  /** What a gateway did that none should: it ended by itself, or logged an error. */
  readonly oddities: readonly string[];
};

/** Two answers are equal when these are: status, length and digest of the content. */
export function answerText(status: number, content: Buffer): string {
  return `${status} ${content.length} ${createHash('sha256').update(content).digest('base64url').slice(0, 16)}`;
}

/** Of a schedule in which nobody asked and nothing broke. */
export const NOTHING: Seen = {
  executions: [],
  views: [],
  troubles: [],
  flushesMs: [],
  deafMs: [],
  leftovers: [],
  oddities: [],
};
