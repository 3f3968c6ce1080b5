/** Whether the keys of the routes are the right ones: names of parts and counts, no value of a request. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { Panel } from './panel.js';
import type { Figures, RouteFigures } from './snapshot.js';
import { type Column, Table } from './table.js';
import { countText } from './wording.js';

const MET = 'oneflight_flights_with_duplicates_total';

/** What is counted of keys: a metric each. */
const COUNTED: readonly { readonly metric: string; readonly title: string; readonly hint: string }[] = [
  {
    metric: MET,
    title: 'Flights with duplicates',
    hint: 'Flights that at least one other request had the key of.',
  },
  {
    metric: 'oneflight_keys_too_coarse_total',
    title: 'Too coarse',
    hint: 'Other requests than the one whose key they had, by what differed first.',
  },
  {
    metric: 'oneflight_keys_too_fine_total',
    title: 'Too fine',
    hint: 'Equal requests that had other keys within the lease, by the part that differed first.',
  },
  {
    metric: 'oneflight_key_health_forgotten_total',
    title: 'Forgotten',
    hint: 'Requests that were forgotten for want of room before equal ones could come: findings may be missing.',
  },
  {
    metric: 'oneflight_verified_responses_total',
    title: 'Verified',
    hint: 'Shared responses that were compared with what the upstream answers, by result.',
  },
];

const COLUMNS: readonly Column<RouteFigures>[] = [
  { title: 'Route', kind: 'text', cell: ({ route }) => route },
  ...COUNTED.map(({ metric, title, hint }): Column<RouteFigures> => {
    return { title, hint, kind: 'number', cell: (figures) => cellOf(figures, metric) };
  }),
];

export function KeyHealthPanel({ figures }: { readonly figures: Figures }): VNode {
  const rows = figures.routes.filter(({ others }) => COUNTED.some(({ metric }) => (others[metric] ?? 0) > 0));
  const note =
    'Of this gateway, since its start: a key that is too coarse mixes requests up, one that is too fine protects nothing.';
  return html`<${Panel} id="keys" title="Key health" note=${note}>
    <${Table}
      label="Key health"
      columns=${COLUMNS}
      rows=${rows}
      keyOf=${({ route }: RouteFigures) => route}
      empty="No request has had a duplicate, and no key looks too coarse or too fine."
    />
  <//>`;
}

/** The count, and what it is made of where that says which part of the key to look at. */
function cellOf({ others, kinds }: RouteFigures, metric: string): VNode | string {
  const count = countText(others[metric] ?? 0);
  const made = Object.entries(kinds[metric] ?? {}).sort(([, a], [, b]) => b - a);
  if (metric === MET || made.length === 0) return count;
  return html`${count} <span class="more">(${made.map(([kind, some]) => `${kind}: ${countText(some)}`).join('; ')})</span>`;
}
