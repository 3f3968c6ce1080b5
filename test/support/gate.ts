/** Waiting in tests: for a gate that the test opens, or for a fact to become true, never for time to pass. */

/** Holds whoever waits at it until the test opens it. */
export class Gate {
  #open: () => void = () => {};
  readonly opened: Promise<void> = new Promise((resolve) => {
    this.#open = resolve;
  });

  open(): void {
    this.#open();
  }
}

/** Resolves after that many milliseconds: for things that take time by their nature, such as a slow upstream. */
export function delay(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Rejects with the sentence when the promise has not settled in time. */
export async function within<T>(ms: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Asks again and again until the answer is true; rejects with the sentence when it does not become so in time. */
export async function eventually(what: string, ask: () => boolean | Promise<boolean>, ms = 10_000): Promise<void> {
  const deadline = performance.now() + ms;
  while (!(await ask())) {
    if (performance.now() > deadline) throw new Error(`${what}: not within ${ms} ms`);
    await delay(20);
  }
}
