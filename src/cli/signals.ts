/**
 * The signals of a gateway's process, listened for before anything else is loaded.
 *
 * Invariants: the first SIGTERM or SIGINT drains, a second one ends at once; SIGHUP never ends the process, and one that
 * comes while the gateway starts is not lost; no signal opens a debugger.
 */

import { FAILED } from './exit-code.js';

export type Signals = {
  /** Settles at the first SIGTERM or SIGINT. */
  readonly first: Promise<NodeJS.Signals>;
  /** One listener for SIGHUP, called at once if there was one before. */
  whenHungUp(listener: () => void): void;
  stop(): void;
};

export function listenForSignals(): Signals {
  let seen = false;
  let hungUp = false;
  let hangUp = (): void => {
    hungUp = true;
  };
  let settle: (signal: NodeJS.Signals) => void = () => {};
  const first = new Promise<NodeJS.Signals>((resolve) => {
    settle = resolve;
  });
  const onSignal = (signal: NodeJS.Signals): void => {
    // Whoever sends a second one does not want to wait for the drain.
    if (seen) process.exit(FAILED);
    seen = true;
    settle(signal);
  };
  const onHangUp = (): void => hangUp();
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('SIGHUP', onHangUp);
  // Without a listener Node opens a port for debuggers, which anybody on the machine may use.
  process.on('SIGUSR1', () => {});
  return {
    first,
    whenHungUp: (listener) => {
      hangUp = listener;
      if (hungUp) listener();
    },
    stop: () => {
      process.off('SIGTERM', onSignal);
      process.off('SIGINT', onSignal);
      process.off('SIGHUP', onHangUp);
    },
  };
}
