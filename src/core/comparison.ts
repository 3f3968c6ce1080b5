/** Whether what a follower was given is what the upstream would have answered to itself. Pure: two responses go in. */

import { fieldLines } from './field-lines.js';
import type { SharedResponse } from './sharing.js';

export type ComparedHead = Pick<SharedResponse, 'status' | 'fields'>;

/** What of the heads differs: `status`, and those of the named fields whose lines do. */
export function headDifferences(given: ComparedHead, own: ComparedHead, names: readonly string[]): string[] {
  const differing = names.filter((name) => !isSameList(fieldLines(given.fields, name), fieldLines(own.fields, name)));
  return given.status === own.status ? differing : ['status', ...differing];
}

function isSameList(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((text, at) => text === others[at]);
}

/** Compares content as it comes with one that is here, so that nothing of it is held. */
export class ContentComparison {
  readonly #given: Buffer;
  #bytes = 0;
  #state: 'same' | 'differs' = 'same';

  constructor(given: Buffer) {
    this.#given = given;
  }

  /** Whether what has come so far is the beginning of the other. */
  add(chunk: Buffer): 'same' | 'differs' {
    const end = this.#bytes + chunk.length;
    if (!chunk.equals(this.#given.subarray(this.#bytes, end))) this.#state = 'differs';
    this.#bytes = end;
    return this.#state;
  }

  /** With the end of what came. */
  get differs(): boolean {
    return this.#state === 'differs' || this.#bytes !== this.#given.length;
  }
}
