/** The flights in progress, of all gateways that share the store. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { Panel } from './panel.js';
import type { Extent, ListedFlight, Listing } from './snapshot.js';
import { type Column, Table } from './table.js';
import { countText, durationText, shortDigest } from './wording.js';

/** What flights in progress and unknown outcomes have in common. */
export const FLIGHT_COLUMNS: readonly Column<ListedFlight>[] = [
  { title: 'Route', kind: 'text', cell: ({ route }) => route },
  {
    title: 'Key',
    hint: 'The digest of the key: no value of a request is in it.',
    kind: 'text',
    cell: ({ key }) => html`<code title=${key}>${shortDigest(key)}</code>`,
  },
  { title: 'Age', kind: 'number', cell: ({ ageMs }) => durationText(ageMs) },
];

const COLUMNS: readonly Column<ListedFlight>[] = [
  ...FLIGHT_COLUMNS,
  {
    title: 'Lease left',
    hint: 'It is renewed while the upstream works.',
    kind: 'number',
    cell: ({ leftMs }) => durationText(leftMs),
  },
  {
    title: 'Waiting',
    hint: 'Processes with followers; of a queue, requests that wait for their turn.',
    kind: 'number',
    cell: ({ waiting }) => countText(waiting),
  },
  { title: 'Leader', hint: 'The process that leads it.', kind: 'text', cell: leaderCell },
];

export function leaderCell({ leader }: ListedFlight): VNode | string {
  return leader === null ? '–' : html`<code title=${leader}>${shortDigest(leader)}</code>`;
}

const EXTENTS: Readonly<Record<Extent, (shown: string) => string>> = {
  all: (shown) => shown,
  oldest: (shown) => `more than are shown, of which these ${shown} are the oldest`,
  some: (shown) => `more than were looked at, of which ${shown} are shown`,
};

/** How a list is to be read. */
export function listNote(flights: Listing, which: 'inFlight' | 'unknown'): string {
  if (flights.kind === 'unavailable') return 'The store does not answer.';
  const count = EXTENTS[flights.extent[which]](countText(flights[which].length));
  const age = flights.agoMs > 2_000 ? `, as of ${durationText(flights.agoMs)} ago` : '';
  return `Over all gateways of the store: ${count}${age}.`;
}

export function FlightsPanel({ flights }: { readonly flights: Listing }): VNode {
  const rows = flights.kind === 'listed' ? flights.inFlight : [];
  const empty = flights.kind === 'listed' ? 'No flight is in progress.' : `The store cannot be asked: ${flights.error}`;
  return html`<${Panel} id="flights" title="Flights in progress" note=${listNote(flights, 'inFlight')}>
    <${Table} label="Flights in progress" columns=${COLUMNS} rows=${rows} keyOf=${keyOf} empty=${empty} />
  <//>`;
}

export function keyOf({ key, flight }: ListedFlight): string {
  return `${key} ${flight}`;
}
