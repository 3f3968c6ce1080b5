/** The answer of `POST /explain`, read aloud. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { type Column, Table } from './table.js';
import { durationText } from './wording.js';

type Part = {
  readonly part: string;
  readonly of: 'key' | 'identity';
  readonly state: string;
  readonly value: string | null;
  readonly why: string | null;
};

/** What becomes of the request: which members there are depends on the kind. */
type Becomes = {
  readonly kind: string;
  readonly status?: number;
  readonly code?: string;
  readonly detail?: string | null;
  readonly reason?: string;
  readonly waitMs?: number;
  readonly ttlMs?: number;
  readonly ifInFlight?: Becomes;
  readonly ifKept?: Becomes | null;
  readonly ifOther?: Becomes | null;
  readonly would?: Becomes;
};

/** What the store says of the key. */
type Standing = {
  readonly kind: string;
  readonly ageMs?: number;
  readonly leaseLeftMs?: number;
  readonly ttlMs?: number;
  readonly taken?: number;
  readonly concurrency?: number;
  readonly waiting?: number;
  readonly reason?: string;
};

export type Explained = {
  readonly method: string;
  readonly path: string;
  readonly passedOver: readonly { readonly route: string; readonly unmet: readonly string[] }[];
  readonly route: string | null;
  readonly policy: string | null;
  readonly upstream: string | null;
  readonly key: {
    readonly scope: string;
    readonly parts: readonly Part[];
    readonly digests: readonly { readonly digest: string }[];
  } | null;
  readonly store: Standing | null;
  readonly becomes: Becomes;
  readonly notes: readonly string[];
};

const COLUMNS: readonly Column<Part>[] = [
  { title: 'Part', kind: 'text', cell: ({ part }) => html`<code>${part}</code>` },
  { title: 'Of', kind: 'text', cell: ({ of }) => of },
  { title: 'State', kind: 'text', cell: ({ state }) => state },
  { title: 'Value', kind: 'text', cell: ({ value, why }) => value ?? why ?? '–' },
];

export function Explanation({ explained }: { readonly explained: Explained }): VNode {
  const { method, path, route, policy, upstream, key, store, becomes, notes } = explained;
  return html`<dl class="explained">
      <dt>Rule</dt>
      <dd>${route === null ? 'none' : html`<b>${route}</b> (${policy})`}${upstream === null ? '' : `, upstream ${upstream}`}</dd>
      <dt>Path</dt>
      <dd><code>${method} ${path}</code></dd>
      <dt>Becomes</dt>
      <dd>${becomesText(becomes)}</dd>
      ${store === null ? null : html`<dt>Store</dt><dd>${standingText(store)}</dd>`}
      ${(key?.digests ?? []).map(({ digest }) => html`<dt>Key</dt><dd class="digest"><code>${digest}</code></dd>`)}
      ${notes.map((note) => html`<dt>Note</dt><dd>${note}</dd>`)}
    </dl>
    ${
      key === null
        ? null
        : html`<${Table}
            label="Parts of the key"
            columns=${COLUMNS}
            rows=${key.parts}
            keyOf=${({ of, part }: Part) => `${of} ${part}`}
            empty="The key has no parts."
          />`
    }
    <${PassedOver} rules=${explained.passedOver} />`;
}

function PassedOver({ rules }: { readonly rules: Explained['passedOver'] }): VNode | null {
  if (rules.length === 0) return null;
  return html`<details>
    <summary>Rules that were passed over: ${rules.length}</summary>
    <ul class="passed-over">
      ${rules.map(({ route, unmet }) => html`<li key=${route}><b>${route}</b>: ${unmet.join('; ')}</li>`)}
    </ul>
  </details>`;
}

function becomesText(becomes: Becomes): string {
  const { status, code, detail, reason, waitMs = 0, ttlMs = 0 } = becomes;
  switch (becomes.kind) {
    case 'refused':
      return `refused: ${status} ${code}${detail ? ` (${detail})` : ''}`;
    case 'passed':
      return 'forwarded, without a key';
    case 'bypassed':
      return `forwarded unprotected: ${reason}`;
    case 'led':
      return 'forwarded as leader';
    case 'collapsed':
      return `waits up to ${durationText(waitMs)} for the response of the flight`;
    case 'queued':
      return `waits up to ${durationText(waitMs)} for its turn`;
    case 'hit':
      return `answered with the kept response, which is kept for another ${durationText(ttlMs)}`;
    case 'claims':
      return claimsText(becomes);
    case 'observed':
      return becomes.would === undefined
        ? 'forwarded as it is: the rule only observes'
        : `forwarded as it is: the rule only observes. If it did not: ${becomesText(becomes.would)}`;
    default:
      return becomes.kind;
  }
}

/** The store was not asked: what becomes of it depends on who has the key. */
function claimsText({ ifInFlight, ifKept, ifOther }: Becomes): string {
  const cases = [
    ['in flight', ifInFlight],
    ['kept', ifKept],
    ['taken by another request', ifOther],
  ] as const;
  const told = cases.flatMap(([when, what]) => (what == null ? [] : [`${when}: ${becomesText(what)}`]));
  return ['key free: forwarded as leader', ...told].join('; ');
}

function standingText({ kind, ...standing }: Standing): string {
  const { ageMs = 0, leaseLeftMs = 0, ttlMs = 0, taken, concurrency, waiting, reason } = standing;
  switch (kind) {
    case 'free':
      return 'the key is free';
    case 'in-flight':
      return `in flight for ${durationText(ageMs)}, lease left ${durationText(leaseLeftMs)}`;
    case 'kept':
      return `a response is kept, for another ${durationText(ttlMs)}`;
    case 'unknown':
      return `an unknown outcome holds the key, for another ${durationText(ttlMs)}`;
    case 'other-fingerprint':
      return 'another request has the key';
    case 'turns':
      return `${taken} of ${concurrency} turns are taken, ${waiting} wait`;
    case 'unavailable':
      return `does not answer: ${reason}`;
    default:
      return kind;
  }
}
