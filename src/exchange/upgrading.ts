/**
 * Forwarding of a request that offers to switch protocols (RFC 9110 section 7.8), for traffic without a key.
 *
 * Invariants: the upstream decides, and what it answers is what the client gets: any status but 101 is an ordinary
 * response. Of what the client sends behind its request nothing reaches the upstream before a 101, where it would be
 * read as a second request; it is kept in the connection, which is read no further than that.
 */

import type { Socket } from 'node:net';
import type { Outcome } from '../core/outcome.js';
import { offeringFields, switchingFields } from '../http/upgrade.js';
import type { UpgradeExchange, UpgradeSink, Upstream } from '../upstream/upstream.js';
import type { Caller } from './caller.js';
import type { CallPlace } from './calls.js';
import type { ExchangeObserver } from './observer.js';
import { Passing, type PassOptions, placeFor, upstreamRequest } from './passing.js';
import { upgrade } from './traced-call.js';
import { joinConnections, reset } from './tunnel.js';

const PASSED: Outcome = { kind: 'passed' };

/**
 * Forwards a request together with its offer; the upstream's answer decides what becomes of the connection. `outcome` is
 * what the request ends as when that is an ordinary response.
 */
export function passUpgrade(
  caller: Caller,
  offer: string,
  upstream: Upstream,
  options: PassOptions,
  outcome: Outcome = PASSED,
): void {
  const place = placeFor(caller, options);
  if (place !== null) new Upgrading(caller, offer, options.observer, place, outcome).start(upstream);
}

class Upgrading extends Passing implements UpgradeSink {
  readonly #offer: string;
  #upgrade: UpgradeExchange | null = null;

  constructor(caller: Caller, offer: string, observer: ExchangeObserver, place: CallPlace, outcome: Outcome) {
    super(caller, outcome, observer, place);
    this.#offer = offer;
  }

  override start(upstream: Upstream): void {
    const { caller } = this;
    if (caller.gone) return this.place.leave();
    caller.whenLeft(() => {
      this.place.leave();
      this.#upgrade?.abort();
    });
    const request = upstreamRequest(caller, upstream);
    const fields = offeringFields(request.fields, this.#offer);
    this.#upgrade = upgrade(caller, upstream, { ...request, fields }, this);
    this.exchange = this.#upgrade;
    caller.req.socket.on('readable', this.#onReadable).once('end', this.#onEnd);
  }

  onSwitched(reason: string, fields: string[], socket: Socket): void {
    const { caller, observer } = this;
    this.tellAnswered();
    if (caller.gone) {
      this.place.leave();
      return reset(socket);
    }
    const client = caller.switchProtocols(reason, switchingFields(fields));
    client.off('readable', this.#onReadable).off('end', this.#onEnd);
    observer.upgrades(caller.route, 1);
    caller.whenOver(() => {
      this.place.leave();
      observer.upgrades(caller.route, -1);
    });
    joinConnections(client, socket);
  }

  /** Bytes stay where they are. Without any, reading tells of the end. */
  readonly #onReadable = (): void => {
    const { socket } = this.caller.req;
    if (socket.readableLength === 0) socket.read();
  };

  /** The client has sent nothing more and ended its side: so does the gateway; the answer may still come. */
  readonly #onEnd = (): void => this.#upgrade?.endSending();
}
