/** How a process looks after its places: what comes in an order that a real server seldom shows. */

import t, { type Test } from 'tap';
import type { Entered, PlaceRequest } from '../../src/store/queue.js';
import { type Looked, Places, turnBy } from '../../src/store/redis-places.js';
import { StoreUnavailable } from '../../src/store/store.js';
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
    look: (places: readonly PlaceRequest[]): Looked | null | Promise<Looked> => ({
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

t.test('when pushes arrive again, those who wait are looked at at once, not when their poll is due', async (t) => {
  const { places, turn, server, asked } = scene(t);
  const waiting = request({ leaseMs: 60_000 });
  places.add(waiting, Number.POSITIVE_INFINITY);
  const wait = turn(waiting);
  server.look = (all) => ({ kind: 'places', endingMs: 1e9, each: all.map((place) => turnBy(place, '8', IN_TIME())) });
  places.listening();
  t.equal(asked.looks, 1);
  t.match(await wait, { kind: 'turn', lease: { fence: 8 } });
});

t.test('of a place that was left nothing is asked any more', async (t) => {
  const { places, turn, asked } = scene(t);
  places.add(request(), Number.POSITIVE_INFINITY);
  const gone = new AbortController();
  const wait = turn(request(), gone.signal);
  gone.abort(new Error('left'));
  await t.rejects(wait, { message: 'left' });
  places.push(Buffer.from('b\x03key', 'latin1'));
  t.equal(asked.looks, 0);
});

/** A look that is answered when the test says so. */
function heldLook(server: ReturnType<typeof scene>['server'], each: Looked): Gate {
  const gate = new Gate();
  const before = server.look;
  server.look = () => {
    server.look = before;
    return gate.opened.then(() => each);
  };
  return gate;
}

t.test('what happens while a look is under way is looked at afterwards', async (t) => {
  const { places, turn, server, asked } = scene(t);
  const waiting = request({ leaseMs: 60_000 });
  places.add(waiting, Number.POSITIVE_INFINITY);
  const wait = turn(waiting);
  const gate = heldLook(server, { kind: 'places', endingMs: 1e9, each: ['waiting'] });
  places.listening();
  places.push(Buffer.from('b\x03key', 'latin1'));
  t.equal(asked.looks, 1, 'one question at a time');
  server.look = () => ({ kind: 'unknown', ttlMs: 5 });
  gate.open();
  t.same(await wait, { kind: 'unknown', ttlMs: 5 });
});

t.test('a look that was asked before a turn came says nothing of it: the turn is kept', async (t) => {
  const { places, turn, server, asked } = scene(t);
  const other = request({ flight: 'other' });
  places.add(request(), Number.POSITIVE_INFINITY);
  places.add(other, Number.POSITIVE_INFINITY);
  const wait = turn();
  const gate = heldLook(server, { kind: 'places', endingMs: 1e9, each: ['gone', 'waiting'] });
  places.listening();
  places.push(grant('first', 7, IN_TIME()));
  t.match(await wait, { kind: 'turn', lease: { flight: 'first', fence: 7 } });
  gate.open();
  await new Promise((resolve) => setImmediate(resolve));
  t.same(asked.givenUp, []);
  t.same(asked.entered, []);
});

t.test('more places than one question asks for: when some are lost, the others are looked at at once', async (t) => {
  const { places, server, asked } = scene(t);
  const MOST = 64;
  for (let i = 0; i <= MOST; i += 1) {
    places.add(request({ flight: `flight ${i}`, leaseMs: 60_000 }), Number.POSITIVE_INFINITY);
  }
  const lookedFor: number[] = [];
  server.look = (all) => {
    lookedFor.push(all.length);
    return {
      kind: 'places',
      endingMs: 1e9,
      each: all.map(({ flight }) => (/^flight/.test(flight) ? 'gone' : 'waiting')),
    };
  };
  places.listening();
  await eventually('all are asked for again', () => asked.entered.length === MOST + 1);
  t.equal(lookedFor[0], MOST, 'one question for many places');
});

t.test('an outcome that nobody knows is told to all who wait', async (t) => {
  const { places, turn, server } = scene(t);
  const all = ['first', 'second', 'third'].map((flight) => request({ flight, leaseMs: 60_000 }));
  for (const place of all) places.add(place, Number.POSITIVE_INFINITY);
  const waits = all.map((place) => turn(place));
  server.look = () => ({ kind: 'unknown', ttlMs: 5 });
  places.listening();
  t.same(await Promise.all(waits), Array(3).fill({ kind: 'unknown', ttlMs: 5 }));
});

t.test('of turns that nobody knows here only the newest are remembered', async (t) => {
  const { places, asked } = scene(t);
  places.push(grant('first', 7, IN_TIME()));
  for (let i = 0; i < 1_024; i += 1) places.push(grant(`flight ${i}`, 8, IN_TIME()));
  places.add(request(), Number.POSITIVE_INFINITY);
  places.listening();
  t.equal(asked.looks, 1, 'its place is looked after');
});

t.test('places are stood up for before their lease is over, however long the poll', async (t) => {
  const { places, asked } = scene(t);
  const leaseMs = 300;
  places.add(request({ leaseMs }), Number.POSITIVE_INFINITY);
  await new Promise((resolve) => setTimeout(resolve, leaseMs));
  t.ok(asked.looks > 0);
});

t.test('a turn that could not be taken, for the server did not answer, is asked for again', async (t) => {
  const { places, turn, server, asked } = scene(t);
  const holding = request({ holdMs: 60_000 });
  places.add(holding, Number.POSITIVE_INFINITY);
  const wait = turn(holding);
  server.renew = () => Promise.reject(new StoreUnavailable('away'));
  server.enter = (place) => turnBy(place, '9', IN_TIME());
  places.push(grant('first', 7, IN_TIME()));
  t.match(await wait, { kind: 'turn', lease: { fence: 9 } });
  t.same(asked.givenUp, ['first']);
});

t.test('a client that leaves when its turn is at work does not give it up', async (t) => {
  const { places, turn, asked } = scene(t);
  places.add(request(), Number.POSITIVE_INFINITY);
  const gone = new AbortController();
  const wait = turn(request(), gone.signal);
  places.push(grant('first', 7, IN_TIME()));
  await wait;
  gone.abort(new Error('left'));
  t.same(asked.givenUp, []);
});

t.test('a turn is told once', async (t) => {
  const { places, turn } = scene(t);
  places.add(request(), Number.POSITIVE_INFINITY);
  const wait = turn();
  places.push(grant('first', 7, IN_TIME()));
  await wait;
  await t.rejects(turn(), StoreUnavailable);
});

t.test('a lost place that could not be asked for again is asked for when the server is back', async (t) => {
  const { places, turn, server, asked } = scene(t);
  const waiting = request({ leaseMs: 60 });
  places.add(waiting, Number.POSITIVE_INFINITY);
  const wait = turn(waiting);
  server.look = (all) => ({ kind: 'places', endingMs: 1e9, each: all.map(() => 'gone') });
  server.enter = (place) => {
    if (asked.entered.length < 3) throw new StoreUnavailable('away');
    return turnBy(place, '9', IN_TIME());
  };
  places.listening();
  t.match(await wait, { kind: 'turn', lease: { fence: 9 } });
  t.equal(new Set(asked.entered.map(({ flight }) => flight)).size, 3, 'under another id each time');
});
