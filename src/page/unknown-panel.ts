/** The outcomes that nobody knows: each holds its key until an operator has said what became of it, or its time is over. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { FLIGHT_COLUMNS, keyOf, leaderCell, listNote } from './flights-panel.js';
import type { GatewayClient } from './gateway-client.js';
import { Panel } from './panel.js';
import { SettleDialog, type Settled } from './settle-dialog.js';
import type { ListedFlight, Listing } from './snapshot.js';
import { type Column, Table } from './table.js';
import { durationText, shortDigest } from './wording.js';

export type UnknownPanelProps = { readonly client: GatewayClient; readonly flights: Listing };

/** A question about a flight: another one with each click, even about the same. */
type Asked = { readonly flight: ListedFlight; readonly number: number };

export function UnknownPanel({ client, flights }: UnknownPanelProps): VNode {
  const [asked, setAsked] = useState<Asked | null>(null);
  const [told, setTold] = useState<Settled | null>(null);
  const rows = flights.kind === 'listed' ? flights.unknown : [];
  const columns: readonly Column<ListedFlight>[] = [
    ...FLIGHT_COLUMNS,
    {
      title: 'Held for',
      hint: 'Then the next request may run (unknownFor).',
      kind: 'number',
      cell: ({ leftMs }) => `another ${durationText(leftMs)}`,
    },
    { title: 'Leader', hint: 'The process that led it.', kind: 'text', cell: leaderCell },
    {
      title: 'Settle',
      kind: 'action',
      cell: (flight) =>
        html`<button
          type="button"
          aria-label=${`Settle ${flight.route} ${shortDigest(flight.key)}`}
          onClick=${() => setAsked((before) => ({ flight, number: (before?.number ?? 0) + 1 }))}
        >
          Settle…
        </button>`,
    },
  ];
  const onDone = (settled: Settled | null): void => {
    // A dialog tells of its end a moment after it; the next one may be open by then.
    setAsked((now) => (now === asked ? null : now));
    if (settled !== null) setTold(settled);
  };
  const empty = flights.kind === 'listed' ? 'Nothing is unknown.' : `The store cannot be asked: ${flights.error}`;
  return html`<${Panel} id="unknown" title="Unknown outcomes" note=${listNote(flights, 'unknown')}>
    <p role="status" class=${told?.kind === 'refused' ? 'fault' : 'told'}>${told?.text ?? ''}</p>
    <${Table} label="Unknown outcomes" columns=${columns} rows=${rows} keyOf=${keyOf} empty=${empty} />
    ${asked === null ? null : html`<${SettleDialog} key=${asked.number} client=${client} flight=${asked.flight} onDone=${onDone} />`}
  <//>`;
}
