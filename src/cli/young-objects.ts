/**
 * Objects begin young, in whatever place in the code they are made. Loaded first by each process that serves clients.
 *
 * V8 gives the objects of a place that lived long while the process warmed up old memory from then on (allocation-site
 * pretenuring). Old garbage keeps what it refers to, each flight the next: a third of the CPU of a flight went to copying
 * that.
 */

import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--no-allocation-site-pretenuring');
