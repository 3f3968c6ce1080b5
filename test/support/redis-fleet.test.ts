/** Fleets of the tests: what breaks in them becomes whole again. */

import t from 'tap';
import { eventually } from './gate.js';
import { infoOf, RedisCluster } from './redis-fleet.js';

const cluster = await RedisCluster.start(t, { replicas: 2 });

t.test('a move that was interrupted, wherever, is ended by the next', async (t) => {
  const name = 'moved';
  const { owner: from, slot } = await cluster.ownerOf(name);
  const to = cluster.primaries.find((server) => server !== from)!;
  const id = async (server: typeof to) => String(await server.command('CLUSTER', 'MYID'));
  const back = () => cluster.move(slot, to, from);

  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await id(from));
  await cluster.move(slot, from, to);
  t.equal((await cluster.ownerOf(name)).owner.port, to.port, 'after half a beginning');

  await back();
  await cluster.beginMove(slot, from, to);
  await cluster.moveNames(slot, from, to);
  await to.command('CLUSTER', 'SETSLOT', slot, 'NODE', await id(to));
  await cluster.move(slot, from, to);
  t.equal((await cluster.ownerOf(name)).owner.port, to.port, 'after half an end');

  await back();
  await from.command('SET', name, 'old');
  await cluster.beginMove(slot, from, to);
  await from.command('MIGRATE', '127.0.0.1', to.port, name, 0, 5_000, 'COPY');
  await from.command('SET', name, 'new');
  await cluster.move(slot, from, to);
  t.equal(await to.command('GET', name), 'new', 'a copy that was left is not what counts');
  t.equal(await from.command('CLUSTER', 'COUNTKEYSINSLOT', slot), 0);
});

t.test('a primary that was killed comes back as a replica of the one that took over', async (t) => {
  const [killed, next] = [cluster.primaries[1]!, cluster.replicas[1]!];
  await killed.kill();
  await eventually('the replica is a primary', async () => (await infoOf(next, 'role')) === 'master', 40_000);
  const back = await cluster.restart(killed);
  await eventually('it is a replica', async () => (await infoOf(back, 'master_link_status')) === 'up', 40_000);
  await cluster.whole();
  t.equal(await infoOf(back, 'master_port'), String(next.port));
});
