/**
 * The certificate that a listener shows, and its renewal while the gateway runs.
 *
 * Invariants: what is in use was whole and fitted together when it was read; a pair that does not changes nothing and is
 * told; what has not changed is not told again. Directories are watched, not files: Kubernetes and others put new files
 * there by swapping a link, which a watch on the file misses from the second time on.
 */

import { X509Certificate } from 'node:crypto';
import { type FSWatcher, realpathSync, watch } from 'node:fs';
import { dirname } from 'node:path';
import type { SecureContextOptions } from 'node:tls';
import type { PemSource, TlsConfig } from '../config/config.js';
import { type MaterialFault, readMaterial } from '../config/tls-material.js';

/** Both files of a pair are written within this, as a rule. */
const SETTLE_MS = 200;
/** Where a file system tells nothing of its changes, they are seen by looking. */
const LOOK_EVERY_MS = 60_000;

export type CertificateNews =
  | { readonly kind: 'renewed'; readonly subject: string; readonly validTo: string }
  | { readonly kind: 'refused'; readonly faults: readonly MaterialFault[] };

export class Certificate {
  readonly #config: TlsConfig;
  readonly #watchers: FSWatcher[] = [];
  #context: SecureContextOptions;
  /** What was read last, good or bad. */
  #seen: string;
  #settling: NodeJS.Timeout | undefined;
  #looking: NodeJS.Timeout | undefined;
  #onContext: (context: SecureContextOptions) => void = () => {};
  #onNews: (news: CertificateNews) => void = () => {};

  /** Throws when the pair cannot be used. */
  constructor(config: TlsConfig) {
    this.#config = config;
    const material = readMaterial(config);
    if (material.kind === 'bad') throw new Error(`listen.tls: ${faultText(material.faults)}`);
    this.#context = { ...material.pair, minVersion: config.minVersion };
    this.#seen = JSON.stringify(material);
  }

  get context(): SecureContextOptions {
    return this.#context;
  }

  /** Tells of each new pair, and of each that is refused, from now on. */
  watch(onContext: (context: SecureContextOptions) => void, onNews: (news: CertificateNews) => void): void {
    this.#onContext = onContext;
    this.#onNews = onNews;
    const files = [this.#config.cert, this.#config.key].flatMap(pathsOf);
    if (files.length === 0) return;
    for (const directory of new Set(files.map(dirname))) this.#watchDirectory(directory);
    this.#looking = setInterval(() => this.reload(), LOOK_EVERY_MS).unref();
  }

  /** Reads the files again. */
  reload(): void {
    const material = readMaterial(this.#config);
    const seen = JSON.stringify(material);
    if (seen === this.#seen) return;
    this.#seen = seen;
    if (material.kind === 'bad') return this.#onNews({ kind: 'refused', faults: material.faults });
    this.#context = { ...material.pair, minVersion: this.#config.minVersion };
    this.#onContext(this.#context);
    const { subject, validTo } = new X509Certificate(material.pair.cert);
    this.#onNews({ kind: 'renewed', subject, validTo });
  }

  close(): void {
    clearTimeout(this.#settling);
    clearInterval(this.#looking);
    for (const watcher of this.#watchers) watcher.close();
  }

  #watchDirectory(directory: string): void {
    try {
      const watcher = watch(directory, { persistent: false }, () => this.#settle());
      // Of a directory that is gone, or cannot be watched, the regular look tells.
      watcher.on('error', () => watcher.close());
      this.#watchers.push(watcher);
    } catch {
      // As above.
    }
  }

  #settle(): void {
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => this.reload(), SETTLE_MS).unref();
  }
}

/** The file as it is named, and the one that a link leads to, which may be written in place elsewhere. */
function pathsOf(source: PemSource): string[] {
  if (source.kind === 'text') return [];
  try {
    return [source.path, realpathSync(source.path)];
  } catch {
    return [source.path];
  }
}

/** Faults in one clause. */
export function faultText(faults: readonly MaterialFault[]): string {
  return faults.map(({ of, expected, got }) => `${of}: expected ${expected}, got ${got}`).join('; ');
}
