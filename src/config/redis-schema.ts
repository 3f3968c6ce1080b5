/**
 * Every option of a store in Redis, once: where its servers are, and who is asking. The invariants are those of schema.ts.
 *
 * Which of them exclude each other is said by redis-faults.ts.
 */

import { z } from 'zod';
import { isHostAndPort, isListenHost, isRedisUrl, STORE_PREFIX } from './forms.js';
import { duration, fields, text, wholeNumber } from './schema-parts.js';

const password = text('a password of 1 to 1024 characters', /^.{1,1024}$/s);
const userName = text('a user name of 1 to 256 characters without blanks', /^[!-~]{1,256}$/);
const pem = text('a PEM file, or PEM text', /./);
const AT_LEAST_ONE = 'at least one server';
const AT_MOST = 'at most 100 servers';
const servers = z
  .array(text('a host, or host:port', isHostAndPort))
  .min(1, { error: AT_LEAST_ONE })
  .max(100, { error: AT_MOST });

const tls = fields({
  ca: pem.optional().describe('Authorities that may have signed the certificates, instead of the well-known ones.'),
  cert: pem.optional().describe("The gateway's own certificate, with its chain."),
  key: pem.optional().describe('The key of that certificate.'),
  serverName: text('a host name', isListenHost)
    .optional()
    .describe(
      'The name to ask for (SNI) and to find in the certificates; when left out the host that is connected to.',
    ),
  verify: z.boolean().default(true).describe('False takes any certificate: for tests only.'),
});

const sentinel = fields({
  name: text(
    'the name of a primary, of up to 128 letters, digits, ".", "_" and "-"',
    /^[A-Za-z0-9._-]{1,128}$/,
  ).describe('What the sentinels call the primary.'),
  hosts: servers.describe('Sentinels to ask, host or host:port (26379); they name the others themselves.'),
  username: userName.optional().describe('ACL user at the sentinels.'),
  password: password.optional().describe('Password at the sentinels, which have their own.'),
  tls: tls.optional().describe('TLS to the sentinels; {} is enough where their authority is well known.'),
}).describe('Sentinels that know which server is the primary now.');

/** Without those that every kind of store has. */
export const redisFields = {
  url: text('a URL such as redis://user:password@host:6379/0', isRedisUrl)
    .optional()
    .describe(
      'Where the one server is: redis:// or rediss:// (TLS), with user, password and database number where needed. This, sentinel or cluster.',
    ),
  sentinel: sentinel.optional(),
  cluster: servers
    .optional()
    .describe('Some nodes of a Redis Cluster, host or host:port (6379); they name the others themselves.'),
  tls: tls
    .optional()
    .describe(
      'TLS to the servers: with rediss:// its details; with sentinel or cluster it also switches TLS on, {} is enough.',
    ),
  username: userName.optional().describe('ACL user; without one the default user.'),
  password: password.optional().describe('Its password; best from a file, as with store.secret.'),
  db: wholeNumber('a database number', 0, 99_999).optional().describe('Number of the database. When left out, 0.'),
  prefix: text('a prefix of up to 64 letters, digits, ".", "_", ":" and "-"', STORE_PREFIX)
    .default('oneflight')
    .describe('Put before every key and channel.'),
  commandTimeout: duration('20ms', '5s')
    .default('200ms')
    .describe('Longest wait for the reply to one command; after it the store counts as down.'),
  waitReplicas: wholeNumber('a number of replicas', 0, 100)
    .default(0)
    .describe(
      'How many replicas must have a claim before its request is forwarded; with fewer the claim is given back and the store counts as down. It costs a round trip to the store and one of the store to its replicas.',
    ),
};
