/** The model of a flight holds, and the checker finds what is wrong when a check is switched off. */

import t from 'tap';
import { FOUND, HOLDS } from './claims.js';
import { checkModel, findTools } from './spin.js';

const tools = await findTools();

for (const { name, definitions, finds } of [...HOLDS, ...FOUND]) {
  t.test(name, async (t) => {
    const { error, trail } = await checkModel(tools, definitions);
    if (finds === null) t.equal(error, null, trail);
    else t.match(error, finds);
  });
}
