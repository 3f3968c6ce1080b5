/** A part of the page with a heading, which is its name. */

import { html } from 'htm/preact';
import type { ComponentChildren, VNode } from 'preact';

export type PanelProps = {
  readonly id: string;
  readonly title: string;
  /** What of it is to be known, beside the heading. */
  readonly note?: ComponentChildren;
  readonly children?: ComponentChildren;
};

export function Panel({ id, title, note, children }: PanelProps): VNode {
  return html`<section class="panel" id=${id} aria-labelledby=${`${id}-title`}>
    <header>
      <h2 id=${`${id}-title`}>${title}</h2>
      ${note === undefined ? null : html`<p class="note">${note}</p>`}
    </header>
    ${children}
  </section>`;
}
