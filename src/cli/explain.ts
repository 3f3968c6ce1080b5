/**
 * `oneflight explain`: which rule a request meets, what its key is made of, and what becomes of it.
 *
 * Invariants: nothing is sent upstream and nothing is claimed; the store is asked only with `--live`, one in memory through the
 * admin listener of the gateway that has it.
 */

import type { Config } from '../config/config.js';
import { Explainer, type Explanation } from '../explain/explaining.js';
import type { ToldRequest } from '../http/told-request.js';
import { BAD_CONFIG, DONE, FAILED, USAGE } from './exit-code.js';
import { explanationText } from './explain-text.js';
import { HttpFileError, parseHttpFile } from './http-file.js';
import { type AdminAddress, adminAddress, operatorFields } from './listener-address.js';
import { openConfig } from './open-config.js';
import { send } from './send.js';
import { ArgumentError, read, type ToldArguments, toldByArguments } from './told-arguments.js';

export type ExplainOptions = ToldArguments & {
  /** File in `.http` form, in place of a request on the command line; `-`: standard input. */
  readonly request: string | undefined;
  /** File with a log of requests to replay; `-`: standard input. */
  readonly log: string | undefined;
  readonly showValues: boolean;
  /** Whether the store is asked what has the key. */
  readonly live: boolean;
  readonly format: 'text' | 'json';
  /** Base URL of the admin listener; by default the one that the configuration names. */
  readonly url: string | undefined;
  readonly config: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly write: (text: string) => void;
  readonly writeError: (text: string) => void;
};

const TIMEOUT_MS = 5_000;

/** 0 explained, 1 the gateway could not be asked, 2 usage, 78 bad configuration. */
export async function explain(options: ExplainOptions): Promise<number> {
  const { write, writeError } = options;
  const opened = openConfig(options.config, options.env);
  if (opened.kind === 'bad') {
    writeError(opened.report);
    return BAD_CONFIG;
  }
  try {
    if (options.log !== undefined) return await explainLog(options.log, opened.config, options);
    for (const request of requestsOf(options)) {
      const explanation = await explained(request, opened.config, options);
      write(options.format === 'json' ? `${JSON.stringify(explanation)}\n` : explanationText(explanation));
    }
    return DONE;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const isUsage = error instanceof ArgumentError || error instanceof HttpFileError;
    writeError(`oneflight explain: ${message}\n`);
    return isUsage ? USAGE : FAILED;
  }
}

/** Not needed for one request. */
async function explainLog(path: string, config: Config, options: ExplainOptions): Promise<number> {
  const { words, request, live, format, write } = options;
  if (words.length > 0 || request !== undefined) throw new ArgumentError('--log: the requests are in the log');
  if (live) throw new ArgumentError('--log: the store is not asked about what is over');
  const { logText, replayLog } = await import('./explain-log.js');
  const report = await replayLog(path, config);
  write(format === 'json' ? `${JSON.stringify(report)}\n` : logText(report));
  return DONE;
}

function requestsOf(options: ExplainOptions): readonly ToldRequest[] {
  const { request, words, headers, data, method } = options;
  if (request === undefined) return [toldByArguments(options)];
  if (words.length + headers.length + data.length > 0 || method !== undefined) {
    throw new ArgumentError('--request: the request is in the file, and nothing of it on the command line');
  }
  return parseHttpFile(read(request));
}

async function explained(request: ToldRequest, config: Config, options: ExplainOptions): Promise<Explanation> {
  const values = options.showValues ? 'shown' : 'masked';
  const explainer = new Explainer(config);
  if (!options.live) return explainer.explain(request, { values, store: null });
  if (config.store.kind === 'memory') {
    const own = await explainer.explain(request, { values, store: null });
    return withStanding(own, await askGateway(request, config, options));
  }
  // It is the whole gateway.
  const { withStore } = await import('../app.js');
  return withStore(config.store, (store) => explainer.explain(request, { values, store }));
}

/** What the running gateway says, by its own configuration. */
async function askGateway(request: ToldRequest, config: Config, { url }: ExplainOptions): Promise<Explanation> {
  const admin: AdminAddress =
    url === undefined
      ? adminAddress(config.admin)
      : { origin: urlOf(url), token: config.admin.kind === 'on' ? config.admin.token : null };
  const text = (byteText: string): string => Buffer.from(byteText, 'latin1').toString('utf8');
  const body = {
    method: request.method,
    target: text(request.target),
    headers: pairsOf(request.fields.map(text)),
    contentBase64: request.content.toString('base64'),
    live: true,
  };
  const fields = [...operatorFields(admin), 'Content-Type', 'application/json'];
  const asked = { method: 'POST', target: '/explain', fields, content: Buffer.from(JSON.stringify(body)) };
  const { status, content } = await send(admin.origin, asked, TIMEOUT_MS).catch((error: Error) => {
    throw new Error(`the store is in memory, and the gateway that has it does not answer: ${error.message}`);
  });
  if (status !== 200) throw new Error(`the admin listener at ${admin.origin.origin} answered ${status}`);
  return JSON.parse(content.toString()) as Explanation;
}

/** The gateway knows what has the key; what it knows it by may be another configuration. */
function withStanding(own: Explanation, live: Explanation): Explanation {
  const { store, becomes } = live;
  const isSame = JSON.stringify(own.key?.digests) === JSON.stringify(live.key?.digests) && own.route === live.route;
  if (isSame) return { ...own, store, becomes };
  const note =
    'The running gateway makes another key of it: it has another configuration. What stands here is its answer.';
  return { ...live, notes: [...live.notes, note] };
}

function urlOf(url: string): URL {
  if (!/^https?:\/\//.test(url) || !URL.canParse(url)) throw new ArgumentError('--url: expected an http(s) URL');
  return new URL(url);
}

function pairsOf(fields: readonly string[]): [string, string][] {
  return fields.flatMap((name, i): [string, string][] => (i % 2 === 0 ? [[name, fields[i + 1] as string]] : []));
}
