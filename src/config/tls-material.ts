/**
 * A certificate and its private key, from files or as text, and what is wrong with them.
 *
 * Invariant: nothing of a key is quoted, whatever is wrong with it.
 */

import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { ConfigDraft } from './check.js';
import type { PemSource, TlsConfig } from './config.js';
import type { Fault, FaultCode, FieldPath } from './fault.js';
import { FilesRead, folderOf, reasonOf } from './files-read.js';
import { faultAt, valueAt } from './locate.js';
import type { Located } from './source.js';

const LIMIT = { bytes: 1024 * 1024, text: '1MiB' } as const;

/** What is wrong with one of them, in the words that errors are made of. */
export type MaterialFault = {
  readonly of: 'ca' | 'cert' | 'key';
  readonly code: Extract<FaultCode, 'unreadable-file' | 'bad-value' | 'conflict'>;
  readonly expected: string;
  readonly got: string;
};
export type Pair = { readonly cert: string; readonly key: string };
export type Material =
  | { readonly kind: 'good'; readonly pair: Pair }
  | { readonly kind: 'bad'; readonly faults: MaterialFault[] };

/** A text that holds PEM, or else the path of a file. Relative paths begin in the directory of the file that says so. */
export function pemSourceOf(written: string, directory: string): PemSource {
  return written.includes('-----BEGIN ')
    ? { kind: 'text', pem: written }
    : { kind: 'file', path: resolve(directory, written) };
}

/** Reads both and sees whether they can be used together. */
export function readMaterial({ cert, key, minVersion }: TlsConfig, files = new FilesRead()): Material {
  const faults: MaterialFault[] = [];
  const pem = { cert: pemOf('cert', cert, faults, files), key: pemOf('key', key, faults, files) };
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
export function tlsFaults({ listen }: ConfigDraft, root: Located, files: FilesRead): Fault[] {
  const { cert, key, minVersion = 'TLSv1.2' } = listen?.tls ?? {};
  if (cert === undefined || key === undefined) return [];
  const directory = directoryAt(root, ['listen']);
  const pair = { cert: pemSourceOf(cert, directory), key: pemSourceOf(key, directory), minVersion };
  const material = readMaterial(pair, files);
  if (material.kind === 'good') return [];
  return material.faults.map(({ of, ...fault }) => faultAt(root, ['listen', 'tls', of], fault.expected, fault));
}

/** What is wrong with the `tls` of those that the gateway connects to: upstreams and Redis. */
export function clientTlsFaults({ upstreams, store }: ConfigDraft, root: Located, files: FilesRead): Fault[] {
  const redis = store?.kind === 'redis' ? store : undefined;
  return [
    ...Object.entries(upstreams ?? {}).flatMap(([name, upstream]) =>
      faultsOfClient(upstream?.tls, ['upstreams', name, 'tls'], root, files),
    ),
    ...faultsOfClient(redis?.tls, ['store', 'tls'], root, files),
    ...faultsOfClient(redis?.sentinel?.tls, ['store', 'sentinel', 'tls'], root, files),
  ];
}

type ClientTlsDraft = {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
};

function faultsOfClient(tls: ClientTlsDraft | undefined, path: FieldPath, root: Located, files: FilesRead): Fault[] {
  const { ca, cert, key } = tls ?? {};
  const directory = directoryAt(root, path);
  const faults: MaterialFault[] = [];
  if (ca !== undefined) {
    const pem = pemOf('ca', pemSourceOf(ca, directory), faults, files);
    if (pem !== null) parsed('ca', 'certificates in PEM', () => new X509Certificate(pem), faults);
  }
  if (cert !== undefined && key !== undefined) {
    const own = {
      cert: pemSourceOf(cert, directory),
      key: pemSourceOf(key, directory),
      minVersion: 'TLSv1.2',
    } as const;
    const material = readMaterial(own, files);
    if (material.kind === 'bad') faults.push(...material.faults);
  }
  return faults.map(({ of, ...fault }) => faultAt(root, [...path, of], fault.expected, fault));
}

/** Where the relative paths of a field begin: with the file that has it. */
export function directoryAt(root: Located, path: FieldPath): string {
  return folderOf((valueAt(root, path) ?? root).position.file);
}

function pemOf(of: MaterialFault['of'], source: PemSource, faults: MaterialFault[], files: FilesRead): string | null {
  try {
    return pemText(source, files);
  } catch (error) {
    const expected = `the PEM file ${source.kind === 'file' ? source.path : ''}`;
    faults.push({ of, code: 'unreadable-file', expected, got: reasonOf(error) });
    return null;
  }
}

/** What a source holds. Throws when its file cannot be read. */
export function pemText(source: PemSource, files = new FilesRead()): string {
  return source.kind === 'text' ? source.pem : files.bytesOf(source.path, LIMIT).toString('latin1');
}

function parsed<T>(of: MaterialFault['of'], expected: string, parse: () => T, faults: MaterialFault[]): T | null {
  try {
    return parse();
  } catch (error) {
    faults.push({ of, code: 'bad-value', expected, got: `what OpenSSL refuses (${opensslReason(error)})` });
    return null;
  }
}

function pairFaults(
  certificate: X509Certificate,
  key: KeyObject,
  context: Pair & { minVersion: TlsConfig['minVersion'] },
): MaterialFault[] {
  if (!certificate.checkPrivateKey(key)) {
    return [
      { of: 'key', code: 'conflict', expected: 'the private key of the certificate', got: 'that of another one' },
    ];
  }
  try {
    createSecureContext(context);
    return [];
  } catch (error) {
    return [
      {
        of: 'cert',
        code: 'bad-value',
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
