/** How a process looks after its places: what comes in an order that a real server seldom shows. */

import t, { type Test } from 'tap';
import type { Entered, PlaceRequest } from '../../src/store/queue.js';
import { type Looked, Places, turnBy } from '../../src/store/redis-places.js';
import { eventually, Gate } from '../support/gate.js';

const QUEUED = (place: PlaceRequest): Entered => ({ kind: 'queued', place });
const IN_TIME = () => String(Math.floor(performance.now() + 10_000));

function request(changes: Partial<PlaceRequest> = {}): PlaceRequest {
  return {
    key: 'key',
    flight: 'first',
    leaseMs: 10_000,
    holdMs: 0,
    route: 'route',
    concurrency: 1,
    maxQueue: 100,
    otherKeys: [],
    ...changes,
  };
}

function grant(flight: string, fence: number, token: string): Buffer {
  return Buffer.from(`g${String.fromCharCode(flight.length)}${flight}${fence} ${token}`, 'latin1');
}

/** Places before a server that the test plays. */
function scene(t: Test) {
  const asked = { entered: [] as PlaceRequest[], looks: 0, renewed: 0, givenUp: [] as string[] };
  const server = {
    enter: QUEUED as (place: PlaceRequest) => Entered,
    look: (places: readonly PlaceRequest[]): Looked | null => ({
      kind: 'places',
      endingMs: Number.POSITIVE_INFINITY,
      each: places.map(() => 'waiting'),
    }),
    renew: async (): Promise<'held' | 'lost'> => 'held',
  };
  const places = new Places({
    enter: async (place) => {
      asked.entered.push(place);
      return { entered: server.enter(place), endingMs: Number.POSITIVE_INFINITY };
    },
    look: async (_key, _leaseMs, all) => {
      asked.looks += 1;
      return server.look(all);
    },
    renew: () => {
      asked.renewed += 1;
      return server.renew();
    },
    giveUp: ({ flight }) => asked.givenUp.push(flight),
  });
  t.teardown(() => places.close());
  const never = new AbortController().signal;
  const turn = (place = request(), signal = never) => places.turn(place, { pollMs: 60_000, signal });
  return { asked, server, places, turn };
}

t.test('a push that comes before the answer that gives the place', async (t) => {
  const { places, turn, asked } = scene(t);
  places.push(grant('first', 7, IN_TIME()));
  places.add(request(), Number.POSITIVE_INFINITY);
  t.match(await turn(), { kind: 'turn', lease: { flight: 'first', fence: 7 } });
  t.equal(asked.looks, 0);
});

t.test('a turn whose promise has passed is not used: another place is asked for, under another id', async (t) => {
  const { places, turn, asked, server } = scene(t);
  server.enter = (place) => turnBy(place, '9', IN_TIME());
  places.add(request(), Number.POSITIVE_INFINITY);
  const wait = turn();
  places.push(grant('first', 7, String(Math.floor(performance.now()) - 1)));
  const got = await wait;
  t.match(got, { kind: 'turn', lease: { fence: 9 } });
  t.not(asked.entered[0]?.flight, 'first');
  t.same(asked.givenUp, ['first'], 'and the turn that has passed is given up');
});

t.test('what is said of a place that was lost cannot be taken for the place that followed it', async (t) => {
  const { places, turn, asked, server } = scene(t);
  places.add(request(), Number.POSITIVE_INFINITY);
  const wait = turn();
  server.look = (all) => ({ kind: 'places', endingMs: 1e9, each: all.map(() => 'gone') });
  places.listening();
  await eventually('it is asked for again', () => asked.entered.length === 1);
  server.look = (all) => ({ kind: 'places', endingMs: 1e9, each: all.map(() => 'waiting') });
  places.push(grant('first', 7, IN_TIME()));
  const second = asked.entered[0] as PlaceRequest;
  await new Promise((resolve) => setImmediate(resolve));
  places.push(grant(second.flight, 9, IN_TIME()));
  t.match(await wait, { kind: 'turn', lease: { flight: second.flight, fence: 9 } });
});

t.test('a turn that can be held is renewed before it is used, and asked for again when that fails', async (t) => {
  const { places, turn, asked, server } = scene(t);
  const holding = request({ holdMs: 60_000 });
  places.add(holding, Number.POSITIVE_INFINITY);
  const wait = turn(holding);
  server.renew = async () => 'lost';
  server.enter = (place) => turnBy(place, '9', IN_TIME());
  places.push(grant('first', 7, IN_TIME()));
  t.match(await wait, { kind: 'turn', lease: { fence: 9 } });
  t.equal(asked.renewed, 1);
});

t.test('who leaves while its turn is being taken gives it up', async (t) => {
  const { places, turn, asked, server } = scene(t);
  const gate = new Gate();
  server.renew = () => gate.opened.then(() => 'held' as const);
  const holding = request({ holdMs: 60_000 });
  places.add(holding, Number.POSITIVE_INFINITY);
  const gone = new AbortController();
  const wait = turn(holding, gone.signal);
  places.push(grant('first', 7, IN_TIME()));
  gone.abort(new Error('left'));
  await t.rejects(wait, { message: 'left' });
  gate.open();
  await new Promise((resolve) => setImmediate(resolve));
  t.same(asked.givenUp, ['first']);
  t.same(asked.entered, [], 'and nothing is asked for it');
});

t.test('who leaves while a lost place is asked for again gives up the new one too', async (t) => {
  const { places, turn, asked, server } = scene(t);
  places.add(request(), Number.POSITIVE_INFINITY);
  const gone = new AbortController();
  const wait = turn(request(), gone.signal);
  server.look = (all) => ({ kind: 'places', endingMs: 1e9, each: all.map(() => 'gone') });
  server.enter = (place) => {
    gone.abort(new Error('left'));
    return QUEUED(place);
  };
  places.listening();
  await t.rejects(wait, { message: 'left' });
  await eventually('both are given up', () => asked.givenUp.includes(asked.entered[0]?.flight ?? '-'));
  t.ok(asked.givenUp.includes('first'));
});

t.test('a server that does not answer ends no wait', async (t) => {
  const { places, turn, server, asked } = scene(t);
  places.add(request({ leaseMs: 60 }), Number.POSITIVE_INFINITY);
  const wait = turn();
  server.look = () => null;
  await eventually('it is asked several times', () => asked.looks >= 3);
  server.look = (all) => ({ kind: 'places', endingMs: 1e9, each: all.map((place) => turnBy(place, '8', IN_TIME())) });
  t.match(await wait, { kind: 'turn', lease: { fence: 8 } });
});

t.test('a blocked queue is looked at, not believed: what was so need not be so now', async (t) => {
  const { places, turn, server, asked } = scene(t);
  places.add(request(), Number.POSITIVE_INFINITY);
  const wait = turn();
  places.push(Buffer.from('b\x03key', 'latin1'));
  await eventually('it is looked at', () => asked.looks === 1);
  await new Promise((resolve) => setImmediate(resolve));
  server.look = () => ({ kind: 'unknown', ttlMs: 5 });
  places.push(Buffer.from('b\x03key', 'latin1'));
  t.same(await wait, { kind: 'unknown', ttlMs: 5 });
});

t.test('places that keep coming do not put off the look at those that are there', async (t) => {
  const { places, asked } = scene(t);
  const end = performance.now() + 5_000;
  for (let i = 0; asked.looks === 0 && performance.now() < end; i += 1) {
    places.add(request({ flight: `flight ${i}`, leaseMs: 300 }), Number.POSITIVE_INFINITY);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  t.ok(asked.looks > 0);
});
