/** The metrics of the store: how long it took to answer, and what it did not answer. */

import { Counter, type Registry } from 'prom-client';
import { type Store, StoreUnavailable } from '../store/store.js';
import { Timings } from './timings.js';

const BUCKETS_S = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.2, 0.3];

/** Every question that is timed. */
const OPERATIONS = [
  'claim',
  'look',
  'renew',
  'complete',
  'release',
  'relay',
  'enter',
  'settle',
  'standing',
  'taken',
  'purge',
  'ping',
] as const;

export class StoreMetrics {
  readonly #timings: Timings;
  readonly #errors: Counter<'operation'>;

  constructor(registry: Registry) {
    this.#timings = new Timings(registry, 'store_seconds', 'Time the store took to answer.', 'operation', BUCKETS_S);
    this.#errors = new Counter({
      name: 'oneflight_store_errors_total',
      help: 'Questions the store did not answer.',
      labelNames: ['operation'],
      registers: [registry],
    });
    // An increase can only be seen of a counter that was there before.
    for (const operation of OPERATIONS) this.#errors.inc({ operation }, 0);
  }

  /** The same store, measured. Waiting for a settlement or a turn is not a question to the store and is not timed. */
  watch(store: Store): Store {
    const timed = <T>(operation: (typeof OPERATIONS)[number], ask: () => Promise<T>): Promise<T> => {
      const askedAtMs = performance.now();
      return ask().then(
        (answer) => {
          this.#timings.observe(operation, performance.now() - askedAtMs);
          return answer;
        },
        (error) => {
          this.#timings.observe(operation, performance.now() - askedAtMs);
          if (error instanceof StoreUnavailable) this.#errors.inc({ operation });
          throw error;
        },
      );
    };
    return {
      claim: (request) => timed('claim', () => store.claim(request)),
      look: (request) => timed('look', () => store.look(request)),
      renew: (lease) => timed('renew', () => store.renew(lease)),
      complete: (lease, settlement, keepMs) => timed('complete', () => store.complete(lease, settlement, keepMs)),
      release: (lease, options) => timed('release', () => store.release(lease, options)),
      watch: (lease, holder) => store.watch(lease, holder),
      unwatch: (lease) => store.unwatch(lease),
      settled: (flight, options) => store.settled(flight, options),
      relay: (lease, piece) => timed('relay', () => store.relay(lease, piece)),
      relayOn: (lease, piece, dropBefore) => timed('relay', () => store.relayOn(lease, piece, dropBefore)),
      relayed: (flight, reader, options) => store.relayed(flight, reader, options),
      queue: {
        enter: (request) => timed('enter', () => store.queue.enter(request)),
        turn: (place, options) => store.queue.turn(place, options),
        renew: (lease) => timed('renew', () => store.queue.renew(lease)),
        complete: (lease, settlement, keepMs) =>
          timed('complete', () => store.queue.complete(lease, settlement, keepMs)),
        release: (lease, options) => timed('release', () => store.queue.release(lease, options)),
        watch: (lease, holder) => store.queue.watch(lease, holder),
        unwatch: (lease) => store.queue.unwatch(lease),
      },
      settle: (key, as, flight) => timed('settle', () => store.settle(key, as, flight)),
      settleUnknown: (key, flight, as, material) =>
        timed('settle', () => store.settleUnknown(key, flight, as, material)),
      standing: (key, flight) => timed('standing', () => store.standing(key, flight)),
      taken: (options) => timed('taken', () => store.taken(options)),
      purge: (key) => timed('purge', () => store.purge(key)),
      purgeRoute: (route) => timed('purge', () => store.purgeRoute(route)),
      ping: () => timed('ping', () => store.ping()),
      open: () => store.open(),
      close: () => store.close(),
    };
  }
}
