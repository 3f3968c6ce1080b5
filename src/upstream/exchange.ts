/** What goes to an upstream, who hears how it goes, and the handle of whoever started it: the same for every transport. */

import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type { UpstreamFailure } from './failure.js';

export type UpstreamRequest = {
  readonly method: string;
  /** The client's own target, byte for byte. */
  readonly target: string;
  /** Flat field lines, ready to be sent. */
  readonly fields: readonly string[];
  /** Content in a stream is made anew for each attempt; it takes nothing from the client before it is read. */
  readonly content: Buffer | (() => Readable) | null;
  /** Trailer field lines of chunked content, to be asked for at its end; null: it is delimited otherwise and has none. */
  readonly trailers: (() => readonly string[]) | null;
};

/** The same for one attempt. */
export type SendableRequest = Omit<UpstreamRequest, 'content'> & { readonly content: Buffer | Readable | null };

/** Who hears how the exchange goes. Field lists are flat and latin1. */
export interface ForwardSink {
  /**
   * The request is about to be written to a connected socket; false gives it up, with nothing written. Asked again for a
   * repetition.
   */
  onSend(): boolean;
  /** An interim response (1xx). */
  onInterim(status: number, fields: string[]): void;
  onFields(status: number, reason: string, fields: string[]): void;
  /** False pauses the upstream until `resume`. */
  onContent(chunk: Buffer): boolean;
  onEnd(trailers: string[]): void;
  onFailure(failure: UpstreamFailure): void;
}

/** Who can take an upstream's connection over when it has switched protocols. */
export interface UpgradeSink extends ForwardSink {
  /**
   * The upstream has answered 101: the connection is the sink's from here on, and neither `onEnd` nor `onFailure` follows.
   * What came right behind the fields is still to be read from it.
   */
  onSwitched(reason: string, fields: string[], socket: Socket): void;
}

/** The running exchange, as its starter holds it. */
export interface Exchange {
  /** Ends the upstream call at once; the sink hears nothing more. */
  abort(): void;
  resume(): void;
  /** Whether the request was handed to a connected socket. */
  readonly sent: boolean;
}

/** An exchange whose connection may become the client's. */
export interface UpgradeExchange extends Exchange {
  /** The client has ended its side of the connection: so does the gateway towards the upstream. */
  endSending(): void;
}
