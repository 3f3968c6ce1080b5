/** What each route has done since the gateway began. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { savedOf, type Totals, totalsOf } from './history.js';
import { Panel } from './panel.js';
import type { Figures, RouteFigures } from './snapshot.js';
import { type Column, Table } from './table.js';
import { countText, shareText } from './wording.js';

type Row = { readonly route: string; readonly totals: Totals; readonly others: RouteFigures['others'] };

const count = (title: string, value: (totals: Totals) => number, hint?: string): Column<Row> => ({
  title,
  kind: 'number',
  cell: ({ totals }) => countText(value(totals)),
  ...(hint === undefined ? {} : { hint }),
});

const COLUMNS: readonly Column<Row>[] = [
  { title: 'Route', kind: 'text', cell: ({ route }) => route },
  count('Requests', ({ requests }) => requests),
  count('Calls', ({ upstreamCalls }) => upstreamCalls, 'Requests handed to an upstream.'),
  count('Coalesced', ({ coalesced }) => coalesced, "Followers that got their leader's response."),
  count('Replayed', ({ replayed }) => replayed, 'Answered from a kept response.'),
  count('Rejected', ({ rejected }) => rejected, 'Duplicates that were refused.'),
  count('Failed', ({ failed }) => failed, 'Problems of any other kind.'),
  {
    title: 'Saved',
    hint: 'Upstream calls that were not made, of all requests.',
    kind: 'number',
    cell: ({ totals }) => shareText(savedOf(totals), totals.requests),
  },
];

/** Metrics of a route that are shown where a gateway has them. */
const OTHERS: readonly { readonly metric: string; readonly title: string; readonly hint: string }[] = [
  {
    metric: 'oneflight_unprotected_requests_total',
    title: 'Unprotected',
    hint: 'Forwarded without the policy: no key, a store that is away.',
  },
  {
    metric: 'oneflight_observed_saved_calls_total',
    title: 'Would save',
    hint: 'Upstream calls that a route which only observes would not have made.',
  },
  {
    metric: 'oneflight_leases_lost_total',
    title: 'Leases lost',
    hint: 'Another leader may have run beside this one.',
  },
];

export function RoutesPanel({ figures }: { readonly figures: Figures }): VNode {
  const rows = figures.routes
    .map(({ route, outcomes, upstreamCalls, others }): Row => {
      return { route, totals: totalsOf(outcomes, upstreamCalls), others };
    })
    .filter(({ totals, others }) => totals.requests > 0 || OTHERS.some(({ metric }) => (others[metric] ?? 0) > 0));
  const others = OTHERS.filter(({ metric }) => rows.some((row) => (row.others[metric] ?? 0) > 0));
  const columns = [
    ...COLUMNS,
    ...others.map(({ metric, title, hint }): Column<Row> => {
      return { title, hint, kind: 'number', cell: (row) => countText(row.others[metric] ?? 0) };
    }),
  ];
  return html`<${Panel} id="routes" title="Routes" note="Of this gateway, since its start.">
    <${Table}
      label="Routes"
      columns=${columns}
      rows=${rows}
      keyOf=${({ route }: Row) => route}
      empty="No request has come yet."
    />
  <//>`;
}
