/** What several workers say of their readiness, as the word of one gateway. */

import type { Readiness } from '../server/admin.js';

/** What one worker answered, or why it did not. */
export type Said<T> = { readonly worker: number; readonly said: T | Error };

/** Ready when each of so many workers is, and what their parent looks at itself. */
export function readinessOf(
  count: number,
  all: readonly Said<Readiness>[],
  { checks: own, config }: Pick<Readiness, 'checks' | 'config'>,
): Readiness {
  const answered = all.filter(({ said }) => !(said instanceof Error));
  const checks = new Map([
    ...Object.entries(own),
    ['workers', answered.length === count ? 'ok' : `${answered.length} of ${count} answer`] as const,
  ]);
  for (const { worker, said } of answered) {
    for (const [name, result] of Object.entries((said as Readiness).checks)) {
      // Of what the parent looks at itself, such as whether the gateway drains, it has the word.
      if (name in own) continue;
      const told = checks.get(name) ?? 'ok';
      if (result === 'ok') checks.set(name, told);
      else checks.set(name, `${told === 'ok' ? '' : `${told}; `}worker ${worker}: ${result}`);
    }
  }
  return { ready: [...checks.values()].every((result) => result === 'ok'), checks: Object.fromEntries(checks), config };
}
