/**
 * What the live page is told every second: the form of `GET /events`. It is all there is between the page and the gateway
 * that sends it, so that it imports nothing of either.
 */

/** A histogram as Prometheus has it: how many were at most each bound, and how many there were in all (last). */
export type Histogram = {
  /** Upper bounds, seconds, without the last one, which is infinite. */
  readonly boundsS: readonly number[];
  readonly counts: readonly number[];
  readonly sumS: number;
};

/** Counted since the gateway began. */
export type RouteFigures = {
  readonly route: string;
  /** Requests that are over, by the label of their outcome. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly upstreamCalls: number;
  /** Histograms by the name of the metric. */
  readonly times: Readonly<Record<string, Histogram>>;
  /** Every other metric of the route by its name, summed over its further labels. */
  readonly others: Readonly<Record<string, number>>;
  /** Of these with further labels: what there is of each, by the values of those labels. */
  readonly kinds: Readonly<Record<string, Readonly<Record<string, number>>>>;
};

export type AddressFigures = {
  readonly address: string;
  readonly isUsable: boolean;
  readonly pending: number;
};

export type UpstreamFigures = {
  readonly upstream: string;
  readonly addresses: readonly AddressFigures[];
  /** Every other metric of the upstream by its name, summed over its further labels. */
  readonly others: Readonly<Record<string, number>>;
};

/** The metrics of one gateway, all its workers together. */
export type Figures = {
  readonly version: string;
  readonly routes: readonly RouteFigures[];
  readonly upstreams: readonly UpstreamFigures[];
  /** Over all questions to the store; null: none was asked yet. */
  readonly storeTimes: Histogram | null;
  readonly storeErrors: number;
  /** Metrics without a label, by name. */
  readonly plain: Readonly<Record<string, number>>;
};

/** A key that a flight has, or had when its outcome became unknown: an entry of `GET /flights`. */
export type ListedFlight = {
  readonly key: string;
  readonly flight: string;
  readonly route: string;
  /** The process that leads it, or led it; null: not known. */
  readonly leader: string | null;
  readonly ageMs: number;
  /** Until the lease passes (in flight) or the key is free again (unknown). */
  readonly leftMs: number;
  /** Processes that wait for it; of a queue, requests that wait for a turn. */
  readonly waiting: number;
};

/** Which of them a list shows: `oldest` of all, or `some`, of more than were looked at. */
export type Extent = 'all' | 'oldest' | 'some';

/** The flights of all gateways that share the store. */
export type Listing =
  | {
      readonly kind: 'listed';
      readonly inFlight: readonly ListedFlight[];
      readonly unknown: readonly ListedFlight[];
      readonly extent: { readonly inFlight: Extent; readonly unknown: Extent };
      /** How old the list is: a large store is walked through less often. */
      readonly agoMs: number;
    }
  | { readonly kind: 'unavailable'; readonly error: string };

export type Health = {
  readonly ready: boolean;
  /** What was looked at, and `ok` or what is wrong with it. */
  readonly checks: Readonly<Record<string, string>>;
  /** How the files of the configuration stand to what is in use; null: it came from none. */
  readonly config: {
    readonly file: string;
    readonly goodAt: string;
    readonly errors: readonly string[];
    readonly needsRestart: readonly string[];
  } | null;
};

export type Snapshot = {
  /** By the gateway's clock, milliseconds since 1970. */
  readonly atMs: number;
  readonly health: Health;
  readonly flights: Listing;
  readonly figures: Figures;
};
