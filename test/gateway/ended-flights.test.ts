/**
 * A flight that an operator ends while it is at work is over in the process of its leader too, at once: the leases are so
 * long that no renewal can have told it.
 */

import t, { type Test } from 'tap';
import { type Answered, type RequestOptions, request } from '../support/client.js';
import { PROMPT_MS } from '../support/expect.js';
import { eventually } from '../support/gate.js';
import { configOf, type Gateway, startGateway, startGateways } from '../support/gateway.js';
import { startRedis } from '../support/redis.js';
import { inEachStore } from '../support/stores.js';
import { type StubUpstream, startUpstream } from '../support/upstream.js';
import { pinEach, watchOver } from '../support/workers.js';

t.setTimeout(170_000);

const POLICIES = ['reject', 'replay', 'coalesce', 'queue'] as const;
type Policy = (typeof POLICIES)[number];

const OF_POLICY: Readonly<Record<Policy, string>> = {
  reject: '',
  replay: 'keep: 60s',
  coalesce: 'keep: 60s\n    wait: { max: 5s, poll: 60s }',
  queue: 'wait: { max: 5s, poll: 60s }',
};
const ROUTES = POLICIES.map(
  (policy) => `
  - name: ${policy}
    match: { methods: [POST], path: "/${policy}/*" }
    upstream: api
    policy: ${policy}
    key: [ { request: path } ]
    lease: 60s
    ${OF_POLICY[policy]}`,
).join('');

/** A process that serves clients. */
type Serving = { readonly pid: number; request(options: RequestOptions): Promise<Answered> };

/** One gateway or several: where clients are served, and where operators are. */
type Fleet = {
  readonly upstream: StubUpstream;
  readonly serving: readonly Serving[];
  readonly admins: readonly Gateway[];
};

type Taken = { readonly key: string; readonly flight: string; readonly leader: string | null; readonly state: string };

const post = (to: Serving, path: string) => to.request({ method: 'POST', path, body: 'A' });

/** What is taken by a rule and in flight. */
async function takenBy(admin: Gateway, route: Policy): Promise<Taken[]> {
  const { flights } = (await admin.admin('/flights?state=in-flight')).json() as {
    flights: (Taken & { readonly route: string })[];
  };
  return flights.filter((one) => one.route === route);
}

function settle(admin: Gateway, key: string, word: object): Promise<Answered> {
  return request(admin.adminUrl, {
    method: 'POST',
    path: `/flights/${key}/settle`,
    headers: ['Content-Type', 'application/json'],
    body: JSON.stringify(word),
  });
}

let paths = 0;

/** Has a request held upstream, looked at by every operator. */
async function held(t: Test, { upstream, admins }: Fleet, leading: Serving, policy: Policy) {
  paths += 1;
  const path = `/${policy}/${paths}`;
  const atUpstream = upstream.holds(path);
  const first = post(leading, path);
  await atUpstream.arrived(1);
  const [flights = [], ...seenByOthers] = await Promise.all(admins.map((admin) => takenBy(admin, policy)));
  const [flight] = flights;
  if (flight === undefined) throw new Error('the flight is not shown');
  t.equal(flights.length, 1);
  t.match(flight.leader, new RegExp(`^[A-Za-z0-9.-]+-${leading.pid}-[0-9a-f]+$`), 'its process is named');
  for (const others of seenByOthers) t.same(others[0]?.leader, flight.leader, 'the same by all');
  return { path, atUpstream, first, flight };
}

/** The leader's process says so while the upstream still has its request. */
async function knowsOfLoss({ admins }: Fleet, key: string): Promise<void> {
  const isSaid = ({ msg, key: of }: { msg?: unknown; key?: unknown }) => /^lease lost/.test(String(msg)) && of === key;
  await eventually('the loss is logged', () => admins.some(({ logs }) => logs.some(isSaid)), PROMPT_MS);
}

async function scenarios(t: Test, fleet: Fleet): Promise<void> {
  const { upstream, serving, admins } = fleet;
  for (const policy of POLICIES) {
    await t.test(`${policy}: freed, the next request runs, in the leader's own process too`, async (t) => {
      for (const leading of serving) {
        for (const operator of admins) {
          const { path, atUpstream, first, flight } = await held(t, fleet, leading, policy);
          const word = { as: 'free', flight: flight.flight };
          t.equal((await settle(operator, flight.key, word)).status, 200);
          const next = post(leading, path);
          next.then(({ status }) => t.equal(status, 200)).catch(t.error);
          await atUpstream.arrived(2);
          await knowsOfLoss(fleet, flight.key);
          atUpstream.release();
          const [old, ran] = await Promise.all([first, next]);
          t.equal(old.status, 200, 'its own client has its answer');
          t.not(old.text, ran.text);
          t.equal(upstream.count(path), 2);
          if (policy !== 'replay' && policy !== 'coalesce') continue;
          for (const process of serving) t.equal((await post(process, path)).text, ran.text, 'only the later is kept');
          t.equal(upstream.count(path), 2);
        }
      }
    });
  }

  for (const policy of ['replay', 'coalesce'] as const) {
    await t.test(`${policy}: given a response, repeats get it, in the leader's own process too`, async (t) => {
      for (const leading of serving) {
        for (const operator of admins) {
          const { path, atUpstream, first, flight } = await held(t, fleet, leading, policy);
          const word = { as: 'response', flight: flight.flight, status: 202, content: 'by word' };
          t.equal((await settle(operator, flight.key, word)).status, 200);
          t.equal((await post(leading, path)).text, 'by word');
          await knowsOfLoss(fleet, flight.key);
          atUpstream.release();
          t.equal((await first).status, 200, 'its own client has the real answer');
          for (const process of serving) t.equal((await post(process, path)).text, 'by word');
          t.equal(upstream.count(path), 1);
        }
      }
    });
  }
}

inEachStore(t, 2, async (t, store, processes) => {
  const upstream = await startUpstream(t);
  const gateways = await startGateways(t, processes, {
    config: configOf({ upstream: upstream.url, store, routes: ROUTES }),
  });
  await scenarios(t, { upstream, serving: gateways, admins: gateways });
});

async function withWorkers(t: Test, count: number, store: string): Promise<void> {
  const upstream = await startUpstream(t);
  const config = configOf({ upstream: upstream.url, store, routes: ROUTES, more: `workers: ${count}` });
  const gateway = await startGateway(t, { config });
  watchOver(gateway);
  // Two connections to each worker, used in turn: a request waits while another one is at work.
  const [one, other] = [await pinEach(t, gateway, count), await pinEach(t, gateway, count)];
  const serving = one.map((pinned, index): Serving => {
    let requests = 0;
    const request = (options: RequestOptions) => {
      requests += 1;
      return (requests % 2 === 0 ? pinned : other[index]!).request(options);
    };
    return { pid: pinned.pid, request };
  });
  await scenarios(t, { upstream, serving, admins: [gateway] });
}

t.test('three workers and one store in memory', (t) => withWorkers(t, 3, '{ kind: memory }'));

t.test('two workers with Redis', async (t) => {
  const redis = await startRedis();
  t.teardown(() => redis.stop());
  await withWorkers(t, 2, `{ kind: redis, url: "${redis.url}", commandTimeout: 2s }`);
});
