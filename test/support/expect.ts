/** What tests of the gateway assert again and again, in the words of the contract. */

import type { Test } from 'tap';
import type { Answered } from './client.js';

/** `Cache-Status` of the one that was forwarded, and of those that got its response. */
export const LED = 'oneflight; fwd=miss; stored';
export const COLLAPSED = 'oneflight; fwd=miss; collapsed';
export const HIT = /^oneflight; hit; ttl=\d+$/;
export const BYPASSED = /^oneflight; fwd=bypass; detail=[\w-]+$/;

/** A wake-up that comes later than this was lost: rules of wake-up tests have leases and polls of many times as long. */
export const PROMPT_MS = 2_500;

const STATUS: Readonly<Record<string, readonly number[]>> = {
  'in-flight': [409, 429],
  'key-reused': [422],
  'response-not-kept': [409],
  'key-missing': [400],
  'key-malformed': [400],
  'content-too-large': [413],
  'wait-timeout': [504],
  'queue-full': [429],
  'not-shareable': [503],
  'no-route': [404],
  'upstream-unavailable': [503],
  'upstream-unreachable': [502],
  'upstream-timeout': [504],
  'outcome-unknown': [504, 409],
  'leader-failed': [503],
  'store-unavailable': [503],
  'bad-upstream-response': [502],
  'bad-request': [400, 408, 417, 431, 501],
  draining: [503],
  'loop-detected': [508],
  overloaded: [503],
};
const WITH_RETRY_AFTER: readonly string[] = [
  'queue-full',
  'in-flight',
  'not-shareable',
  'leader-failed',
  'upstream-unavailable',
  'store-unavailable',
  'draining',
  'overloaded',
];
const TYPE = 'urn:oneflight:problem:';

type Asserts = Pick<Test, 'equal' | 'match' | 'ok'>;

/** The problem's code; null for a response that the gateway did not make itself. */
export function problemOf(answer: Answered): string | null {
  if (!answer.header('content-type')?.startsWith('application/problem+json')) return null;
  const { type } = answer.json() as { type?: unknown };
  return typeof type === 'string' && type.startsWith(TYPE) ? type.slice(TYPE.length) : null;
}

/** The answer is this problem, complete as the contract says. `leaseSeconds` bounds `Retry-After`. */
export function isProblem(t: Asserts, answer: Answered, code: string, leaseSeconds = 30): void {
  t.equal(problemOf(answer), code, `${code}: type`);
  t.ok(STATUS[code]?.includes(answer.status), `${code}: status ${answer.status}`);
  t.match(answer.header('proxy-status'), /^oneflight(;|$)/, `${code}: Proxy-Status`);
  t.equal(answer.cut, false, `${code}: whole`);
  if (problemOf(answer) !== null) {
    t.equal((answer.json() as { status?: unknown }).status, answer.status, `${code}: status in the content`);
  }
  if (!WITH_RETRY_AFTER.includes(code)) return;
  const seconds = answer.header('retry-after') ?? '';
  t.match(seconds, /^\d+$/, `${code}: Retry-After`);
  t.ok(Number(seconds) >= 1 && Number(seconds) <= leaseSeconds, `${code}: Retry-After ${seconds} within the lease`);
}

/** How many answers have each `Cache-Status`; the time left of a hit is left out. */
export function tally(answers: readonly Answered[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { cacheStatus } of answers) {
    const word = (cacheStatus ?? 'none').replace(/ttl=\d+/, 'ttl');
    counts[word] = (counts[word] ?? 0) + 1;
  }
  return counts;
}

/** Every answer is whole, has this status, and all contents are equal to this one. */
export function allEqual(t: Asserts, answers: readonly Answered[], status: number, text: string): void {
  const others = answers.filter((answer) => answer.status !== status || answer.text !== text || answer.cut);
  const [other] = others;
  t.equal(others.length, 0, `${answers.length} answers with ${status} ${text.slice(0, 40)}`);
  if (other !== undefined)
    t.equal(`${other.status} ${other.cut ? 'cut ' : ''}${other.text.slice(0, 200)}`, `${status} ${text}`);
}

/** The longest time an answer took. */
export function slowestMs(answers: readonly Answered[]): number {
  return Math.max(...answers.map((answer) => answer.elapsedMs));
}
