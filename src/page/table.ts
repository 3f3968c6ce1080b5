/**
 * A table that is a list of cards where there is no room for columns. Its roles are written out, since browsers forget them
 * of tables that are laid out in another way.
 */

import { html } from 'htm/preact';
import type { ComponentChildren, VNode } from 'preact';

export type Column<Row> = {
  readonly title: string;
  /** What the title means, for who does not know. */
  readonly hint?: string;
  readonly kind: 'text' | 'number' | 'action';
  readonly cell: (row: Row) => ComponentChildren;
};

export type TableProps<Row> = {
  /** For who does not see the heading above it. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  /** What stands there without rows. */
  readonly empty: string;
};

export function Table<Row>({ label, columns, rows, keyOf, empty }: TableProps<Row>): VNode {
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  return html`<table role="table" aria-label=${label}>
    <thead role="rowgroup">
      <tr role="row">
        ${columns.map(
          ({ title, hint, kind }) =>
            html`<th role="columnheader" scope="col" class=${kind} title=${hint}>
              ${kind === 'action' ? html`<span class="unseen">${title}</span>` : title}
            </th>`,
        )}
      </tr>
    </thead>
    <tbody role="rowgroup">
      ${rows.map(
        (row) =>
          html`<tr role="row" key=${keyOf(row)}>
            ${columns.map(
              ({ title, kind, cell }) => html`<td role="cell" class=${kind} data-title=${title}>${cell(row)}</td>`,
            )}
          </tr>`,
      )}
    </tbody>
  </table>`;
}
