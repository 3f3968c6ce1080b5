/** Upgrades are over TLS what they are in clear: the same tests once more. */

import t from 'tap';
import { overTls } from '../support/gateway.js';

t.setTimeout(120_000);

overTls();
await import('./upgrades.test.js');
