/** What a key and a fingerprint see of a request. Nothing in it is ever changed, and nothing of it goes upstream. */

import type { Target } from './target.js';

export type RequestView = {
  readonly method: string;
  readonly target: Target;
  /** Host as the request names it: of the absolute form, else of `Host`. */
  readonly host: string;
  /** Flat list of field lines (`rawHeaders`), latin1. */
  readonly fields: readonly string[];
  /** Parameters of the path, as `matchRule` gave them. */
  readonly params: ReadonlyMap<string, string>;
  /** The whole content, empty when there is none; null only where neither key nor fingerprint reads it. */
  readonly content: Buffer | null;
};
