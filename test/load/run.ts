/** `npm run soak`: ten minutes, or `-- --minutes N`. Ends with 1 when something does not add up, or is left. */

import { outcomesText, soak } from './soak.js';

const [flag, value = '10', ...rest] = process.argv.slice(2);
const minutes = Number(value);
if ((flag !== undefined && flag !== '--minutes') || rest.length > 0 || !(minutes > 0)) {
  console.error('usage: npm run soak [-- --minutes <number>]');
  process.exit(2);
}
const { SEED = '1' } = process.env;
const ROUND_MS = 15_000;
const rounds = Math.max(6, Math.round((minutes * 60_000) / ROUND_MS));

const ends: (() => void | Promise<void>)[] = [];
const scope = {
  teardown: (end: () => void | Promise<void>) => void ends.push(end),
  passing: () => true,
  comment: console.log,
};
const report = await soak(scope, {
  rounds,
  roundMs: (minutes * 60_000) / rounds,
  lanes: 64,
  seed: Number(SEED),
  warmUpRounds: Math.ceil(rounds / 5),
  storeEmptyWithinMs: 130_000,
  mostGrowthBytes: 4 * 1_048_576,
  say: console.log,
});
for (const end of ends.reverse()) await end();
const { requests, seconds, calls, outcomes, faults } = report;
console.log(
  `${requests} requests in ${Math.round(seconds)} s, ${Math.round(requests / seconds)} a second; ${calls} calls`,
);
console.log(outcomesText(outcomes));
for (const fault of faults) console.log(`FAULT ${fault}`);
console.log(faults.length === 0 ? 'everything adds up, and nothing is left' : `${faults.length} faults`);
process.exit(faults.length === 0 ? 0 : 1);
