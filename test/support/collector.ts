/** A collector of traces on a real socket, as the gateway sends them: OTLP over HTTP, JSON. */

import { eventually } from './gate.js';
import type { Scope } from './gateway.js';
import { type Call, type StubUpstream, startUpstream } from './upstream.js';

type Value = { readonly stringValue?: string; readonly intValue?: string };
type Attribute = { readonly key: string; readonly value: Value };

type Exported = {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] };
    readonly scopeSpans: readonly { readonly spans: readonly RawSpan[] }[];
  }[];
};

type RawSpan = {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly traceState?: string;
  readonly flags: number;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly Attribute[];
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  readonly status: { readonly code?: number };
};

export type SeenSpan = Omit<RawSpan, 'attributes'> & {
  readonly attributes: Readonly<Record<string, string>>;
  readonly resource: Readonly<Record<string, string>>;
};

export const KIND = { internal: 1, server: 2, client: 3 } as const;

export class Collector {
  constructor(readonly stub: StubUpstream) {}

  get url(): string {
    return this.stub.url;
  }

  get posts(): readonly Call[] {
    return this.stub.callsOf('/v1/traces');
  }

  /** All that has come. */
  get spans(): SeenSpan[] {
    return this.posts.flatMap((call) => {
      if (call.content === null) return [];
      const { resourceSpans } = JSON.parse(call.content.toString()) as Exported;
      return resourceSpans.flatMap(({ resource, scopeSpans }) =>
        scopeSpans.flatMap(({ spans }) =>
          spans.map((span) => ({
            ...span,
            attributes: plain(span.attributes),
            resource: plain(resource.attributes),
          })),
        ),
      );
    });
  }

  /** Those of one kind, when there are so many. */
  async seen(count: number, kind: keyof typeof KIND, name?: string): Promise<SeenSpan[]> {
    const some = () =>
      this.spans.filter((span) => span.kind === KIND[kind] && (name === undefined || span.name === name));
    await eventually(`${count} ${kind} spans ${name ?? ''}`, () => some().length >= count);
    return some();
  }
}

function plain(attributes: readonly Attribute[]): Record<string, string> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue ?? '']));
}

export async function startCollector(t: Scope): Promise<Collector> {
  return new Collector(await startUpstream(t));
}
