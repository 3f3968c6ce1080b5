/** What several workers say, as the word of one gateway. */

import type { Readiness } from '../server/admin.js';

/** What one worker answered, or why it did not. */
export type Said<T> = { readonly worker: number; readonly said: T | Error };

/** What became of a reload; in a worker, or in all of them. */
export type Reloaded =
  | { readonly kind: 'reloaded'; readonly changed: readonly string[]; readonly needsRestart: readonly string[] }
  | { readonly kind: 'refused'; readonly errors: readonly string[] }
  | { readonly kind: 'unchanged' };

/** Ready when each of so many workers is, and what is looked at only once. */
export function readinessOf(count: number, all: readonly Said<Readiness>[], own: Readiness['checks']): Readiness {
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
  return { ready: [...checks.values()].every((result) => result === 'ok'), checks: Object.fromEntries(checks) };
}

/** A reload is done when every worker has done it: one that has not serves by other rules. */
export function reloadedBy(all: readonly Said<Reloaded | undefined>[]): Reloaded {
  const errors: string[] = [];
  const changed = new Set<string>();
  const needsRestart = new Set<string>();
  let done = false;
  for (const { worker, said } of all) {
    if (said instanceof Error) errors.push(`worker ${worker}: ${said.message}`);
    else if (said?.kind === 'refused') for (const error of said.errors) errors.push(`worker ${worker}: ${error}`);
    else if (said?.kind === 'reloaded') {
      done = true;
      for (const name of said.changed) changed.add(name);
      for (const name of said.needsRestart) needsRestart.add(name);
    }
  }
  if (errors.length > 0) return { kind: 'refused', errors };
  return done ? { kind: 'reloaded', changed: [...changed], needsRestart: [...needsRestart] } : { kind: 'unchanged' };
}
