/**
 * The workers: started together, replaced one by one when they end, and ended together.
 *
 * Invariants: there are never more than were asked for; who ends unasked is replaced, after a pause that grows while they
 * die young; once they are to end nobody is replaced.
 */

import type { Logger } from 'pino';
import { Pauses } from './pauses.js';
import type { Ended, Worker } from './worker.js';

export type CrewOptions = {
  readonly count: number;
  /** Starts one; numbers are from 1. */
  readonly start: (number: number) => Worker;
  readonly onEnded: (worker: Worker, how: 'asked' | 'unasked') => void;
  readonly log: Logger;
};

type Post = {
  readonly number: number;
  readonly pauses: Pauses;
  /** Null between two of them. */
  worker: Worker | null;
  timer: NodeJS.Timeout | null;
};

export class Crew {
  readonly #options: CrewOptions;
  readonly #posts: readonly Post[];
  #ending = false;

  constructor(options: CrewOptions) {
    this.#options = options;
    this.#posts = Array.from({ length: options.count }, (_, index) => ({
      number: index + 1,
      pauses: new Pauses(),
      worker: null,
      timer: null,
    }));
  }

  get count(): number {
    return this.#posts.length;
  }

  get ending(): boolean {
    return this.#ending;
  }

  /** Those that run now. */
  get workers(): Worker[] {
    return this.#posts.flatMap(({ worker }) => worker ?? []);
  }

  /** Starts them all, and answers where they listen. Rejects with why one of them cannot. */
  async start(): Promise<string> {
    for (const post of this.#posts) this.#fill(post);
    const [url] = await Promise.all(this.workers.map(({ listening }) => listening));
    return url as string;
  }

  /** Has all of them end what is in progress. Who has not ended in time is killed; answers how many were. */
  async drain(withinMs: number): Promise<number> {
    this.#end();
    const left = this.workers;
    for (const worker of left) worker.order({ kind: 'drain' });
    let killed = 0;
    const timer = setTimeout(() => {
      killed = this.workers.length;
      this.kill();
    }, withinMs);
    await Promise.all(left.map(({ ended }) => ended));
    clearTimeout(timer);
    return killed;
  }

  /** Ends all of them at once. */
  kill(): void {
    this.#end();
    for (const worker of this.workers) worker.kill();
  }

  #end(): void {
    this.#ending = true;
    for (const { timer } of this.#posts) if (timer !== null) clearTimeout(timer);
  }

  #fill(post: Post): void {
    const worker = this.#options.start(post.number);
    post.worker = worker;
    post.timer = null;
    this.#options.log.info({ worker: worker.number, workerPid: worker.pid }, 'worker started');
    void worker.ended.then((ended) => this.#onEnded(post, worker, ended));
  }

  #onEnded(post: Post, worker: Worker, { code, signal }: Ended): void {
    const { log, onEnded } = this.#options;
    post.worker = null;
    onEnded(worker, this.#ending ? 'asked' : 'unasked');
    if (this.#ending) return;
    const pauseMs = post.pauses.after(performance.now() - worker.startedAtMs);
    const how = { worker: worker.number, workerPid: worker.pid, code, signal, pauseMs };
    log.warn(how, 'worker ended: another one takes its place');
    post.timer = setTimeout(() => this.#fill(post), pauseMs);
  }
}
