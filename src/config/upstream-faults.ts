/** What the schema cannot say of an upstream, because it takes two fields. */

import type { ConfigDraft } from './check.js';
import type { Fault, FieldPath } from './fault.js';
import { faultAt } from './locate.js';
import { addressOf } from './resolve-upstream.js';
import type { Located } from './source.js';

export type UpstreamDraft = NonNullable<NonNullable<ConfigDraft['upstreams']>[string]>;

/** Checks the fields of an upstream against each other. */
export function upstreamFieldFaults(upstream: UpstreamDraft, path: FieldPath, root: Located): Fault[] {
  return [
    ...addressFaults(upstream, path, root),
    ...tlsFaults(upstream, path, root),
    ...healthFaults(upstream, path, root),
    ...editFaults(upstream, path, root),
  ];
}

function addressFaults(upstream: UpstreamDraft, path: FieldPath, root: Located): Fault[] {
  if (!('url' in upstream || 'urls' in upstream)) return [faultAt(root, [...path, 'url'], 'url or urls')];
  if ('url' in upstream && 'urls' in upstream) {
    return [faultAt(root, [...path, 'urls'], 'one of url and urls', { got: 'both' })];
  }
  const { urls = [] } = upstream;
  const places = urls.map((url) => (url === undefined ? null : placeOf(url)));
  return places.flatMap((place, index) => {
    const first = places.indexOf(place);
    if (place === null || first === index) return [];
    const got = `that of urls[${first}]`;
    return [faultAt(root, [...path, 'urls', index], 'an address that the list does not have yet', { got })];
  });
}

/** The same for every spelling of an address. */
function placeOf(url: string): string {
  const { name, url: parsed, socketPath } = addressOf(url);
  return socketPath === null ? `${parsed.protocol}${name}` : name;
}

function tlsFaults(upstream: UpstreamDraft, path: FieldPath, root: Located): Fault[] {
  const { tls } = upstream;
  if (tls === undefined) return [];
  const addresses = [upstream.url ?? upstream.urls ?? []].flat();
  if (addresses.length > 0 && addresses.every((url) => url !== undefined && !/^https:/i.test(url))) {
    return [faultAt(root, [...path, 'tls'], 'no tls without an https:// address', { got: 'it' })];
  }
  const faults: Fault[] = [];
  if ('cert' in tls && !('key' in tls)) faults.push(faultAt(root, [...path, 'tls', 'key'], 'the key of tls.cert'));
  if ('key' in tls && !('cert' in tls))
    faults.push(faultAt(root, [...path, 'tls', 'cert'], 'the certificate of tls.key'));
  return faults;
}

function healthFaults(upstream: UpstreamDraft, path: FieldPath, root: Located): Fault[] {
  const names = Object.keys(upstream.health?.headers ?? {});
  return repeated(names).map((name) =>
    faultAt(root, [...path, 'health', 'headers', name], `${name.toLowerCase()} once`, { got: 'it in two spellings' }),
  );
}

function editFaults(upstream: UpstreamDraft, path: FieldPath, root: Located): Fault[] {
  return (['request', 'response'] as const).flatMap((direction) => {
    const { set, remove } = upstream.headers?.[direction] ?? {};
    const at = [...path, 'headers', direction];
    const names = Object.keys(set ?? {});
    const twice = repeated(names).map((name) =>
      faultAt(root, [...at, 'set', name], `${name.toLowerCase()} once`, { got: 'it in two spellings' }),
    );
    const lower = new Set(names.map((name) => name.toLowerCase()));
    const contradicted = (remove ?? []).flatMap((name, index) =>
      name !== undefined && lower.has(name.toLowerCase())
        ? [faultAt(root, [...at, 'remove', index], 'a field that is not set as well')]
        : [],
    );
    return [...twice, ...contradicted];
  });
}

/** The names that stand before, in whatever case. */
function repeated(names: readonly string[]): string[] {
  const lower = names.map((name) => name.toLowerCase());
  return names.filter((_, index) => lower.indexOf(lower[index] as string) < index);
}
