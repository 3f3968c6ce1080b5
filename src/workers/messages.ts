/** What parent and worker say to each other beside the store: orders one way, words the other. */

import type { LogLevel } from '../config/config.js';
import type { Pair } from '../config/tls-material.js';
import type { Figures } from '../observe/metrics.js';
import type { PortableConfig } from './portable-config.js';

/** What the parent asks; each is answered once, by a word with its id. */
export type Asked =
  | { readonly kind: 'readiness' }
  | { readonly kind: 'figures' }
  /** Read what it reads for itself again: the certificate. */
  | { readonly kind: 'reload' }
  | { readonly kind: 'log-level'; readonly level: LogLevel }
  /** Take another configuration into use, that of the whole gateway. */
  | { readonly kind: 'take'; readonly config: PortableConfig };

/** To a worker. */
export type Order =
  /** The first: the configuration of the whole gateway, the worker's number, from 1, and how many they are. */
  | {
      readonly kind: 'begin';
      readonly worker: number;
      readonly count: number;
      readonly version: string;
      readonly config: PortableConfig;
      /** The certificate that the others show; null: none, requests come in clear. */
      readonly pair: Pair | null;
      /** That of the configuration, or what an operator has said since. */
      readonly logLevel: LogLevel;
    }
  | { readonly kind: 'ask'; readonly id: number; readonly asked: Asked }
  /** End what is in progress, accept no more, and exit. */
  | { readonly kind: 'drain' };

/** From a worker. */
export type Word =
  /** It hears orders from now on; earlier ones would be lost. */
  | { readonly kind: 'here' }
  | { readonly kind: 'listening'; readonly url: string }
  /** It could not begin, and exits. */
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'answer'; readonly id: number; readonly value: unknown }
  /** What was asked could not be done. */
  | { readonly kind: 'refused'; readonly id: number; readonly reason: string }
  /** Unasked, every second and at its end: what is counted by a worker that is killed is lost from here on. */
  | { readonly kind: 'figures'; readonly figures: Figures };

/** Where a worker finds its channel to the store: behind the standard streams and the way of orders and words. */
export const STORE_FD = 4;
