/**
 * One worker, as its parent has it.
 *
 * Invariants: it has ended when its process is gone and everything that it had said was heard; a question that it does not
 * answer is a rejection, and never a wait without an end.
 */

import type { Worker as ClusterWorker } from 'node:cluster';
import type { Duplex } from 'node:stream';
import type { Figures } from '../observe/metrics.js';
import { type Asked, type Order, STORE_FD, type Word } from './messages.js';

export type Ended = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

type Waiting = { readonly resolve: (value: unknown) => void; readonly reject: (error: Error) => void };

export class Worker {
  /** From 1; whoever takes its place has the same. */
  readonly number: number;
  readonly startedAtMs = performance.now();
  /** Where it listens; rejects when it ends before, with why. */
  readonly listening: Promise<string>;
  readonly ended: Promise<Ended>;
  readonly #worker: ClusterWorker;
  readonly #waiting = new Map<number, Waiting>();
  readonly #onFigures: (figures: Figures) => void;
  #lastId = 0;
  /** Orders for when it hears them; null: it does. */
  #early: Order[] | null = [];
  #onListening: Waiting = { resolve: () => {}, reject: () => {} };

  constructor(number: number, worker: ClusterWorker, onFigures: (figures: Figures) => void) {
    this.number = number;
    this.#worker = worker;
    this.#onFigures = onFigures;
    this.listening = new Promise<string>((resolve, reject) => {
      this.#onListening = { resolve: (url) => resolve(String(url)), reject };
    });
    // Of one that takes another's place nobody waits for it.
    this.listening.catch(() => {});
    worker.on('message', (word: Word) => this.#onWord(word));
    const gone = new Promise<Ended>((resolve) => {
      worker.once('exit', (code: number | null, signal: NodeJS.Signals | null) => resolve({ code, signal }));
    });
    const silent = new Promise<void>((resolve) => {
      worker.once('disconnect', resolve);
    });
    // A way that breaks is a worker that ends; one that the system did not start never began.
    const unborn = new Promise<Ended>((resolve) => {
      worker.on('error', () => {
        if (worker.process.pid === undefined) resolve({ code: null, signal: null });
      });
    });
    this.ended = Promise.race([Promise.all([gone, silent]).then(([ended]) => ended), unborn]).then((ended) => {
      this.#onEnded(ended);
      return ended;
    });
  }

  get pid(): number {
    return this.#worker.process.pid ?? 0;
  }

  /** The parent's end of its channel to the store; null where it has none. */
  get storeStream(): Duplex | null {
    return (this.#worker.process.stdio[STORE_FD] as Duplex | null | undefined) ?? null;
  }

  order(order: Order): void {
    if (this.#early !== null) this.#early.push(order);
    else if (this.#worker.isConnected()) this.#worker.send(order, () => {});
  }

  /** Rejects when there is no answer in time. */
  ask<T>(asked: Asked, timeoutMs: number): Promise<T> {
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise<T>((resolve, reject) => {
      const over = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(id);
      };
      const refuse = (error: Error): void => {
        over();
        reject(error);
      };
      const timer = setTimeout(() => refuse(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
      const resolveWith = (value: unknown): void => {
        over();
        resolve(value as T);
      };
      this.#waiting.set(id, { resolve: resolveWith, reject: refuse });
      this.order({ kind: 'ask', id, asked });
    });
  }

  kill(): void {
    this.#worker.process.kill('SIGKILL');
  }

  #onWord(word: Word): void {
    switch (word.kind) {
      case 'here':
        return this.#onHere();
      case 'listening':
        return this.#onListening.resolve(word.url);
      case 'failed':
        return this.#onListening.reject(new Error(word.reason));
      case 'answer':
        return this.#waiting.get(word.id)?.resolve(word.value);
      case 'refused':
        return this.#waiting.get(word.id)?.reject(new Error(word.reason));
      case 'figures':
        return this.#onFigures(word.figures);
    }
  }

  #onHere(): void {
    const early = this.#early ?? [];
    this.#early = null;
    for (const order of early) this.order(order);
  }

  #onEnded({ code, signal }: Ended): void {
    const reason = new Error(`worker ${this.number} has ended (${signal ?? code})`);
    this.#onListening.reject(reason);
    for (const { reject } of [...this.#waiting.values()]) reject(reason);
  }
}
