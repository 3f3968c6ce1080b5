/** What the gateway would make of a request: nothing is claimed, and nothing is sent to an upstream. */

import { html } from 'htm/preact';
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { type Explained, Explanation } from './explanation.js';
import type { Answer, GatewayClient } from './gateway-client.js';
import { Panel } from './panel.js';

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];

export function ExplainPanel({ client }: { readonly client: GatewayClient }): VNode {
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [fault, setFault] = useState<string | null>(null);
  const onSubmit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const asked = readAsked(new FormData(event.target as HTMLFormElement));
    setFault(asked.kind === 'bad' ? asked.why : null);
    if (asked.kind === 'good') setAnswer(await client.post('explain', asked.body));
  };
  const note = 'What would become of a request. Nothing is claimed, nothing is sent.';
  return html`<${Panel} id="explain" title="Explain" note=${note}>
    <form class="explain" aria-label="Explain a request" onSubmit=${onSubmit}>
      <div class="fields">
        <label>Method <input name="method" list="methods" defaultValue="GET" required autocomplete="off" /></label>
        <datalist id="methods">${METHODS.map((method) => html`<option key=${method} value=${method} />`)}</datalist>
        <label class="grow">
          Target
          <input name="target" required placeholder="/orders?page=2" autocomplete="off" spellcheck=${false} />
        </label>
        <label class="half">
          Header fields, one a line
          <textarea name="headers" rows="3" placeholder="Idempotency-Key: abc" spellcheck=${false}></textarea>
        </label>
        <label class="half">Content <textarea name="content" rows="3" spellcheck=${false}></textarea></label>
      </div>
      <div class="buttons">
        <label class="choice"><input type="checkbox" name="live" /> <span>Ask the store who has the key now</span></label>
        <label class="choice"><input type="checkbox" name="showValues" /> <span>Show the values of the key</span></label>
        <button type="submit" class="first">Explain</button>
      </div>
    </form>
    <div role="status" class="answer">${fault === null ? answered(answer) : html`<p class="fault">${fault}</p>`}</div>
  <//>`;
}

function answered(answer: Answer | null): VNode | null {
  if (answer === null) return null;
  if (answer.kind === 'ok') return html`<${Explanation} explained=${answer.content as Explained} />`;
  const text = answer.kind === 'refused' ? answer.error : 'The gateway did not answer.';
  return html`<p class="fault">${text}</p>`;
}

type Asked = { readonly kind: 'good'; readonly body: object } | { readonly kind: 'bad'; readonly why: string };

/** The body of `POST /explain`. */
function readAsked(form: FormData): Asked {
  const text = (name: string): string => String(form.get(name) ?? '');
  const lines = text('headers')
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const odd = lines.find((line) => line.indexOf(':') < 1);
  if (odd !== undefined) return { kind: 'bad', why: `"${odd}" is no header field: Name: value is wanted.` };
  const headers = lines.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]);
  const content = text('content');
  const body = {
    method: text('method').trim().toUpperCase(),
    target: text('target').trim(),
    headers,
    ...(content === '' ? {} : { content }),
    live: form.has('live'),
    showValues: form.has('showValues'),
  };
  return { kind: 'good', body };
}
