/**
 * The certificate that a listener shows, and its renewal while the gateway runs.
 *
 * Invariants: what is in use was whole and fitted together when it was read; a pair that does not changes nothing and is
 * told; what has not changed is not told again.
 */

import { X509Certificate } from 'node:crypto';
import type { SecureContextOptions } from 'node:tls';
import type { TlsConfig } from '../config/config.js';
import { FileWatch } from '../config/file-watch.js';
import { type MaterialFault, type Pair, readMaterial } from '../config/tls-material.js';

export type CertificateNews =
  | { readonly kind: 'renewed'; readonly subject: string; readonly validTo: string }
  | { readonly kind: 'refused'; readonly faults: readonly MaterialFault[] };

export class Certificate {
  readonly #config: TlsConfig;
  readonly #watch = new FileWatch(() => this.reload());
  #pair: Pair;
  /** What was read last, good or bad. */
  #seen: string;
  #onContext: (context: SecureContextOptions) => void = () => {};
  #onNews: (news: CertificateNews) => void = () => {};

  /** `inUse`: the pair that others show, for when that of the files cannot be used. Throws when there is none at all. */
  constructor(config: TlsConfig, inUse: Pair | null = null) {
    this.#config = config;
    const material = readMaterial(config);
    const pair = material.kind === 'good' ? material.pair : inUse;
    if (pair === null) throw new Error(`listen.tls: ${material.kind === 'bad' ? faultText(material.faults) : ''}`);
    this.#pair = pair;
    this.#seen = JSON.stringify(material);
  }

  /** What is shown now. */
  get pair(): Pair {
    return this.#pair;
  }

  get context(): SecureContextOptions {
    return { ...this.#pair, minVersion: this.#config.minVersion };
  }

  /** Tells of each new pair, and of each that is refused, from now on. */
  watch(onContext: (context: SecureContextOptions) => void, onNews: (news: CertificateNews) => void): void {
    this.#onContext = onContext;
    this.#onNews = onNews;
    if (this.#files.length > 0) this.#watch.watch(this.#files);
  }

  /** Reads the files again. */
  reload(): void {
    // A link may lead elsewhere now.
    if (this.#files.length > 0) this.#watch.watch(this.#files);
    const material = readMaterial(this.#config);
    const seen = JSON.stringify(material);
    if (seen === this.#seen) return;
    this.#seen = seen;
    if (material.kind === 'bad') return this.#onNews({ kind: 'refused', faults: material.faults });
    this.#pair = material.pair;
    this.#onContext(this.context);
    const { subject, validTo } = new X509Certificate(material.pair.cert);
    this.#onNews({ kind: 'renewed', subject, validTo });
  }

  close(): void {
    this.#watch.close();
  }

  get #files(): string[] {
    return [this.#config.cert, this.#config.key].flatMap((source) => (source.kind === 'file' ? [source.path] : []));
  }
}

/** Faults in one clause. */
export function faultText(faults: readonly MaterialFault[]): string {
  return faults.map(({ of, expected, got }) => `${of}: expected ${expected}, got ${got}`).join('; ');
}
