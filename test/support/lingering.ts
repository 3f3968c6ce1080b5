/**
 * Loaded into the process of each test file: one that goes on after its tests says what holds it, and ends. Without it
 * the file would time out minutes later, and nobody would know why.
 */

import t from 'tap';

const LINGER_MS = 10_000;

t.teardown(() => {
  const timer = setTimeout(() => {
    console.log(`# the process goes on after its tests: ${process.getActiveResourcesInfo().join(', ')}`);
    process.exit();
  }, LINGER_MS);
  timer.unref();
});
