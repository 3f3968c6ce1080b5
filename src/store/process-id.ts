/** What a process is called in the store: what operators read as the leader of a flight, and whom pushes are for. */

import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

/** Bound of what the name of the host adds to every record. Host names of containers are shorter. */
const HOST_MOST = 40;
/** Containers may all be process 1 of hosts that have one name. */
const RANDOM_BYTES = 5;

/** `<host>-<pid>-<random>`, of letters, digits, `.` and `-` alone: it is a word in records, and a part of a channel's name. */
export function newProcessId(pid = process.pid, host = hostname()): string {
  const readable = host.replace(/[^A-Za-z0-9.-]+/g, '-').slice(0, HOST_MOST);
  return `${readable}-${pid}-${randomBytes(RANDOM_BYTES).toString('hex')}`;
}
