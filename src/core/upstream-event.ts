/** What an upstream tells those who watch it. They never change what happens. */

export type UpstreamEvent =
  /** An attempt failed with nothing done, and another one is made. */
  | { readonly kind: 'retried'; readonly address: string; readonly cause: string }
  /** Requests to an address failed in a row: it is left out for a while. `cause`: of the last; a status where it answered. */
  | { readonly kind: 'ejected'; readonly address: string; readonly forMs: number; readonly cause: string }
  /** An address that had been ejected answers. */
  | { readonly kind: 'restored'; readonly address: string }
  /** Health checks of an address fail, or pass, again. `cause`: what the last one ended in. */
  | { readonly kind: 'down' | 'up'; readonly address: string; readonly cause: string }
  /** The circuit breaker opened: nothing is sent for a while. */
  | { readonly kind: 'opened'; readonly cause: string }
  | { readonly kind: 'closed' };

/** How things stand with an upstream, for metrics. */
export type UpstreamState = {
  readonly addresses: readonly { readonly name: string; readonly isUsable: boolean; readonly pending: number }[];
  readonly waiting: number;
  readonly isOpen: boolean;
};
