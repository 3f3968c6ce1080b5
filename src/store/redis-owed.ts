/**
 * What is owed to the server: to give back what it may have given to a question whose answer was lost.
 *
 * Invariants: a debt is tried to be paid until the server has answered, or as long as there is room for it: the oldest
 * go first, and what they were to free waits for its lease to pass.
 */

/** The most debts. */
const MOST = 10_000;
const AT_ONCE = 100;
const RETRY_MS = 500;

export class Owed {
  /** By flight; each answers whether the server did. */
  readonly #debts = new Map<string, () => Promise<boolean>>();
  #paying = false;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;

  /** Takes a debt on and begins to pay. */
  owe(flight: string, pay: () => Promise<boolean>): void {
    if (this.#debts.size >= MOST) {
      for (const oldest of this.#debts.keys()) {
        this.#debts.delete(oldest);
        break;
      }
    }
    this.#debts.set(flight, pay);
    void this.payAll();
  }

  /** What the flight may have is wanted after all. */
  cancel(flight: string): void {
    this.#debts.delete(flight);
  }

  /** Pays what is owed; what cannot be paid now is tried again later. */
  async payAll(): Promise<void> {
    if (this.#paying) return;
    this.#paying = true;
    let paid = true;
    while (paid && this.#debts.size > 0 && !this.#closed) {
      const some = [...this.#debts].slice(0, AT_ONCE);
      const each = await Promise.all(some.map(([flight, pay]) => this.#pay(flight, pay)));
      paid = each.every(Boolean);
    }
    this.#paying = false;
    if (!paid && this.#timer === null && !this.#closed) {
      this.#timer = setTimeout(() => {
        this.#timer = null;
        void this.payAll();
      }, RETRY_MS).unref();
    }
  }

  close(): void {
    this.#closed = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  async #pay(flight: string, pay: () => Promise<boolean>): Promise<boolean> {
    if (!(await pay())) return false;
    if (this.#debts.get(flight) === pay) this.#debts.delete(flight);
    return true;
  }
}
