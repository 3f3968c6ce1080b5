/** What passes untouched in clear passes untouched over TLS: the same tests once more. */

import t from 'tap';
import { overTls } from '../support/gateway.js';

t.setTimeout(150_000);

overTls();
await import('./requests.test.js');
await import('./ends.test.js');
