/** A flight and a response that nobody has: what the policies are asked about in the place of real ones. */

import type { FlightRef } from '../core/claim.js';
import type { SharedResponse } from '../core/sharing.js';

export const SOMEBODY: FlightRef = { key: '', flight: '', leaseLeftMs: 0, ageMs: 0, election: 0, material: null };
export const ANY_RESPONSE: SharedResponse = {
  status: 200,
  reason: '',
  fields: [],
  content: Buffer.alloc(0),
  trailers: [],
  vary: { names: [], digest: '' },
};
