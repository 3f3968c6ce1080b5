/** Bounds of what travels to Redis and from there. */

/** How long a result waits for waiters that missed its push. */
export const GRACE_MS = 10_000;
/** The largest frame that travels inside a push, and inside the answer to a claim. */
export const INLINE_BYTES = 16 * 1024;
/** The slowest transfer that a large frame is given time for. */
export const BYTES_PER_MS = 8 * 1024;

/** The server takes whole milliseconds only; what is kept is not kept longer than was asked for. */
export function wholeMs(ms: number): number {
  return Math.max(0, Math.floor(ms));
}
