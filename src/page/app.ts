/** The page as a whole: it keeps the stream of snapshots open, and gives each to the parts. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useEffect, useMemo, useReducer, useState } from 'preact/hooks';
import { ExplainPanel } from './explain-panel.js';
import { FlightsPanel } from './flights-panel.js';
import type { GatewayClient } from './gateway-client.js';
import { HealthPanel } from './health-panel.js';
import { History } from './history.js';
import { KeyHealthPanel } from './key-health-panel.js';
import { LatencyPanel } from './latency-panel.js';
import { RoutesPanel } from './routes-panel.js';
import { RulesPanel } from './rules-panel.js';
import type { Snapshot } from './snapshot.js';
import { type Connection, StatusBar } from './status-bar.js';
import { TokenForm } from './token-form.js';
import { TrafficPanel } from './traffic-panel.js';
import { UnknownPanel } from './unknown-panel.js';

/** Pauses before the gateway is asked again, the last one for ever. */
const PAUSES_MS = [500, 1_000, 2_000, 5_000];
/** A tab that nobody looks at asks for nothing after so long. */
const HIDDEN_MS = 60_000;

export function App({ client }: { readonly client: GatewayClient }): VNode {
  const history = useMemo(() => new History(), []);
  const [snapshot, setSnapshot] = useState<Snapshot | null>(null);
  const [connection, setConnection] = useState<Connection>({ kind: 'connecting' });
  // Another attempt begins with another number.
  const [attempt, again] = useReducer<number, void>((count) => count + 1, 0);
  const awake = useAwake();
  useEffect(() => {
    if (awake === 'asleep') return;
    const leaving = new AbortController();
    const onSnapshot = (next: Snapshot): void => {
      history.add(next);
      setSnapshot(next);
      setConnection({ kind: 'live' });
    };
    void stayConnected(client, onSnapshot, setConnection, leaving.signal);
    return () => leaving.abort();
  }, [client, attempt, awake]);

  if (connection.kind === 'token-needed') {
    const onToken = (token: string): void => {
      client.useToken(token);
      setConnection({ kind: 'connecting' });
      again();
    };
    return html`<${TokenForm} was=${client.hasToken ? 'wrong' : 'none'} onToken=${onToken} />`;
  }
  const onForget = client.hasToken
    ? (): void => {
        client.forgetToken();
        location.reload();
      }
    : null;
  return html`<${StatusBar} connection=${connection} snapshot=${snapshot} onForget=${onForget} />
    ${
      snapshot === null
        ? html`<main><p class="empty">Waiting for the gateway…</p></main>`
        : html`<${Parts} client=${client} history=${history} snapshot=${snapshot} />`
    }`;
}

type PartsProps = { readonly client: GatewayClient; readonly history: History; readonly snapshot: Snapshot };

function Parts({ client, history, snapshot }: PartsProps): VNode {
  return html`<main id="content" tabindex="-1">
    <${TrafficPanel} history=${history} snapshot=${snapshot} />
    <${UnknownPanel} client=${client} flights=${snapshot.flights} />
    <${FlightsPanel} flights=${snapshot.flights} />
    <${RoutesPanel} figures=${snapshot.figures} />
    <${KeyHealthPanel} figures=${snapshot.figures} />
    <div class="columns">
      <${LatencyPanel} history=${history} figures=${snapshot.figures} />
      <${HealthPanel} history=${history} snapshot=${snapshot} />
    </div>
    <${ExplainPanel} client=${client} />
    <${RulesPanel} client=${client} config=${snapshot.health.config} />
  </main>`;
}

/** Watches again whenever the stream ends, until the signal, or until a token is needed. */
async function stayConnected(
  client: GatewayClient,
  onSnapshot: (snapshot: Snapshot) => void,
  tell: (connection: Connection) => void,
  signal: AbortSignal,
): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    const heard = (snapshot: Snapshot): void => {
      failures = 0;
      onSnapshot(snapshot);
    };
    const end = await client.watch(heard, signal).catch(() => null);
    if (end === null || signal.aborted) return;
    tell(end);
    if (end.kind === 'token-needed') return;
    const pauseMs = PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)];
    failures += 1;
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/** Whether somebody may be looking: a tab that has been hidden for a while is asleep. */
function useAwake(): 'awake' | 'asleep' {
  const [state, setState] = useState<'awake' | 'asleep'>('awake');
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const onChange = (): void => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(setState, HIDDEN_MS, 'asleep');
      else setState('awake');
    };
    document.addEventListener('visibilitychange', onChange);
    return () => document.removeEventListener('visibilitychange', onChange);
  }, []);
  return state;
}
