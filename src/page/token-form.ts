/** Asks for the token of the admin listener. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

export type TokenFormProps = {
  /** What the gateway was last asked with. */
  readonly was: 'none' | 'wrong';
  readonly onToken: (token: string) => void;
};

export function TokenForm({ was, onToken }: TokenFormProps): VNode {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    const token = field.current?.value.trim() ?? '';
    if (token !== '') onToken(token);
  };
  const isWrong = was === 'wrong';
  return html`<main class="door">
    <form class="panel" onSubmit=${onSubmit}>
      <h1><img src="page.svg" alt="" width="28" height="28" /> Oneflight</h1>
      <label for="token">Token of the admin listener</label>
      <input
        id="token"
        ref=${field}
        type="password"
        required
        autocomplete="off"
        spellcheck=${false}
        aria-invalid=${isWrong}
        aria-describedby="token-note"
      />
      <p id="token-note" class=${isWrong ? 'fault' : 'note'} role=${isWrong ? 'alert' : undefined}>
        ${
          isWrong
            ? 'The gateway did not take this token.'
            : 'It is admin.token of the configuration. The page keeps it until the tab is closed.'
        }
      </p>
      <button type="submit" class="first">Show the gateway</button>
    </form>
  </main>`;
}
