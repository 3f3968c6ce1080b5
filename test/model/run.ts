/**
 * `npm run model`: checks the model, and that the checker finds what is wrong when a check is switched off. Ends with 1
 * when something is found that should not be, or is not found that should be. `TRAIL=1` shows the steps to what is found.
 */

import { type Claim, FOUND, HOLDS, HOLDS_LARGER } from './claims.js';
import { checkModel, findTools } from './spin.js';

const { TRAIL } = process.env;

const tools = await findTools().catch((error: Error) => {
  console.error(error.message);
  process.exit(1);
});

async function check({ name, definitions, finds }: Claim): Promise<boolean> {
  const { error, states, trail } = await checkModel(tools, definitions);
  const right = finds === null ? error === null : error !== null && finds.test(error);
  const wanted = right ? '' : `, expected: ${finds === null ? 'nothing' : finds.source}`;
  console.log(`${right ? 'ok' : 'NOT OK'}  ${name} [${definitions.join(' ')}]`);
  console.log(`        ${states} states, found: ${error ?? 'nothing'}${wanted}`);
  if (trail !== '' && TRAIL === '1') console.log(trail);
  return right;
}

let right = true;
for (const claim of [...HOLDS, ...HOLDS_LARGER, ...FOUND]) right = (await check(claim)) && right;
process.exit(right ? 0 : 1);
