/**
 * Asks what became of a request before it is settled. It names the flight that was looked at, so that another one that has
 * the key by then is left alone.
 */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Answer, GatewayClient } from './gateway-client.js';
import type { ListedFlight } from './snapshot.js';
import { durationText } from './wording.js';

export type Settled = { readonly kind: 'settled' | 'refused'; readonly text: string };

export type SettleDialogProps = {
  readonly client: GatewayClient;
  readonly flight: ListedFlight;
  /** Null: nothing was done. */
  readonly onDone: (settled: Settled | null) => void;
};

type As = 'free' | 'response';

export function SettleDialog({ client, flight, onDone }: SettleDialogProps): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  const cancel = useRef<HTMLButtonElement>(null);
  const [as, setAs] = useState<As>('free');
  const [stage, setStage] = useState<'asking' | 'sending'>('asking');
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    // What does nothing is what the next key press meets.
    cancel.current?.focus();
    // A row that is gone by then has no button to go back to.
    return () => (before instanceof HTMLElement && before.isConnected ? before.focus() : undefined);
  }, []);
  const onSubmit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    setStage('sending');
    // What somebody else has settled meanwhile stays as it is.
    const meant = { flight: flight.flight, state: 'unknown' };
    const answer = await client.post(`flights/${flight.key}/settle`, { ...bodyOf(as, form), ...meant });
    onDone(settledOf(answer, flight, as));
  };
  return html`<dialog ref=${dialog} aria-labelledby="settle-title" onClose=${() => onDone(null)}>
    <form onSubmit=${onSubmit}>
      <h2 id="settle-title">Settle this outcome?</h2>
      <p>
        A request of <b>${flight.route}</b> was sent ${durationText(flight.ageMs)} ago, and no answer came. Look in the API
        what became of it.
      </p>
      <p class="digest"><code>${flight.key}</code></p>
      <fieldset>
        <legend>What became of it</legend>
        <label class="choice">
          <input type="radio" name="as" value="free" checked=${as === 'free'} onChange=${() => setAs('free')} />
          <span>It was not executed, or may be again: free the key. The next request runs.</span>
        </label>
        <label class="choice">
          <input type="radio" name="as" value="response" checked=${as === 'response'} onChange=${() => setAs('response')} />
          <span>It was executed: give repeats this answer.</span>
        </label>
      </fieldset>
      ${as === 'response' ? html`<${ResponseFields} />` : null}
      <div class="buttons">
        <button type="button" ref=${cancel} onClick=${() => dialog.current?.close()}>Cancel</button>
        <button type="submit" class="danger" disabled=${stage === 'sending'}>
          ${as === 'free' ? 'Free the key' : 'Settle with this answer'}
        </button>
      </div>
    </form>
  </dialog>`;
}

function ResponseFields(): VNode {
  return html`<div class="fields">
    <label>Status <input name="status" type="number" min="200" max="599" required defaultValue="200" /></label>
    <label>Content-Type <input name="type" defaultValue="application/json" autocomplete="off" spellcheck=${false} /></label>
    <label class="wide">Content <textarea name="content" rows="4" spellcheck=${false}></textarea></label>
  </div>`;
}

function bodyOf(as: As, form: FormData): object {
  if (as === 'free') return { as };
  const type = String(form.get('type') ?? '').trim();
  return {
    as,
    status: Number(form.get('status')),
    fields: type === '' ? [] : [['Content-Type', type]],
    content: String(form.get('content') ?? ''),
  };
}

function settledOf(answer: Answer, { route }: ListedFlight, as: As): Settled {
  switch (answer.kind) {
    case 'ok':
      return {
        kind: 'settled',
        text: as === 'free' ? `The key of ${route} is free.` : `Repeats of ${route} get your answer.`,
      };
    case 'refused':
      return { kind: 'refused', text: `Not settled: ${answer.error}.` };
    case 'unreachable':
      return { kind: 'refused', text: 'Whether it is settled is not known: the gateway did not answer.' };
  }
}
