/** What the schema cannot say of a store in Redis, because it takes two fields. */

import type { ConfigDraft } from './check.js';
import type { Fault, FieldPath } from './fault.js';
import { faultAt, valueAt } from './locate.js';
import type { Located } from './source.js';

type RedisDraft = Extract<NonNullable<ConfigDraft['store']>, { kind?: 'redis' | undefined }> & {
  readonly kind?: 'redis' | undefined;
};

const PLACES = ['url', 'sentinel', 'cluster'] as const;
const CREDENTIALS = ['username', 'password'] as const;

/** Checks the fields of the store against each other. Nothing of a password is quoted. */
export function redisFaults({ store }: ConfigDraft, root: Located): Fault[] {
  if (store?.kind !== 'redis') return [];
  return [
    ...placeFaults(store, root),
    ...urlFaults(store, root),
    ...databaseFaults(store, root),
    ...credentialFaults(store, root),
    ...pairFaults(store.tls, ['store', 'tls'], root),
    ...pairFaults(store.sentinel?.tls, ['store', 'sentinel', 'tls'], root),
    ...repeatedFaults(store.cluster, ['store', 'cluster'], root),
    ...repeatedFaults(store.sentinel?.hosts, ['store', 'sentinel', 'hosts'], root),
  ];
}

function placeFaults(store: RedisDraft, root: Located): Fault[] {
  const written = PLACES.filter((place) => place in store);
  if (written.length === 1) return [];
  if (written.length === 0)
    return [faultAt(root, ['store', 'url'], 'url, sentinel or cluster', { got: 'none of them' })];
  const got = written.length === 2 ? 'both' : 'all three';
  return written.slice(1).map((place) => faultAt(root, ['store', place], `one of ${written.join(', ')}`, { got }));
}

/** What a URL says already is said once. */
function urlFaults(store: RedisDraft, root: Located): Fault[] {
  if (store.url === undefined) return [];
  const { protocol, username, password, pathname } = new URL(store.url);
  const faults: Fault[] = [];
  if ('tls' in store && !/^rediss:$/i.test(protocol)) {
    faults.push(faultAt(root, ['store', 'tls'], 'no tls without a rediss:// URL', { got: 'it' }));
  }
  const said = { username: username !== '', password: password !== '', db: pathname.length > 1 };
  for (const [field, isInUrl] of Object.entries(said)) {
    if (!isInUrl || !(field in store)) continue;
    faults.push(faultAt(root, ['store', field], `${field} in the URL or here`, { got: 'both' }));
  }
  if (username !== '' && password === '' && !('password' in store)) {
    const expected = 'a password for the user of the URL, in the URL or in password';
    faults.push(faultAt(root, ['store', 'url'], expected, { got: 'none' }));
  }
  return faults;
}

function databaseFaults(store: RedisDraft, root: Located): Fault[] {
  if (!('cluster' in store) || store.db === undefined || store.db === 0) return [];
  return [faultAt(root, ['store', 'db'], 'no db with cluster, which has database 0 only')];
}

/** A name without a password would not be told to the server: whoever connects would be somebody else. */
function credentialFaults(store: RedisDraft, root: Located): Fault[] {
  const faults: Fault[] = [];
  const [user, secret] = CREDENTIALS;
  const urlHasOne = store.url !== undefined && new URL(store.url).password !== '';
  if (user in store && !(secret in store) && !urlHasOne) {
    faults.push(faultAt(root, ['store', secret], 'the password of store.username'));
  }
  if (store.sentinel !== undefined && user in store.sentinel && !(secret in store.sentinel)) {
    faults.push(faultAt(root, ['store', 'sentinel', secret], 'the password of store.sentinel.username'));
  }
  return faults;
}

function pairFaults(tls: RedisDraft['tls'], path: FieldPath, root: Located): Fault[] {
  if (tls === undefined) return [];
  const faults: Fault[] = [];
  if ('cert' in tls && !('key' in tls)) faults.push(faultAt(root, [...path, 'key'], 'the key of tls.cert'));
  if ('key' in tls && !('cert' in tls)) faults.push(faultAt(root, [...path, 'cert'], 'the certificate of tls.key'));
  return faults;
}

function repeatedFaults(servers: readonly (string | undefined)[] | undefined, path: FieldPath, root: Located): Fault[] {
  return (servers ?? []).flatMap((server, index) => {
    const first = servers?.indexOf(server) ?? index;
    if (server === undefined || first === index || valueAt(root, [...path, index]) === undefined) return [];
    const got = `that of ${path.at(-1)}[${first}]`;
    return [faultAt(root, [...path, index], 'a server that the list does not have yet', { got })];
  });
}
