/** An explanation as text: what was met, what the key is made of, what becomes of the request. */

import type { Becomes, Standing } from '../explain/becoming.js';
import type { DigestExplained, Explanation, KeyExplained, PartExplained } from '../explain/explaining.js';

/** Lines of an explanation. */
export function explanationText(explanation: Explanation): string {
  const { method, target, path, host, key, becomes, store, notes } = explanation;
  const lines = [
    `${method} ${target}`,
    ...rows([
      ['path', path],
      ['host', host],
    ]),
    'rules',
    ...rows([
      ...explanation.passedOver.map(({ route, unmet }) => [route, `no: ${unmet.join('; ')}`]),
      metRow(explanation),
    ]),
    ...(key === null ? [] : ['key', ...keyRows(key)]),
    'now',
    ...rows([...(store === null ? [] : [['store', standingText(store)]]), ...becomesRows(becomes)]),
    ...notes.map((note) => `note: ${note}`),
  ];
  return `${lines.join('\n')}\n`;
}

function metRow({ route, policy, upstream }: Explanation): string[] {
  const goesTo = upstream === null ? 'goes nowhere' : `to upstream ${upstream}`;
  return route === null ? ['(none)', `no rule is met, ${goesTo}`] : [route, `yes: policy ${policy}, ${goesTo}`];
}

function keyRows({ scope, method, selecting, parts, digests }: KeyExplained): string[] {
  return rows([
    ['scope', scope],
    ['method', method ?? 'is not part of the key'],
    ['Range, If-*', selecting.length === 0 ? 'none in the key' : `in the key: ${selecting.join(', ')}`],
    ...parts.map((part) => [partName(part), partText(part)]),
    ...digests.flatMap(digestRows),
    ...(digests.length === 0 ? [['digest', 'none: the request has no key']] : []),
  ]);
}

function partName({ part, of }: PartExplained): string {
  return of === 'identity' ? `${part} (identity)` : part;
}

function partText({ state, value, why }: PartExplained): string {
  return [state, ...[value, why].filter((text) => text !== null)].join(': ');
}

const SECRETS = {
  current: ' (current secret)',
  other: ' (another secret of the list)',
  none: ' (no secret)',
} as const;

function digestRows({ secret, digest, fingerprint }: DigestExplained): string[][] {
  const row = ['digest', `${digest}${SECRETS[secret]}`];
  return fingerprint === null ? [row] : [row, ['fingerprint', `${fingerprint}${SECRETS[secret]}`]];
}

function becomesRows(becomes: Becomes): string[][] {
  if (becomes.kind === 'observed') {
    const { would } = becomes;
    const others = would.kind === 'claims' ? becomesRows(would) : [['would be', becomesText(would)]];
    return [['becomes', `${becomesText(becomes)}; if it did not:`], ...others];
  }
  if (becomes.kind !== 'claims') return [['becomes', becomesText(becomes)]];
  const { ifInFlight, ifKept, ifOther } = becomes;
  return [
    ['key is free', 'forwarded as leader'],
    ['in flight', becomesText(ifInFlight)],
    ...(ifKept === null ? [] : [['kept', becomesText(ifKept)]]),
    ...(ifOther === null ? [] : [['other request', becomesText(ifOther)]]),
  ];
}

function becomesText(becomes: Becomes): string {
  switch (becomes.kind) {
    case 'refused':
      return [`${becomes.status} ${becomes.code}`, ...(becomes.detail === null ? [] : [becomes.detail])].join(': ');
    case 'passed':
      return 'forwarded as it is';
    case 'observed':
      return 'forwarded as it is: the rule only observes';
    case 'bypassed':
      return `forwarded unprotected (${becomes.reason})`;
    case 'claims':
    case 'led':
      return 'forwarded as leader';
    case 'collapsed':
      return `waits for the response of its leader, up to ${duration(becomes.waitMs)}`;
    case 'queued':
      return `waits for its turn, up to ${duration(becomes.waitMs)}`;
    case 'hit':
      return `answered with the kept response (for ${duration(becomes.ttlMs)})`;
  }
}

function standingText(standing: Standing): string {
  switch (standing.kind) {
    case 'free':
      return 'the key is free';
    case 'in-flight':
      return `in flight since ${duration(standing.ageMs)}, lease left ${duration(standing.leaseLeftMs)}`;
    case 'kept':
      return `kept since ${duration(standing.ageMs)}, for another ${duration(standing.ttlMs)}`;
    case 'unknown':
      return `held by an outcome that nobody knows, for another ${duration(standing.ttlMs)}`;
    case 'other-fingerprint':
      return 'the key is taken by another request';
    case 'turns':
      return `${standing.taken} of ${standing.concurrency} turns taken, ${standing.waiting} waiting`;
    case 'unavailable':
      return `cannot be asked: ${standing.reason}`;
  }
}

const UNITS = [
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

function duration(ms: number): string {
  const [unit, size] = UNITS.find(([, size]) => ms >= size) ?? ['ms', 1];
  return `${Math.round((ms / size) * 10) / 10} ${unit}`;
}

/** Two columns, the first as wide as its longest text, within reason. */
function rows(all: readonly (readonly string[])[]): string[] {
  const width = Math.min(34, Math.max(...all.map(([name = '']) => name.length)));
  return all.map(([name = '', text = '']) => `  ${name.padEnd(width)}  ${text}`);
}
