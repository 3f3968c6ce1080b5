/** What raises each alert, in the series notation of `promtool test rules`, a value a minute; and a gateway that is well. */

export type Series = Readonly<Record<string, string>>;
export type AlertCase = {
  readonly alert: string;
  /** In place of, or beside, those of the gateway that is well. */
  readonly series: Series;
  /** Minutes at which it is not raised yet, at which it is, and, where that is not for ever, at which it is over. */
  readonly quiet: number;
  readonly raised: number;
  readonly over?: number;
  /** Of the alert, beside its severity. */
  readonly labels: Readonly<Record<string, string>>;
  /** Its value as the summary writes it. */
  readonly value?: string;
};

const WAITS = 'oneflight_follower_wait_seconds_bucket{job="gw",instance="a",route="r"';
const TURNS = 'oneflight_queue_wait_seconds_bucket{job="gw",instance="a",route="q"';

/** Counters that have counted, long ago, and go no further. */
export const WELL: Series = {
  'oneflight_build_info{job="gw",instance="a",version="1"}': '1x60',
  'oneflight_leases_lost_total{job="gw",instance="a",route="r"}': '3x60',
  'oneflight_unprotected_requests_total{job="gw",instance="a",route="r",reason="key-missing"}': '7x60',
  'oneflight_unsettled_flights_total{job="gw",instance="a",route="r"}': '1x60',
  'oneflight_requests_total{job="gw",instance="a",route="r",outcome="led"}': '0+60x60',
  'oneflight_requests_total{job="gw",instance="a",route="r",outcome="outcome-unknown"}': '2x60',
  'oneflight_requests_total{job="gw",instance="a",route="r",outcome="wait-timeout"}': '5x60',
  [`${WAITS},le="5"}`]: '0+60x60',
  [`${WAITS},le="10"}`]: '0+60x60',
  [`${WAITS},le="+Inf"}`]: '0+60x60',
  'oneflight_wait_limit_seconds{job="gw",instance="a",route="r"}': '10x60',
  'oneflight_wait_limit_seconds{job="gw",instance="a",route="q"}': '10x60',
  'oneflight_store_errors_total{job="gw",instance="a",operation="claim"}': '4x60',
  'oneflight_upstream_usable{job="gw",instance="a",upstream="api",address="x:1"}': '1x60',
  'oneflight_upstream_usable{job="gw",instance="a",upstream="api",address="y:1"}': '1x60',
  'oneflight_upstream_breaker_open{job="gw",instance="a",upstream="api"}': '0x60',
  'oneflight_config_reload_success{job="gw",instance="a"}': '1x60',
  'oneflight_shed_share{job="gw",instance="a"}': '0x60',
  'oneflight_overloaded_requests_total{job="gw",instance="a",route="r",reason="route"}': '9x60',
  'oneflight_workers_ended_total{job="gw",instance="a"}': '2x60',
  'oneflight_verified_responses_total{job="gw",instance="a",route="r",result="different"}': '1x60',
  'oneflight_verified_responses_total{job="gw",instance="a",route="r",result="same"}': '0+60x60',
};

const gw = { job: 'gw' };
const one = (name: string) => `oneflight_${name}{job="gw",instance="a",route="r"}`;

