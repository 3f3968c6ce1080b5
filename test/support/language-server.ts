/** The language server of editors for YAML (yaml-language-server), spoken to as an editor does: by LSP, over standard input and output. */

import { type ChildProcess, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { within } from './gate.js';

const PROGRAM = createRequire(import.meta.url).resolve('yaml-language-server/bin/yaml-language-server');
const ANSWER_MS = 30_000;

export type Diagnostic = {
  readonly message: string;
  /** One-based. */
  readonly line: number;
  readonly column: number;
};

type Message = {
  readonly id?: number;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly message: string };
};

type Place = { readonly line: number; readonly character: number };

export class LanguageServer {
  readonly #child: ChildProcess;
  readonly #pending = new Map<number, (message: Message) => void>();
  readonly #diagnosed = new Map<string, (found: readonly Diagnostic[]) => void>();
  #buffer = Buffer.alloc(0);
  #ids = 0;

  private constructor() {
    this.#child = spawn(process.execPath, [PROGRAM, '--stdio'], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#child.stdout!.on('data', (piece: Buffer) => {
      this.#buffer = Buffer.concat([this.#buffer, piece]);
      for (let message = this.#next(); message !== null; message = this.#next()) this.#take(message);
    });
  }

  /** Starts one that asks nobody on the network. */
  static async start(): Promise<LanguageServer> {
    const server = new LanguageServer();
    const capabilities = {
      textDocument: { publishDiagnostics: {}, completion: { completionItem: { documentationFormat: ['markdown'] } } },
      workspace: { configuration: true },
    };
    await server.#ask('initialize', { processId: process.pid, rootUri: null, capabilities });
    server.#say('initialized', {});
    return server;
  }

  stop(): void {
    this.#child.kill('SIGKILL');
  }

  /** Opens a text as if it stood in that file, and answers what is wrong with it. */
  diagnose(file: string, text: string): Promise<readonly Diagnostic[]> {
    const uri = pathToFileURL(file).href;
    const found = new Promise<readonly Diagnostic[]>((resolve) => this.#diagnosed.set(uri, resolve));
    this.#say('textDocument/didOpen', { textDocument: { uri, languageId: 'yaml', version: 1, text } });
    return within(ANSWER_MS, `diagnostics of ${file}`, found);
  }

  /** What is offered where `|` stands in a text. */
  async complete(file: string, text: string): Promise<readonly string[]> {
    const at = await this.#open(file, text);
    const { items } = (await this.#ask('textDocument/completion', at)) as {
      items: readonly { label: string }[];
    };
    return items.map(({ label }) => label);
  }

  /** What is said of the word at `|`. */
  async hover(file: string, text: string): Promise<string> {
    const at = await this.#open(file, text);
    const answer = (await this.#ask('textDocument/hover', at)) as { contents: { value: string } } | null;
    return answer?.contents.value ?? '';
  }

  async #open(file: string, marked: string): Promise<{ textDocument: { uri: string }; position: Place }> {
    const before = marked.slice(0, marked.indexOf('|')).split('\n');
    await this.diagnose(file, marked.replace('|', ''));
    const position = { line: before.length - 1, character: before.at(-1)!.length };
    return { textDocument: { uri: pathToFileURL(file).href }, position };
  }

  async #ask(method: string, params: unknown): Promise<unknown> {
    this.#ids += 1;
    const id = this.#ids;
    const answer = new Promise<Message>((resolve) => this.#pending.set(id, resolve));
    this.#send({ id, method, params });
    const { result, error } = await within(ANSWER_MS, method, answer);
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result;
  }

  #say(method: string, params: unknown): void {
    this.#send({ method, params });
  }

  #send(message: object): void {
    const content = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }));
    this.#child.stdin!.write(`Content-Length: ${content.length}\r\n\r\n`);
    this.#child.stdin!.write(content);
  }

  #next(): Message | null {
    const end = this.#buffer.indexOf('\r\n\r\n');
    if (end < 0) return null;
    const length = Number(/Content-Length: (\d+)/.exec(this.#buffer.toString('latin1', 0, end))?.[1]);
    const content = this.#buffer.subarray(end + 4, end + 4 + length);
    if (content.length < length) return null;
    this.#buffer = this.#buffer.subarray(end + 4 + length);
    return JSON.parse(content.toString()) as Message;
  }

  #take({ id, method, params, ...answer }: Message): void {
    if (method === 'textDocument/publishDiagnostics') {
      const { uri, diagnostics } = params as {
        uri: string;
        diagnostics: { message: string; range: { start: Place } }[];
      };
      const found = diagnostics.map(({ message, range: { start } }) => ({
        message,
        line: start.line + 1,
        column: start.character + 1,
      }));
      this.#diagnosed.get(uri)?.(found);
      this.#diagnosed.delete(uri);
    } else if (method === 'workspace/configuration') {
      const settings = [
        { schemaStore: { enable: false }, completion: true, hover: true, validate: true },
        {},
        {},
        {},
        {},
      ];
      this.#send({ id, result: settings.slice(0, (params as { items: unknown[] }).items.length) });
    } else if (method !== undefined && id !== undefined) {
      this.#send({ id, result: null });
    } else if (id !== undefined) {
      this.#pending.get(id)?.(answer);
      this.#pending.delete(id);
    }
  }
}
