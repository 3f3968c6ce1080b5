/** What the gateway needs, and how it is: its store, its upstreams, its files, itself. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import type { History } from './history.js';
import { Panel } from './panel.js';
import { quantileOf } from './quantile.js';
import type { Figures, Snapshot, UpstreamFigures } from './snapshot.js';
import { bytesText, countText, quantileText } from './wording.js';

export type HealthPanelProps = { readonly history: History; readonly snapshot: Snapshot };

type Fact = {
  readonly name: string;
  readonly mood: 'good' | 'bad' | 'plain';
  readonly text: string;
  readonly more: string;
};

export function HealthPanel({ history, snapshot }: HealthPanelProps): VNode {
  const { ready, checks, config } = snapshot.health;
  const facts = [
    ...Object.entries(checks).map(([name, result]) => checkFact(name, result, history, snapshot)),
    ...snapshot.figures.upstreams.flatMap(addressFacts),
    ...(config === null ? [] : [configFact(config)]),
    ...ownFacts(snapshot.figures),
  ];
  return html`<${Panel} id="health" title="Health" note=${ready ? 'Ready for requests.' : 'Not ready for requests.'}>
    <ul class="facts">
      ${facts.map(
        ({ name, mood, text, more }) =>
          html`<li key=${name} data-fact=${name}>
            <span class="name">${name}</span>
            <span class=${`state ${mood}`}>${text}</span>
            <span class="more">${more}</span>
          </li>`,
      )}
    </ul>
  <//>`;
}

function checkFact(name: string, result: string, history: History, { figures, flights }: Snapshot): Fact {
  // The store is asked every second, what readiness looks at every three.
  const isDown = name === 'store' && flights.kind === 'unavailable';
  const isGood = result === 'ok' && !isDown;
  if (name === 'draining')
    return { name: 'Draining', mood: isGood ? 'good' : 'bad', text: isGood ? 'no' : result, more: '' };
  const text = isGood ? 'ok' : isDown && result === 'ok' ? flights.error : result;
  return { name: sentenceCase(name), mood: isGood ? 'good' : 'bad', text, more: moreOf(name, history, figures) };
}

function moreOf(name: string, history: History, figures: Figures): string {
  if (name === 'store') {
    const recent = history.recent(({ storeTimes }) => new Map(storeTimes === null ? [] : [['', storeTimes]]));
    const of = (share: number): string => quantileText(recent === null ? null : quantileOf(recent, share));
    return `p50 ${of(0.5)}, p99 ${of(0.99)}; ${countText(figures.storeErrors)} not answered`;
  }
  const upstream = figures.upstreams.find((one) => name === `upstream ${one.upstream}`);
  if (upstream === undefined) return '';
  const { others, addresses } = upstream;
  const pending = addresses.reduce((sum, one) => sum + one.pending, 0);
  const {
    oneflight_upstream_breaker_open: open = 0,
    oneflight_upstream_retries_total: retries = 0,
    oneflight_upstream_waiting_requests: waiting = 0,
  } = others;
  const breaker = open > 0 ? '; breaker open' : '';
  return `${countText(pending)} in progress, ${countText(waiting)} waiting; ${countText(retries)} retries${breaker}`;
}

/** Of an upstream with one address its own line says it all. */
function addressFacts({ upstream, addresses }: UpstreamFigures): Fact[] {
  if (addresses.length < 2) return [];
  return addresses.map(({ address, isUsable, pending }) => ({
    name: `${upstream} ${address}`,
    mood: isUsable ? 'good' : 'bad',
    text: isUsable ? 'usable' : 'left out',
    more: `${countText(pending)} in progress`,
  }));
}

function configFact({ errors, needsRestart, goodAt }: NonNullable<Snapshot['health']['config']>): Fact {
  const name = 'Configuration';
  const more = `read ${new Date(goodAt).toLocaleString()}`;
  if (errors.length > 0) return { name, mood: 'bad', text: `not taken: ${errors.join('; ')}`, more };
  if (needsRestart.length > 0)
    return { name, mood: 'plain', text: `after a restart: ${needsRestart.join(', ')}`, more };
  return { name, mood: 'good', text: 'in use', more };
}

function ownFacts({ plain }: Figures): Fact[] {
  const { process_resident_memory_bytes: memory, oneflight_connections: connections = 0 } = plain;
  const text = connections === 1 ? '1 connection' : `${countText(connections)} connections`;
  return [{ name: 'Gateway', mood: 'plain', text, more: memory === undefined ? '' : `${bytesText(memory)} resident` }];
}

function sentenceCase(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
