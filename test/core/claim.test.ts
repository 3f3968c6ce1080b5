import t from 'tap';
import { newFlightId } from '../../src/core/claim.js';

t.test('flight ids are 128 bits in base64url, and no two are equal, over many refills of the pool', async (t) => {
  const ids = Array.from({ length: 10_000 }, newFlightId);
  t.equal(new Set(ids).size, ids.length);
  t.ok(ids.every((id) => /^[\w-]{22}$/.test(id)));
});