export const CASES: readonly AlertCase[] = [
  {
    alert: 'OneflightAbsent',
    series: { 'oneflight_build_info{job="gw",instance="a",version="1"}': '1x4 stale' },
    quiet: 7,
    raised: 12,
    labels: {},
  },
  {
    alert: 'OneflightSharedResponseDiffers',
    series: { 'oneflight_verified_responses_total{job="gw",instance="a",route="r",result="different"}': '0x5 1x55' },
    quiet: 5,
    raised: 7,
    labels: { job: 'gw', route: 'r' },
  },
  {
    alert: 'OneflightLeaseLost',
    series: { [one('leases_lost_total')]: '0x5 1x55' },
    quiet: 5,
    raised: 7,
    over: 20,
    labels: { ...gw, route: 'r' },
  },
  {
    alert: 'OneflightUnprotectedRequests',
    series: {
      'oneflight_unprotected_requests_total{job="gw",instance="a",route="r",reason="store-unavailable"}': '0x5 1+1x55',
    },
    quiet: 8,
    raised: 13,
    labels: { ...gw, route: 'r', reason: 'store-unavailable' },
  },
  {
    alert: 'OneflightUnsettledFlight',
    series: { [one('unsettled_flights_total')]: '0x5 1x55' },
    quiet: 5,
    raised: 7,
    over: 20,
    labels: { ...gw, route: 'r' },
  },
  {
    alert: 'OneflightOutcomeUnknown',
    series: { 'oneflight_requests_total{job="gw",instance="a",route="r",outcome="outcome-unknown"}': '0x5 1x55' },
    quiet: 5,
    raised: 7,
    over: 20,
    labels: { ...gw, route: 'r' },
  },
  {
    // Half of the followers wait for 5 to 10 seconds.
    alert: 'OneflightLongWaits',
    series: { [`${WAITS},le="5"}`]: '0+30x60' },
    quiet: 5,
    raised: 10,
    labels: { ...gw, route: 'r' },
    value: '9.9s',
  },
  {
    alert: 'OneflightLongWaits',
    series: { [`${TURNS},le="5"}`]: '0+30x60', [`${TURNS},le="10"}`]: '0+60x60', [`${TURNS},le="+Inf"}`]: '0+60x60' },
    quiet: 5,
    raised: 10,
    labels: { ...gw, route: 'q' },
    value: '9.9s',
  },
  {
    alert: 'OneflightWaitTimeouts',
    series: { 'oneflight_requests_total{job="gw",instance="a",route="r",outcome="wait-timeout"}': '0x5 1+1x55' },
    quiet: 8,
    raised: 13,
    labels: { ...gw, route: 'r' },
  },
  {
    alert: 'OneflightStoreErrors',
    series: { 'oneflight_store_errors_total{job="gw",instance="b",operation="claim"}': '0x5 3+3x55' },
    quiet: 6,
    raised: 10,
    labels: { ...gw, instance: 'b' },
  },
  {
    alert: 'OneflightUpstreamAddressDown',
    series: { 'oneflight_upstream_usable{job="gw",instance="a",upstream="api",address="y:1"}': '1x5 0x55' },
    quiet: 7,
    raised: 9,
    labels: { ...gw, upstream: 'api', address: 'y:1' },
  },
  {
    alert: 'OneflightUpstreamDown',
    series: { 'oneflight_upstream_usable{job="gw",instance="b",upstream="other",address="z:1"}': '1x5 0x55' },
    quiet: 6,
    raised: 8,
    labels: { ...gw, instance: 'b', upstream: 'other' },
  },
  {
    alert: 'OneflightBreakerOpen',
    series: { 'oneflight_upstream_breaker_open{job="gw",instance="a",upstream="api"}': '0x5 1x10 0x45' },
    quiet: 6,
    raised: 8,
    over: 20,
    labels: { ...gw, upstream: 'api' },
  },
  {
    alert: 'OneflightReloadFailed',
    series: { 'oneflight_config_reload_success{job="gw",instance="a"}': '1x5 0x20 1x35' },
    quiet: 10,
    raised: 12,
    over: 30,
    labels: { ...gw, instance: 'a' },
  },
  {
    alert: 'OneflightShedding',
    series: { 'oneflight_shed_share{job="gw",instance="a"}': '0x5 0.25x55' },
    quiet: 6,
    raised: 8,
    labels: { ...gw, instance: 'a' },
    value: '25%',
  },
  {
    alert: 'OneflightOverloaded',
    series: { 'oneflight_overloaded_requests_total{job="gw",instance="a",route="r",reason="requests"}': '0x5 1+1x55' },
    quiet: 8,
    raised: 13,
    labels: { ...gw, route: 'r', reason: 'requests' },
  },
  {
    alert: 'OneflightWorkersEnd',
    series: { 'oneflight_workers_ended_total{job="gw",instance="a"}': '0x5 1x55' },
    quiet: 5,
    raised: 7,
    over: 20,
    labels: { ...gw, instance: 'a' },
  },
];
