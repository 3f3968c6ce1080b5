import t from 'tap';
import { Registry, Roster } from '../../src/core/roster.js';

t.test('a roster has its members in order, each until it is taken out once', async (t) => {
  const roster = new Roster<string>();
  const places = ['a', 'b', 'c'].map((name) => roster.add(name));
  const [, second] = places as [unknown, (typeof places)[number]];
  t.same([...roster], ['a', 'b', 'c']);
  t.equal(roster.remove(second), true);
  t.equal(roster.remove(second), false);
  t.same([...roster], ['a', 'c']);
  t.equal(roster.size, 2);
  t.equal(roster.first(), 'a');
});

t.test('a roster can change while it is walked through', async (t) => {
  const roster = new Roster<string>();
  const places = new Map(['a', 'b', 'c'].map((name) => [name, roster.add(name)]));
  const seen: string[] = [];
  for (const name of roster) {
    seen.push(name);
    for (const place of places.values()) roster.remove(place);
  }
  t.same(seen, ['a']);
  t.equal(roster.first(), undefined);
});

t.test('a registry has one member for a name', async (t) => {
  const registry = new Registry<number>();
  registry.set('a', 1);
  registry.set('b', 2);
  registry.set('a', 3);
  t.same(
    [...registry],
    [
      ['a', 3],
      ['b', 2],
    ],
  );
  t.same([...registry.keys()], ['a', 'b']);
  t.same([...registry.values()], [3, 2]);
  t.equal(registry.get('a'), 3);
  t.equal(registry.delete('a'), true);
  t.equal(registry.delete('a'), false);
  t.equal(registry.has('a'), false);
  t.equal(registry.get('a'), undefined);
  t.equal(registry.size, 1);
  registry.clear();
  t.equal(registry.size, 0);
});

t.test('what was taken out is let go of, whatever tables it has been in', async (t) => {
  // The tables that the members were in are garbage of the old generation by then, which a young collection does not see.
  const roster = new Roster<object>();
  const registry = new Registry<object>();
  const places = [];
  for (let i = 0; i < 5_000; i += 1) {
    places.push({ place: roster.add({ i }), name: String(i) });
    registry.set(String(i), { i });
    if (places.length < 64) continue;
    const oldest = places.shift() as (typeof places)[number];
    roster.remove(oldest.place);
    registry.delete(oldest.name);
    t.equal(oldest.place.member, null);
  }
  t.equal(roster.size, 63);
  t.equal(registry.size, 63);
});
