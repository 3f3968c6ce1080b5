/**
 * How the page speaks with the admin listener that it came from.
 *
 * Invariants: addresses are relative, so that the page works below a path as well; the token is in no address, and kept
 * no longer than the tab is open.
 */

import { eventsOf } from './event-stream.js';
import type { Snapshot } from './snapshot.js';

export type Answer =
  | { readonly kind: 'ok'; readonly content: unknown }
  | { readonly kind: 'refused'; readonly status: number; readonly error: string }
  | { readonly kind: 'unreachable' };

/** Why a stream of snapshots is over. */
export type StreamEnd =
  | { readonly kind: 'token-needed' }
  /** What the gateway said, or that nothing is to be heard. */
  | { readonly kind: 'lost'; readonly reason: string };

const TOKEN = 'oneflight-token';
/** Snapshots come every second. */
const SILENCE_MS = 10_000;

export class GatewayClient {
  #token = sessionStorage.getItem(TOKEN);

  get hasToken(): boolean {
    return this.#token !== null;
  }

  useToken(token: string): void {
    this.#token = token;
    sessionStorage.setItem(TOKEN, token);
  }

  forgetToken(): void {
    this.#token = null;
    sessionStorage.removeItem(TOKEN);
  }

  get(path: string): Promise<Answer> {
    return this.#ask(path, { headers: this.#fields() });
  }

  post(path: string, content: object): Promise<Answer> {
    const headers = { ...this.#fields(), 'content-type': 'application/json' };
    return this.#ask(path, { method: 'POST', headers, body: JSON.stringify(content) });
  }

  /** Hands over snapshots until the stream ends. Rejects with nothing but the signal's reason. */
  async watch(onSnapshot: (snapshot: Snapshot) => void, signal: AbortSignal): Promise<StreamEnd> {
    const silence = new AbortController();
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    try {
      const response = await fetch('events', {
        headers: this.#fields(),
        signal: AbortSignal.any([signal, silence.signal]),
      });
      if (response.status === 401) return { kind: 'token-needed' };
      if (!response.ok || response.body === null) return { kind: 'lost', reason: await errorOf(response) };
      for await (const { name, data } of eventsOf(piecesOf(response.body))) {
        clearTimeout(timer);
        timer = setTimeout(() => silence.abort(), SILENCE_MS);
        if (name === 'stopped') return { kind: 'lost', reason: 'the gateway has stopped' };
        onSnapshot(JSON.parse(data) as Snapshot);
      }
      return { kind: 'lost', reason: 'the connection has ended' };
    } catch (error) {
      if (signal.aborted) throw error;
      return { kind: 'lost', reason: silence.signal.aborted ? 'nothing was heard' : 'the gateway cannot be reached' };
    } finally {
      clearTimeout(timer);
    }
  }

  #fields(): Record<string, string> {
    return this.#token === null ? {} : { authorization: `Bearer ${this.#token}` };
  }

  async #ask(path: string, init: RequestInit): Promise<Answer> {
    try {
      const response = await fetch(path, init);
      if (response.ok) return { kind: 'ok', content: await response.json() };
      return { kind: 'refused', status: response.status, error: await errorOf(response) };
    } catch {
      return { kind: 'unreachable' };
    }
  }
}

async function errorOf(response: Response): Promise<string> {
  const content = (await response.json().catch(() => ({}))) as { readonly error?: unknown };
  return typeof content.error === 'string' ? content.error : `the answer was ${response.status}`;
}

/** Not every browser iterates over a stream by itself. */
async function* piecesOf(body: ReadableStream<Uint8Array>): AsyncIterable<Uint8Array> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Who has heard enough lets go of the connection.
    void reader.cancel().catch(() => {});
  }
}
