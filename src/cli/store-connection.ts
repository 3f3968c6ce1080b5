/** What is found in a store when somebody connects to it only to look. */

import type { Config } from '../config/config.js';
import { DONE, FAILED } from './exit-code.js';

type Seen = {
  readonly server: string;
  readonly shape: string;
  readonly guaranteed: string;
  /** What could not be looked at; null: nothing. */
  readonly unseen: string | null;
  readonly warnings: readonly ({ readonly message: string } & Readonly<Record<string, unknown>>)[];
};

export type Connection =
  | { readonly kind: 'in-process' }
  | { readonly kind: 'unreachable'; readonly reasons: readonly string[] }
  | ({ readonly kind: 'good' } & Seen)
  /** Reached, and of no use. */
  | ({ readonly kind: 'bad'; readonly error: string } & Seen);

/** Connects, looks as a gateway does at its start, and leaves. */
export async function connectionOf(config: Config['store']): Promise<Connection> {
  // It is the whole gateway.
  const { checkStore } = await import('../app.js');
  const checked = await checkStore(config);
  if (checked === null) return { kind: 'in-process' };
  if (checked.kind === 'unreachable') return checked;
  const { fields, warnings, error } = checked.audit;
  const { server, shape, guaranteed, unseen = null } = fields;
  const told = warnings.map(({ message, fields: more }) => ({ ...more, message }));
  const seen = { server, shape, guaranteed, unseen, warnings: told };
  return error === null ? { kind: 'good', ...seen } : { kind: 'bad', error, ...seen };
}

export function exitCodeOf({ kind }: Connection): number {
  return kind === 'bad' || kind === 'unreachable' ? FAILED : DONE;
}
