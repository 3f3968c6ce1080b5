/** What of an upstream's answer is recorded for others. */

import { keptContent } from './keep-content.js';
import type { KeyedPolicy } from './rule.js';
import type { SharedResponse } from './sharing.js';

/** What a replay may repeat: not the cookies of the first answer, nor its date (draft-ietf-httpapi-idempotency-key-header). */
export function replayable(fields: readonly string[]): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    if (name !== 'set-cookie' && name !== 'date') out.push(fields[i] as string, fields[i + 1] as string);
  }
  return out;
}

/** What of a recorded response is given to others. */
export function kept(policy: KeyedPolicy, response: SharedResponse): SharedResponse {
  if (policy.kind !== 'replay' || policy.keepContent.kind === 'full') return response;
  return { ...response, ...keptContent(policy.keepContent, response.content, response.fields), trailers: [] };
}
