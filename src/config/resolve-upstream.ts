/** A checked upstream → what the gateway reads of it. */

import { normalisePath } from '../core/target.js';
import { comparedName, type FieldEdits } from '../http/edits.js';
import type { AddressConfig, ConnectionLimits, EjectRule, HealthRule, UpstreamConfig, UpstreamTls } from './config.js';
import { socketPathOf } from './forms.js';
import { statusRangeOf } from './statuses.js';
import { pemSourceOf, pemText } from './tls-material.js';
import { durationMs } from './units.js';
import { DEFAULT_EJECT, type EditsOutput, type UpstreamOutput } from './upstream-schema.js';

/** `directory`: where relative paths begin. */
export function upstreamOf(name: string, upstream: UpstreamOutput, directory: string): UpstreamConfig {
  const addresses = [upstream.urls ?? upstream.url ?? []].flat().map(addressOf);
  const { timeouts, tls, breaker, stripPrefix, headers } = upstream;
  return {
    name,
    addresses,
    balance: upstream.balance,
    protocol: upstream.http2 ? 'h2' : 'http/1.1',
    connectTimeoutMs: durationMs(timeouts.connect),
    headersTimeoutMs: durationMs(timeouts.headers),
    bodyTimeoutMs: durationMs(timeouts.body),
    maxConnectionAgeMs: durationMs(upstream.maxConnectionAge),
    retries: upstream.retries,
    eject: ejectOf(upstream.eject, addresses.length > 1),
    breaker: breaker === undefined ? null : { failures: breaker.failures, forMs: durationMs(breaker.for) },
    failureStatuses: upstream.failureStatuses.map(statusRangeOf),
    health: healthOf(upstream.health),
    connections: connectionsOf(upstream.connections),
    tls: tlsOf(tls, directory),
    preserveHost: upstream.preserveHost,
    stripPrefix: stripPrefix === undefined ? null : normalisePath(stripPrefix),
    edits: { request: editsOf(headers.request), response: editsOf(headers.response) },
  };
}

/** The address that a checked text names. */
export function addressOf(text: string): AddressConfig {
  const socketPath = socketPathOf(text);
  if (socketPath !== null) return { name: text, url: new URL('http://localhost'), socketPath };
  const url = new URL(text);
  return {
    name: url.port === '' ? `${url.hostname}:${url.protocol === 'https:' ? 443 : 80}` : url.host,
    url,
    socketPath,
  };
}

function ejectOf(eject: UpstreamOutput['eject'], isOneOfSeveral: boolean): EjectRule | null {
  const written = eject ?? (isOneOfSeveral ? DEFAULT_EJECT : false);
  return written === false ? null : { failures: written.failures, forMs: durationMs(written.for) };
}

function tlsOf(tls: UpstreamOutput['tls'], directory: string): UpstreamTls {
  const pem = (written: string | undefined) =>
    written === undefined ? null : pemText(pemSourceOf(written, directory));
  return {
    ca: pem(tls?.ca),
    cert: pem(tls?.cert),
    key: pem(tls?.key),
    serverName: tls?.serverName ?? null,
    verify: tls?.verify ?? true,
  };
}

function healthOf(health: UpstreamOutput['health']): HealthRule | null {
  if (health === undefined) return null;
  return {
    path: health.path,
    fields: Object.entries(health.headers).flat(),
    everyMs: durationMs(health.every),
    timeoutMs: durationMs(health.timeout),
    statuses: health.statuses.map(statusRangeOf),
    healthy: health.healthy,
    unhealthy: health.unhealthy,
  };
}

function connectionsOf(connections: UpstreamOutput['connections']): ConnectionLimits | null {
  if (connections === undefined) return null;
  const { max, queue, wait } = connections;
  return { max, queue, waitMs: durationMs(wait) };
}

function editsOf(edits: EditsOutput | undefined): FieldEdits | null {
  if (edits === undefined) return null;
  const { set, add, remove } = edits;
  const removed = new Set([...remove, ...Object.keys(set)].map(comparedName));
  const added = Object.entries(add).flatMap(([name, values]) => [values].flat().flatMap((value) => [name, value]));
  return { removed, added: [...Object.entries(set).flat(), ...added] };
}
