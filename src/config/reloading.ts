/**
 * A new configuration for a running gateway: read, validated, and swapped for the one in use.
 *
 * Invariants: there is one way, whoever asks for it; a configuration with any error changes nothing; a change of the files
 * is acted on once, by their content; the files of a bad configuration are watched as well, as one of them will make it
 * good.
 */

import { changesBetween, takenNow, writtenInUse } from './changes.js';
import type { Config } from './config.js';
import { type ConfigWarning, type Fault, formatError } from './fault.js';
import { FileWatch } from './file-watch.js';
import type { LoadResult, Written } from './load.js';

type Loaded = Extract<LoadResult, { kind: 'loaded' }>;

/** Where the configuration comes from, and what came of it at the start. */
export type ConfigSource = { readonly first: Loaded; readonly load: () => LoadResult };

/** What came of a reload. Plain values: it can be sent to another process. */
export type ReloadResult =
  /** `changed` is in use now; `needsRestart` is what the files say, but not what is in use. Fields as written. */
  | { readonly kind: 'reloaded'; readonly changed: readonly string[]; readonly needsRestart: readonly string[] }
  | { readonly kind: 'unchanged'; readonly needsRestart: readonly string[] }
  | { readonly kind: 'refused'; readonly errors: readonly Fault[] }
  /** The gateway is stopping, and goes on as it is. */
  | { readonly kind: 'stopping' };

/** A reload that was tried. `isGoodAgain`: the one before was refused. */
export type ReloadNews = {
  readonly file: string;
  readonly result: ReloadResult;
  readonly warnings: readonly ConfigWarning[];
  readonly isGoodAgain: boolean;
};

/** How the files stand to what is in use. */
export type ConfigState = {
  readonly file: string;
  /** When the files were last read and good, ISO 8601. */
  readonly goodAt: string;
  /** What is wrong with them now, one line each. */
  readonly errors: readonly string[];
  readonly needsRestart: readonly string[];
};

/** The configuration in use, and where it was written. */
export type InUse = { readonly file: string; readonly included: readonly string[]; readonly written: Written };

export type ReloadingOptions = {
  readonly source: ConfigSource;
  /** Takes a configuration into use. Rejects, with nothing changed, when that cannot be done. */
  readonly swap: (config: Config) => Promise<void>;
  readonly tell: (news: ReloadNews) => void;
};

export class Reloading {
  readonly #options: ReloadingOptions;
  readonly #watch = new FileWatch(() => void this.#look());
  readonly #started: Config;
  /** What was read last, good or bad. */
  #last: LoadResult;
  #inUse: Config;
  /** Where that was read last. */
  #read: Loaded;
  #needsRestart: readonly string[] = [];
  #errors: readonly Fault[] = [];
  #goodAt = new Date();
  #isStopping = false;
  /** One at a time, in the order in which they were asked for. */
  #running: Promise<unknown> = Promise.resolve();

  constructor(options: ReloadingOptions) {
    this.#options = options;
    this.#last = options.source.first;
    this.#started = options.source.first.config;
    this.#inUse = this.#started;
    this.#read = options.source.first;
  }

  get state(): ConfigState {
    const errors = this.#errors.map(formatError);
    return { file: this.#last.file, goodAt: this.#goodAt.toISOString(), errors, needsRestart: this.#needsRestart };
  }

  /** What is in use, as it was written. */
  get inUse(): InUse {
    const { file, included, written } = this.#read;
    return { file, included, written: writtenInUse(written, this.#options.source.first.written) };
  }

  /** Acts on changed files from now on. */
  watch(): void {
    // What changed since they were read was seen by nobody.
    void this.#look();
  }

  /** Reads the files again, changed or not. Resolves when what they say is in use, or refused. */
  reload(): Promise<ReloadResult> {
    const result = this.#running
      .then(() => this.#reload())
      .catch((error: unknown) => refused([unusable(this.#last.file, error)]));
    this.#running = result;
    return result;
  }

  /** Nothing is read any more. */
  stop(): void {
    this.#isStopping = true;
    this.#watch.close();
  }

  async #look(): Promise<void> {
    await this.#running;
    if (this.#isStopping) return;
    // A folder may be another one by now, with the same content.
    this.#watch.watch(this.#last.files.watched);
    if (this.#last.files.haveChanged()) await this.reload();
  }

  async #reload(): Promise<ReloadResult> {
    const { file, files } = this.#last;
    const told = (result: ReloadResult, warnings: readonly ConfigWarning[], isGoodAgain: boolean): ReloadResult => {
      this.#options.tell({ file, result, warnings, isGoodAgain });
      return result;
    };
    if (this.#isStopping) return told({ kind: 'stopping' }, [], false);
    const wasBad = this.#errors.length > 0;
    const loaded = files.repeatable ? this.#load() : fromPipe(this.#last);
    this.#last = loaded;
    const result = loaded.kind === 'loaded' ? await this.#take(loaded) : refused(loaded.errors);
    this.#errors = result.kind === 'refused' ? result.errors : [];
    if (this.#isStopping) return told(result, [], false);
    this.#watch.watch(loaded.files.watched);
    if (loaded.files.haveChanged()) void this.#look();
    const isGood = result.kind !== 'refused';
    if (isGood) this.#goodAt = new Date();
    const warnings = loaded.kind === 'loaded' && result.kind === 'reloaded' ? loaded.warnings : [];
    return told(result, warnings, isGood && wasBad);
  }

  /** A fault of the loader is no reason to end, or never to read anything again. */
  #load(): LoadResult {
    try {
      return this.#options.source.load();
    } catch (error) {
      const { file, files } = this.#last;
      return { kind: 'invalid', file, files, errors: [unusable(file, error)] };
    }
  }

  async #take(loaded: Loaded): Promise<ReloadResult> {
    const { config, needsRestart } = takenNow(loaded.config, this.#started);
    const changed = changesBetween(this.#inUse, config);
    try {
      if (changed.length > 0) await this.#options.swap(config);
    } catch (error) {
      return refused([unusable(loaded.file, error)]);
    }
    this.#inUse = config;
    this.#read = loaded;
    const before = this.#needsRestart;
    this.#needsRestart = needsRestart;
    if (changed.length === 0 && before.join() === needsRestart.join()) return { kind: 'unchanged', needsRestart };
    return { kind: 'reloaded', changed, needsRestart };
  }
}

function unusable(file: string, error: unknown): Fault {
  const got = error instanceof Error ? error.message : String(error);
  return wholeFile(file, 'a configuration that can be taken into use', got);
}

function refused(errors: readonly Fault[]): ReloadResult {
  return { kind: 'refused', errors };
}

/** A pipe has been read to its end: waiting for more of it could block for ever. */
function fromPipe({ file, files }: LoadResult): LoadResult {
  return { kind: 'invalid', file, files, errors: [wholeFile(file, 'a file that can be read again', 'a pipe')] };
}

function wholeFile(file: string, expected: string, got: string): Fault {
  return { file, line: 1, column: 1, code: 'unusable', path: '', expected, got, suggestion: null };
}
