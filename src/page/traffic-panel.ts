/** What happens now: the numbers of this second, and how they came to be. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { allTotals, type History, savedOf } from './history.js';
import { Panel } from './panel.js';
import { type Line, Plot } from './plot.js';
import type { Snapshot } from './snapshot.js';
import { countText, rateText, shareText } from './wording.js';

const CALLS: readonly Line[] = [
  { name: 'requests', value: ({ requests }) => requests, colour: 'blue', dash: [], fill: 'plain' },
  { name: 'upstream calls', value: ({ upstreamCalls }) => upstreamCalls, colour: 'amber', dash: [6, 3], fill: 'plain' },
  { name: 'calls saved', value: savedOf, colour: 'green', dash: [], fill: 'filled' },
];
const DUPLICATES: readonly Line[] = [
  { name: 'coalesced', value: ({ coalesced }) => coalesced, colour: 'green', dash: [], fill: 'plain' },
  { name: 'replayed', value: ({ replayed }) => replayed, colour: 'violet', dash: [6, 3], fill: 'plain' },
  { name: 'rejected', value: ({ rejected }) => rejected, colour: 'amber', dash: [2, 3], fill: 'plain' },
  { name: 'failed', value: ({ failed }) => failed, colour: 'red', dash: [8, 3, 2, 3], fill: 'plain' },
];

export type TrafficPanelProps = { readonly history: History; readonly snapshot: Snapshot };

export function TrafficPanel({ history, snapshot }: TrafficPanelProps): VNode {
  const { points } = history;
  const untilS = snapshot.atMs / 1_000;
  const { oneflight_workers: workers } = snapshot.figures.plain;
  const whose = workers === undefined ? 'this gateway' : `this gateway, ${countText(workers)} workers`;
  return html`<${Panel} id="traffic" title="Traffic" note=${`Of ${whose}, since its start. Plots: per second, last five minutes.`}>
    <${Tiles} history=${history} snapshot=${snapshot} />
    <div class="plots">
      <${Plot} label="Requests per second" lines=${CALLS} points=${points} untilS=${untilS} />
      <${Plot} label="Duplicates per second" lines=${DUPLICATES} points=${points} untilS=${untilS} />
    </div>
  <//>`;
}

type Tile = { readonly name: string; readonly value: string; readonly more: string };

function Tiles({ history, snapshot }: TrafficPanelProps): VNode {
  const totals = allTotals(snapshot.figures);
  const now = history.points.at(-1);
  const rate = (perSecond: number | undefined): string =>
    perSecond === undefined ? '–' : `${rateText(perSecond)} per second`;
  const saved = savedOf(totals);
  const { oneflight_requests_in_progress: underWay = 0 } = snapshot.figures.plain;
  const tiles: readonly Tile[] = [
    { name: 'Requests', value: countText(totals.requests), more: rate(now?.requests) },
    { name: 'Upstream calls', value: countText(totals.upstreamCalls), more: rate(now?.upstreamCalls) },
    {
      name: 'Calls saved',
      value: countText(saved),
      more: saved === 0 ? 'none yet' : `${shareText(saved, totals.requests)} of requests`,
    },
    { name: 'Coalesced', value: countText(totals.coalesced), more: rate(now?.coalesced) },
    { name: 'Replayed', value: countText(totals.replayed), more: rate(now?.replayed) },
    { name: 'Rejected', value: countText(totals.rejected), more: rate(now?.rejected) },
    { name: 'Failed', value: countText(totals.failed), more: rate(now?.failed) },
    { name: 'Under way', value: countText(underWay), more: 'requests, now' },
  ];
  return html`<dl class="tiles">
    ${tiles.map(
      ({ name, value, more }) =>
        html`<div key=${name} data-tile=${name}>
          <dt>${name}</dt>
          <dd><b>${value}</b><span>${more}</span></dd>
        </div>`,
    )}
  </dl>`;
}
