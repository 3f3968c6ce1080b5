/** What others could read in the store. */

import { isSafe, type Rule } from '../core/rule.js';
import type { Config } from './config.js';
import type { Doubt } from './fault.js';

/** Responses that rules keep in a Redis without a secret. */
export function storeDoubts({ store, rules }: Config): Doubt[] {
  const keeping = rules.find(keepsResponses);
  if (store.kind !== 'redis' || store.secrets.length > 0 || keeping === undefined) return [];
  const message =
    `without a secret whoever can read this Redis reads the responses that routes keep (${keeping.name}), and can try out ` +
    'what its keys were made of: set store.secret';
  return [{ code: 'unsealed-store', path: ['store', 'secret'], message }];
}

function keepsResponses({ policy, match }: Rule): boolean {
  if (policy.kind === 'replay') return true;
  if (policy.kind !== 'coalesce') return false;
  const isSafeOnly = match.methods.length > 0 && match.methods.every(isSafe);
  return policy.keep.kind === 'fixed' ? policy.keep.keepMs > 0 : !isSafeOnly;
}
