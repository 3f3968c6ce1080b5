/** Routes that ask the API about unknown outcomes, and what their tests do again and again. */

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the configuration's own syntax.

import type { Test } from 'tap';
import { type Answered, request } from '../support/client.js';
import { isProblem } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, type LogLine } from '../support/gateway.js';
import type { Behaviour, Call, StubUpstream } from '../support/upstream.js';

export const LEASE_MS = 1_500;
/** The shortest that a route may have, and with it the time to the first question. */
export const EVERY_MS = 500;
/** In every key and nowhere else: what must not be found in a log or in the store. */
export const RAW = 'raw-value-of-a-key';
export const TOKEN = 'token-of-the-gateway';

const HEADERS = 'headers: { Authorization: "Bearer ${API_TOKEN}" }';

function route(name: string, reconcile: string, more = 'policy: replay'): string {
  return `
  - name: ${name}
    match: { path: "/${name}/*" }
    upstream: api
    lease: ${LEASE_MS}ms
    ${more}
    reconcile: { every: ${EVERY_MS}ms, ${HEADERS}, ${reconcile} }`;
}

const KEYED = `key: [ { header: idempotency-key } ]
    onUnknown: hold`;

/** A configuration in which every route asks. `elsewhere` is another server than the upstream. */
export function configFor(upstream: string, store: string, elsewhere: string, more = ''): string {
  const url = 'url: "/operations/{key}"';
  const routes = [
    route('found', url),
    route('judged', `${url}, done: { /status: [succeeded, failed] }`),
    route('short', url, 'policy: replay\n    unknownFor: 2s'),
    route('small', url, 'policy: replay\n    maxShared: 10B'),
    route('derived', 'url: "/by?k={idempotencyKey}"', 'policy: replay\n    forward: { idempotencyKey: X-Derived }'),
    route('elsewhere', `url: "${elsewhere}/operations/{key}"`),
    route('shared', url, `policy: coalesce\n    keep: 30s\n    ${KEYED}`),
    route('locked', url, `policy: reject\n    ${KEYED}`),
  ];
  const timeouts = '{ connect: 2s, headers: 4s, body: 1s }';
  return configOf({ upstream, store, routes: routes.join(''), more, timeouts });
}

/** One operation: its route, its key, and where the API is asked about it. */
export class Operation {
  readonly key: string;
  readonly path: string;
  readonly question: string;
  readonly #upstream: StubUpstream;

  constructor(
    upstream: StubUpstream,
    readonly route: string,
    name: string,
  ) {
    this.#upstream = upstream;
    this.key = `${RAW}-${route}-${name}`;
    this.path = `/${route}/${name}`;
    this.question = `/operations/${this.key}`;
  }

  /** How the operation itself and the questions about it are treated. */
  is(runs: Behaviour, asked: Behaviour): void {
    this.#upstream.on(this.path, runs);
    this.#upstream.on(this.question, asked);
  }

  run(gateway: Gateway): Promise<Answered> {
    return gateway.request({ method: 'POST', path: this.path, headers: ['Idempotency-Key', this.key], body: 'A' });
  }

  /** Runs it for the first time; nobody knows what becomes of it. */
  async lose(t: Test, gateway: Gateway): Promise<void> {
    const ran = await this.run(gateway);
    isProblem(t, ran, 'outcome-unknown');
    t.equal(ran.status, 504);
  }

  async isHeld(t: Test, gateway: Gateway): Promise<void> {
    const answer = await this.run(gateway);
    isProblem(t, answer, 'outcome-unknown');
    t.equal(answer.status, 409);
  }

  /** The first answer that is no refusal, be it for the outcome that nobody knows or for a store that is away. */
  async known(gateway: Gateway, ms = 10_000): Promise<Answered> {
    let answer = await this.run(gateway);
    await eventually(
      `${this.path} being known`,
      async () => {
        if (isRefusal(answer)) answer = await this.run(gateway);
        return !isRefusal(answer);
      },
      ms,
    );
    return answer;
  }

  /** How often it was executed. */
  get runs(): number {
    return this.#upstream.count(this.path);
  }

  /** The questions about it. */
  get questions(): Call[] {
    return this.#upstream.callsOf(this.question);
  }

  /** Resolves when it was asked about that often in all. */
  asked(count: number): Promise<void> {
    return this.#upstream.arrived(count, this.question);
  }
}

function isRefusal({ status }: Answered): boolean {
  return status === 409 || status === 503;
}

/** What processes have written about outcomes that they settled, of one route. */
export type SettledLine = LogLine & { readonly as?: unknown; readonly result?: unknown };

export function settledBy(gateways: readonly Gateway[], route: string): SettledLine[] {
  const lines: readonly SettledLine[] = gateways.flatMap(({ logs }) => logs);
  return lines.filter((line) => line.msg === 'settled by reconcile' && line.route === route);
}

/** What an operator does. */
export async function settle(t: Test, gateway: Gateway, operation: Operation, as: object): Promise<void> {
  const listed = (await gateway.admin('/flights?state=unknown')).json() as {
    flights: { key: string; route: string }[];
  };
  const keys = listed.flights.filter(({ route }) => route === operation.route).map(({ key }) => key);
  t.equal(keys.length, 1, 'one unknown outcome of that route');
  const settled = await request(gateway.adminUrl, {
    method: 'POST',
    path: `/flights/${keys[0]}/settle`,
    headers: ['Content-Type', 'application/json'],
    body: JSON.stringify(as),
  });
  t.equal(settled.status, 200);
}
