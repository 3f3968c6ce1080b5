/** Spans as OTLP has them: the JSON encoding of its trace request (opentelemetry-proto, `ExportTraceServiceRequest`). */

import type { SpanContext } from '../core/trace-context.js';

/** Flat: name, value, name, value … An object of them would be the most of what a span costs. */
export type Attributes = readonly (string | number)[];

/** A span that is over. Times in milliseconds since 1970, with parts of them. */
export type Span = SpanContext & {
  /** Span that it is a part of; empty: it is the first of its trace. */
  readonly parentSpanId: string;
  /** Whose span that is. */
  readonly parent: 'none' | 'own' | 'remote';
  /** Of the request that came, as it came; empty: none. */
  readonly traceState: string;
  readonly name: string;
  readonly kind: 'internal' | 'server' | 'client';
  readonly startedAtMs: number;
  readonly endedAtMs: number;
  readonly attributes: Attributes;
  readonly links: readonly SpanContext[];
  readonly status: 'unset' | 'error';
};

const KINDS = { internal: 1, server: 2, client: 3 } as const;
const STATUS_ERROR = 2;
const SAMPLED = 0x01;
/** Whether the parent is remote is known, and that it is. */
const KNOWS_REMOTE = 0x100;
const REMOTE = 0x200;

/** One request of the protocol. */
export function encodeSpans(spans: readonly Span[], resource: Attributes, version: string): string {
  return JSON.stringify({
    resourceSpans: [
      {
        resource: { attributes: attributesOf(resource) },
        scopeSpans: [{ scope: { name: 'oneflight', version }, spans: spans.map(encoded) }],
      },
    ],
  });
}

function encoded(span: Span): object {
  const { traceId, spanId, parentSpanId, parent, traceState, name, kind, links, status } = span;
  return {
    traceId,
    spanId,
    ...(parent === 'none' ? {} : { parentSpanId }),
    ...(traceState === '' ? {} : { traceState }),
    flags: SAMPLED | KNOWS_REMOTE | (parent === 'remote' ? REMOTE : 0),
    name,
    kind: KINDS[kind],
    startTimeUnixNano: nanosecondsOf(span.startedAtMs),
    endTimeUnixNano: nanosecondsOf(span.endedAtMs),
    attributes: attributesOf(span.attributes),
    links: links.map((link) => ({ ...link, flags: SAMPLED })),
    status: status === 'error' ? { code: STATUS_ERROR } : {},
  };
}

/** Microseconds are what such a number can hold. 64-bit integers are texts in the JSON of protocol buffers. */
function nanosecondsOf(ms: number): string {
  return `${Math.round(ms * 1000)}000`;
}

function attributesOf(attributes: Attributes): object[] {
  const encoded: object[] = [];
  for (let i = 0; i + 1 < attributes.length; i += 2) {
    const value = attributes[i + 1];
    encoded.push({
      key: attributes[i],
      value: typeof value === 'string' ? { stringValue: value } : { intValue: String(value) },
    });
  }
  return encoded;
}
