/** What viewers of the live page cost: nothing when there are none, once for all when there are, and no more for slow ones. */

import { EventEmitter } from 'node:events';
import t from 'tap';
import type { Snapshot } from '../../src/page/snapshot.js';
import { PacedLook } from '../../src/server/paced-look.js';
import { PageFeed, type Viewer } from '../../src/server/page-feed.js';
import { StoreUnavailable } from '../../src/store/store.js';
import { delay, eventually, Gate } from '../support/gate.js';

class FakeViewer extends EventEmitter implements Viewer {
  readonly frames: Buffer[] = [];
  ended = '';
  writableNeedDrain = false;

  write(bytes: Buffer): boolean {
    this.frames.push(bytes);
    return true;
  }

  end(bytes: Buffer): void {
    this.ended = String(bytes);
    this.emit('close');
  }

  destroy(): void {
    this.ended ||= 'destroyed';
    this.emit('close');
  }

  get last(): Snapshot {
    return JSON.parse(String(this.frames.at(-1)).replace(/^data: /, '')) as Snapshot;
  }
}

function feedOf(taken: () => Promise<never[]> = async () => []) {
  const asked = { health: 0, flights: 0, metrics: 0 };
  const feed = new PageFeed({
    periodMs: 5,
    store: {
      taken: () => {
        asked.flights += 1;
        return taken();
      },
    },
    readiness: async () => {
      asked.health += 1;
      return { ready: true, checks: { store: 'ok' }, config: null };
    },
    metrics: async () => {
      asked.metrics += 1;
      return [];
    },
  });
  return { feed, asked };
}

t.test('all viewers get the same bytes, made once; nothing is asked while nobody looks', async (t) => {
  const { feed, asked } = feedOf();
  await delay(30);
  t.same(asked, { health: 0, flights: 0, metrics: 0 });
  const viewers = [new FakeViewer(), new FakeViewer(), new FakeViewer()];
  for (const viewer of viewers) feed.add(viewer);
  await eventually('several snapshots', () => viewers.every(({ frames }) => frames.length >= 4));
  for (const viewer of viewers) viewer.destroy();
  const [first] = viewers as [FakeViewer];
  for (const { frames } of viewers)
    t.ok(
      frames.every((frame, i) => frame === first.frames[i]),
      'the very same',
    );
  t.equal(asked.health, 1, 'health is looked at less often');
  await delay(20);
  const before = { ...asked };
  await delay(40);
  t.same(asked, before, 'nobody looks any more');
  const late = new FakeViewer();
  feed.add(late);
  await eventually('another one', () => late.frames.length > 0);
  t.equal(asked.health, 2, 'what was seen long ago is not shown');
  feed.close();
});

t.test('who does not read is passed over, and in the end dropped; the others go on', async (t) => {
  const { feed } = feedOf();
  const slow = new FakeViewer();
  const quick = new FakeViewer();
  feed.add(slow);
  feed.add(quick);
  await eventually('both have one', () => slow.frames.length > 0 && quick.frames.length > 0);
  slow.writableNeedDrain = true;
  const had = slow.frames.length;
  await eventually('more for the other', () => quick.frames.length > had + 5);
  t.ok(slow.frames.length <= had + 1, 'nothing piles up');
  slow.writableNeedDrain = false;
  await eventually('it reads again', () => slow.frames.length > had + 1);
  slow.writableNeedDrain = true;
  await eventually('dropped', () => slow.ended === 'destroyed');
  t.equal(quick.ended, '');
  feed.close();
});

t.test('there is room for few, and for none when it is over', async (t) => {
  const { feed } = feedOf();
  const viewers = Array.from({ length: 16 }, () => new FakeViewer());
  for (const viewer of viewers) {
    t.equal(feed.isFull, false);
    feed.add(viewer);
  }
  t.equal(feed.isFull, true);
  viewers[0]?.destroy();
  t.equal(feed.isFull, false);
  feed.close();
  t.equal(feed.isFull, true);
  for (const { ended } of viewers.slice(1)) t.match(ended, /^event: stopped\n/);
});

t.test('a store that is away is told of; what should not happen ends the stream', async (t) => {
  let fault: Error = new StoreUnavailable('no answer within 200 ms');
  const { feed } = feedOf(async () => {
    throw fault;
  });
  const viewer = new FakeViewer();
  feed.add(viewer);
  await eventually('told', () => viewer.frames.length > 0);
  t.same(viewer.last.flights, { kind: 'unavailable', error: 'no answer within 200 ms' });
  viewer.destroy();
  await delay(20);
  fault = new Error('a fault of ours');
  const next = new FakeViewer();
  feed.add(next);
  await eventually('ended', () => next.ended === 'destroyed');
});

t.test('a slow answer is asked for less often, and holds nobody up', async (t) => {
  let asked = 0;
  const gate = new Gate();
  const look = new PacedLook({
    everyMs: 1,
    restFactor: 10,
    ask: async () => {
      asked += 1;
      await (asked > 1 ? gate.opened : delay(30));
      return asked;
    },
  });
  t.equal((await look.look()).value, 1);
  t.equal((await look.look()).value, 1);
  t.equal(asked, 1, 'ten times as long as it took is not over');
  await eventually('asked again', async () => (await look.look()).value === 1 && asked === 2);
  const seen = await look.look();
  t.equal(seen.value, 1, 'the old answer, as the new one is slow');
  t.ok(seen.agoMs > 30);
  t.equal(asked, 2, 'one question at a time');
  gate.open();
  await eventually('the new one', async () => (await look.look()).value === 2);
});
