/**
 * Whether a response may be given to anybody but the client that caused it, decided at its status and fields.
 *
 * Pure: no I/O and no clock. Until the decision is made no follower gets a byte.
 */

/** A whole response as followers and later duplicates get it. Field lines are a flat list: name, value, name, value … */
export type SharedResponse = {
  readonly status: number;
  readonly reason: string;
  /** Field lines in the upstream's order and spelling, latin1, without the connection-specific ones. */
  readonly fields: readonly string[];
  readonly content: Buffer;
  /** Trailer field lines, flat. */
  readonly trailers: readonly string[];
  /** What `Vary` named (lower case, sorted) and the digest of the leader's values of those request fields. */
  readonly vary: { readonly names: readonly string[]; readonly digest: string };
};
