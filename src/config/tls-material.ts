/**
 * A certificate and its private key, from files or as text, and what is wrong with them.
 *
 * Invariant: nothing of a key is quoted, whatever is wrong with it.
 */

import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { ConfigDraft } from './check.js';
import type { PemSource, TlsConfig } from './config.js';
import { reasonOf } from './expansion.js';
import type { Fault, FieldPath } from './fault.js';
import { faultAt } from './locate.js';
import type { Located } from './source.js';

const MAX_PEM_BYTES = 1024 * 1024;

/** What is wrong with one of them, in the words that errors are made of. */
export type MaterialFault = { readonly of: 'ca' | 'cert' | 'key'; readonly expected: string; readonly got: string };
export type Pair = { readonly cert: string; readonly key: string };
export type Material =
  | { readonly kind: 'good'; readonly pair: Pair }
  | { readonly kind: 'bad'; readonly faults: MaterialFault[] };

/** A text that holds PEM, or else the path of a file. Relative paths begin in the directory of the configuration. */
export function pemSourceOf(written: string, directory: string): PemSource {
  return written.includes('-----BEGIN ')
    ? { kind: 'text', pem: written }
    : { kind: 'file', path: resolve(directory, written) };
}

/** Reads both and sees whether they can be used together. */
export function readMaterial({ cert, key, minVersion }: TlsConfig): Material {
  const faults: MaterialFault[] = [];
  const pem = { cert: pemOf('cert', cert, faults), key: pemOf('key', key, faults) };
  const certificate =
    pem.cert === null
      ? null
      : parsed('cert', 'a certificate in PEM', () => new X509Certificate(pem.cert as string), faults);
  const privateKey =
    pem.key === null
      ? null
      : parsed('key', 'a private key in PEM, not encrypted', () => createPrivateKey(pem.key as string), faults);
  if (certificate !== null && privateKey !== null)
    faults.push(...pairFaults(certificate, privateKey, { ...(pem as Pair), minVersion }));
  return faults.length === 0 ? { kind: 'good', pair: pem as Pair } : { kind: 'bad', faults };
}

/** What is wrong with `listen.tls` of a file, at its lines. */
export function tlsFaults({ listen }: ConfigDraft, root: Located, directory: string): Fault[] {
  const { cert, key, minVersion = 'TLSv1.2' } = listen?.tls ?? {};
  if (cert === undefined || key === undefined) return [];
  const material = readMaterial({ cert: pemSourceOf(cert, directory), key: pemSourceOf(key, directory), minVersion });
  if (material.kind === 'good') return [];
  return material.faults.map(({ of, expected, got }) => faultAt(root, ['listen', 'tls', of], expected, { got }));
}

/** What is wrong with the `tls` of those that the gateway connects to: upstreams and Redis. */
export function clientTlsFaults({ upstreams, store }: ConfigDraft, root: Located, directory: string): Fault[] {
  const redis = store?.kind === 'redis' ? store : undefined;
  return [
    ...Object.entries(upstreams ?? {}).flatMap(([name, upstream]) =>
      faultsOfClient(upstream?.tls, ['upstreams', name, 'tls'], root, directory),
    ),
    ...faultsOfClient(redis?.tls, ['store', 'tls'], root, directory),
    ...faultsOfClient(redis?.sentinel?.tls, ['store', 'sentinel', 'tls'], root, directory),
  ];
}

type ClientTlsDraft = {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
};

function faultsOfClient(tls: ClientTlsDraft | undefined, path: FieldPath, root: Located, directory: string): Fault[] {
  const { ca, cert, key } = tls ?? {};
  const faults: MaterialFault[] = [];
  if (ca !== undefined) {
    const pem = pemOf('ca', pemSourceOf(ca, directory), faults);
    if (pem !== null) parsed('ca', 'certificates in PEM', () => new X509Certificate(pem), faults);
  }
  if (cert !== undefined && key !== undefined) {
    const own = {
      cert: pemSourceOf(cert, directory),
      key: pemSourceOf(key, directory),
      minVersion: 'TLSv1.2',
    } as const;
    const material = readMaterial(own);
    if (material.kind === 'bad') faults.push(...material.faults);
  }
  return faults.map(({ of, expected, got }) => faultAt(root, [...path, of], expected, { got }));
}

function pemOf(of: MaterialFault['of'], source: PemSource, faults: MaterialFault[]): string | null {
  try {
    return pemText(source);
  } catch (error) {
    faults.push({ of, expected: `the PEM file ${source.kind === 'file' ? source.path : ''}`, got: reasonOf(error) });
    return null;
  }
}

/** What a source holds. Throws when its file cannot be read. */
export function pemText(source: PemSource): string {
  if (source.kind === 'text') return source.pem;
  const facts = statSync(source.path);
  // A device or a pipe could block for ever.
  if (!facts.isFile()) throw new Error('it is not a regular file');
  if (facts.size > MAX_PEM_BYTES) throw new Error('it is larger than 1MiB');
  return readFileSync(source.path, 'latin1');
}

function parsed<T>(of: MaterialFault['of'], expected: string, parse: () => T, faults: MaterialFault[]): T | null {
  try {
    return parse();
  } catch (error) {
    faults.push({ of, expected, got: `what OpenSSL refuses (${opensslReason(error)})` });
    return null;
  }
}

function pairFaults(
  certificate: X509Certificate,
  key: KeyObject,
  context: Pair & { minVersion: TlsConfig['minVersion'] },
): MaterialFault[] {
  if (!certificate.checkPrivateKey(key)) {
    return [{ of: 'key', expected: 'the private key of the certificate', got: 'that of another one' }];
  }
  try {
    createSecureContext(context);
    return [];
  } catch (error) {
    return [
      {
        of: 'cert',
        expected: 'a certificate and its chain in PEM',
        got: `what OpenSSL refuses (${opensslReason(error)})`,
      },
    ];
  }
}

/** Its last part says what; codes and names of routines before it are for developers of OpenSSL. */
function opensslReason(error: unknown): string {
  return reasonOf(error).split(':').at(-1) as string;
}
