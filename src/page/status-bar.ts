/** The head of the page: what this is, and whether all is well. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useEffect } from 'preact/hooks';
import type { StreamEnd } from './gateway-client.js';
import type { Snapshot } from './snapshot.js';

export type Connection = StreamEnd | { readonly kind: 'connecting' } | { readonly kind: 'live' };

export type StatusBarProps = {
  readonly connection: Connection;
  readonly snapshot: Snapshot | null;
  /** Lets go of the token; null: there is none. */
  readonly onForget: (() => void) | null;
};

type State = { readonly mood: 'good' | 'bad' | 'idle'; readonly text: string };

const PARTS = [
  ['traffic', 'Traffic'],
  ['unknown', 'Unknown'],
  ['flights', 'Flights'],
  ['routes', 'Routes'],
  ['keys', 'Keys'],
  ['latency', 'Latency'],
  ['health', 'Health'],
  ['explain', 'Explain'],
  ['rules', 'Rules'],
] as const;

export function StatusBar({ connection, snapshot, onForget }: StatusBarProps): VNode {
  const { mood, text } = stateOf(connection, snapshot);
  useEffect(() => {
    document.title = mood === 'good' ? 'Oneflight' : `${text} · Oneflight`;
  }, [text]);
  return html`<header class="bar">
    <a class="skip" href="#content">Skip to the content</a>
    <h1>
      <img src="page.svg" alt="" width="24" height="24" />
      Oneflight <span class="version">${snapshot?.figures.version ?? ''}</span>
    </h1>
    <p class=${`state ${mood}`} role="status">${text}</p>
    <nav aria-label="Parts of the page">
      ${PARTS.map(([id, title]) => html`<a key=${id} href=${`#${id}`}>${title}</a>`)}
    </nav>
    ${onForget === null ? null : html`<button type="button" class="quiet" onClick=${onForget}>Forget token</button>`}
  </header>`;
}

function stateOf(connection: Connection, snapshot: Snapshot | null): State {
  if (connection.kind === 'lost') return { mood: 'bad', text: `Not connected: ${connection.reason}` };
  if (snapshot === null) return { mood: 'idle', text: 'Connecting' };
  const { ready, checks } = snapshot.health;
  if (ready) return { mood: 'good', text: 'Ready' };
  const { draining = 'ok' } = checks;
  if (draining !== 'ok') return { mood: 'bad', text: 'Draining' };
  const wrong = Object.keys(checks).filter((name) => checks[name] !== 'ok');
  return { mood: 'bad', text: `Not ready: ${wrong.join(', ')}` };
}
