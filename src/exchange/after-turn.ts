/**
 * Heads that go out with the turn's end: most have gone with their content by then. One timer for all.
 */

/** Whoever has a head that waits for its content. */
type Flushed = { flush(): void };

let unflushed: Flushed[] = [];

/** Has it flushed when the turn of the event loop is over. */
export function flushAfterTurn(one: Flushed): void {
  if (unflushed.push(one) > 1) return;
  setImmediate(() => {
    const all = unflushed;
    unflushed = [];
    for (const each of all) each.flush();
  });
}
