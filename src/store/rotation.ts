/**
 * Claims under more than one name: while secrets are rotated, gateways whose lists differ in order call one key differently.
 *
 * Invariants: who wins a claim under its own name looks at the other names before anything is done with it, so that of two
 * gateways that know each other's names the one that claims last sees the other; whoever sees a flight, a kept response
 * or an unknown outcome there gives its claim back and goes by that. When both claim before either looks, both see each
 * other: the one whose name is the larger text waits for a moment, for the other gives back at once. Should that take
 * longer, both give back; who joins what it saw asks again when that is withdrawn, and who does not join looks whether it
 * is still there, and claims anew if it is not: somebody leads.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type ClaimResult, type Lease, newFlightId } from '../core/claim.js';
import type { ClaimRequest, Looked } from './store.js';

export type RotationOptions = {
  readonly claim: (request: ClaimRequest) => Promise<ClaimResult>;
  /** As a claim that takes nothing. */
  readonly look: (request: ClaimRequest) => Promise<Looked>;
  /** Gives up a claim of which nothing was done. Never rejects. */
  readonly giveBack: (lease: Lease, election: number) => Promise<void>;
};

/** Age of a flight at which its leader must have looked: it goes on. */
const DECIDED_MS = 150;
const LOOK_AGAIN_MS = 5;

/** Age at which one that was given back has left, on a store that answers in time. */
const LEFT_MS = 2 * DECIDED_MS;
const TRIES = 3;

/** Claims the key under its first name, if it is free under all of them. */
export async function claimUnderAllNames(request: ClaimRequest, options: RotationOptions): Promise<ClaimResult> {
  let asked = request;
  for (let tries = 1; ; tries += 1) {
    const { result, gaveWayTo } = await claimOnce(asked, options);
    if (gaveWayTo === null || request.join || result.kind !== 'follower' || tries === TRIES) return result;
    const left = await whenDecided({ ...gaveWayTo, join: false }, result.flight.flight, options);
    if (left.kind !== 'free') return left;
    // What was given back is over; this is another flight.
    asked = { ...request, flight: newFlightId() };
  }
}

/** What has the key under whichever of its names; nothing is taken, and nobody joins. */
export async function lookUnderAllNames(request: ClaimRequest, look: RotationOptions['look']): Promise<Looked> {
  for (const name of [{}, ...request.others]) {
    const looked = await look({ ...request, ...name, join: false });
    if (looked.kind !== 'free') return looked;
  }
  return { kind: 'free' };
}

type Claimed = { readonly result: ClaimResult; readonly gaveWayTo: ClaimRequest | null };

async function claimOnce(request: ClaimRequest, options: RotationOptions): Promise<Claimed> {
  const claimed = await options.claim(request);
  if (claimed.kind !== 'leader') return { result: claimed, gaveWayTo: null };
  for (const other of request.others) {
    const named = { ...request, ...other };
    let looked: Looked;
    try {
      looked = await lookAt(named, request.key > other.key, options);
    } catch (error) {
      // Not waited for: the store is away, and will be told when it is back.
      void options.giveBack(claimed.lease, request.election);
      throw error;
    }
    if (looked.kind === 'free') continue;
    await options.giveBack(claimed.lease, request.election);
    // It cannot lead under a name that it only looked at.
    if (looked.kind !== 'leader') return { result: looked, gaveWayTo: named };
  }
  return { result: claimed, gaveWayTo: null };
}

/** What has the name when the flight that was seen there has gone on, or given way as well. */
async function whenDecided(named: ClaimRequest, flight: string, { look }: RotationOptions): Promise<Looked> {
  for (;;) {
    const looked = await look(named);
    if (looked.kind !== 'follower' || looked.flight.flight !== flight || looked.flight.ageMs >= LEFT_MS) return looked;
    await sleep(LOOK_AGAIN_MS);
  }
}

async function lookAt(named: ClaimRequest, stands: boolean, { look }: RotationOptions): Promise<Looked> {
  const first = await look({ ...named, join: false });
  if (first.kind !== 'follower') return first;
  let { ageMs } = first.flight;
  while (stands && ageMs < DECIDED_MS) {
    await sleep(LOOK_AGAIN_MS);
    const again = await look({ ...named, join: false });
    if (again.kind !== 'follower') return again;
    // A later flight was claimed when this claim stood already: it gives way.
    if (again.flight.flight !== first.flight.flight) return { kind: 'free' };
    ageMs = again.flight.ageMs;
  }
  return named.join ? look(named) : first;
}
