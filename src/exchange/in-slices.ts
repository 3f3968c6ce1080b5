/** How long one slice may hold up everybody else. */
const SLICE_MS = 2;
/** The clock is looked at after so many. */
const LOOK_EVERY = 8;

/**
 * Does something for each of many, now as far as a few milliseconds go, and for the rest in later turns of the event
 * loop: ten thousand followers are released without a stall for everybody else. `next` answers null at the end.
 */
export function inSlices<T>(next: () => T | null, act: (one: T) => void, done: () => void = () => {}): void {
  const until = performance.now() + SLICE_MS;
  for (let i = 1; ; i += 1) {
    const one = next();
    if (one === null) return done();
    act(one);
    if (i % LOOK_EVERY === 0 && performance.now() >= until) break;
  }
  setImmediate(() => inSlices(next, act, done));
}

/** Gives one after the other of a collection, as it is when each is asked for. */
export function eachOf<T>(all: Iterable<T>): () => T | null {
  const iterator = all[Symbol.iterator]();
  return () => {
    const { done, value } = iterator.next();
    return done ? null : value;
  };
}
