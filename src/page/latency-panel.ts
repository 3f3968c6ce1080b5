/** How long things take: percentiles of the last minute, from the gateway's histograms. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { type History, WINDOW_S } from './history.js';
import { Panel } from './panel.js';
import { quantileOf, total } from './quantile.js';
import type { Figures, Histogram } from './snapshot.js';
import { type Column, Table } from './table.js';
import { countText, quantileText } from './wording.js';

type Row = { readonly name: string; readonly route: string; readonly recent: Histogram };

/** What is shown first, and by which name. Others are shown by the name of the metric. */
const NAMES: Readonly<Record<string, string>> = {
  oneflight_follower_wait_seconds: 'Follower wait',
  oneflight_upstream_latency_seconds: 'Upstream',
  oneflight_queue_wait_seconds: 'Wait for a turn',
  oneflight_request_duration_seconds: 'Whole request',
  oneflight_observed_wait_seconds: 'Wait, only observed',
};

const SHARES = [0.5, 0.9, 0.99] as const;

const COLUMNS: readonly Column<Row>[] = [
  { title: 'Time', kind: 'text', cell: ({ name }) => nameOf(name) },
  { title: 'Route', kind: 'text', cell: ({ route }) => route },
  ...SHARES.map((share): Column<Row> => {
    return {
      title: `p${share * 100}`,
      hint: `${share * 100} % took no longer`,
      kind: 'number',
      cell: ({ recent }) => quantileText(quantileOf(recent, share)),
    };
  }),
  { title: 'Count', kind: 'number', cell: ({ recent }) => countText(total(recent)) },
];

export type LatencyPanelProps = { readonly history: History; readonly figures: Figures };

export function LatencyPanel({ history, figures }: LatencyPanelProps): VNode {
  const seconds = Math.round(Math.min(history.windowS, WINDOW_S));
  const note = seconds === 0 ? 'Percentiles of the last minute.' : `Percentiles of the last ${seconds} s.`;
  return html`<${Panel} id="latency" title="Latency" note=${note}>
    <${Table}
      label="Latency"
      columns=${COLUMNS}
      rows=${rowsOf(history, figures)}
      keyOf=${({ name, route }: Row) => `${name} ${route}`}
      empty="Nothing was timed in this while."
    />
  <//>`;
}

/** Those with something in the window: for each metric all routes together, then each of several. */
function rowsOf(history: History, { routes }: Figures): Row[] {
  const names = [...new Set([...Object.keys(NAMES), ...routes.flatMap(({ times }) => Object.keys(times))])];
  return names.flatMap((name) => {
    const of = (route: string | null): Histogram | null => history.recent((figures) => timesOf(figures, name, route));
    const own = routes
      .map(({ route }): Row | null => {
        const recent = of(route);
        return recent === null || total(recent) === 0 ? null : { name, route, recent };
      })
      .filter((row) => row !== null);
    const all = own.length > 1 ? of(null) : null;
    return all === null ? own : [{ name, route: 'all routes', recent: all }, ...own];
  });
}

function timesOf({ routes }: Figures, name: string, only: string | null): ReadonlyMap<string, Histogram> {
  const found = new Map<string, Histogram>();
  for (const { route, times } of routes) {
    const histogram = times[name];
    if (histogram !== undefined && (only === null || only === route)) found.set(route, histogram);
  }
  return found;
}

function nameOf(metric: string): string {
  return NAMES[metric] ?? metric.replace(/^oneflight_|_seconds$/g, '').replaceAll('_', ' ');
}
