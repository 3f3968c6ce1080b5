/**
 * What is called what in Redis.
 *
 * Invariant: all that belongs to one key is of one hash slot, so that one script reaches it.
 */

const TURNS = ':q';

export class RedisNames {
  readonly #prefix: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** Whether a text that comes from outside can be a key at all. With these there would be no hash tag. */
  isKey(text: string): boolean {
    return text !== '' && !text.startsWith('}');
  }

  /** A key's record (claim.lua). The others of the key are this and a tail. */
  record(key: string): string {
    return `${this.#prefix}:{${key}}`;
  }

  /** The key whose record, or whose turns, have this name; null: it is another's. */
  keyOf(name: string, what: 'record' | 'turns'): string | null {
    const tail = what === 'record' ? '}' : `}${TURNS}`;
    return name.endsWith(tail) ? name.slice(this.#prefix.length + ':{'.length, -tail.length) : null;
  }

  /** What SCAN matches for the records of all keys that begin so, and whatever else belongs to one. */
  pattern(start = ''): string {
    return `${literally(this.#prefix)}:{${literally(start)}*}*`;
  }

  /** The key to which what has this name belongs. */
  ownerOf(name: string): string {
    return name.slice(this.#prefix.length + ':{'.length, name.indexOf('}', this.#prefix.length));
  }

  /** How a flight ended, for those who missed the push. */
  result(key: string, flight: string): string {
    return `${this.record(key)}:r:${flight}`;
  }

  /** There while it is remembered that somebody was elected after that flight. */
  elected(key: string, flight: string): string {
    return `${this.record(key)}:e:${flight}`;
  }

  /** There while the key's response is expected to be for one client alone. */
  mark(key: string): string {
    return `${this.record(key)}:u`;
  }

  /** The turns of a queue (queue.lua). */
  turns(key: string): string {
    return `${this.record(key)}${TURNS}`;
  }

  /** The places of a queue. */
  places(key: string): string {
    return `${this.record(key)}:w`;
  }

  /** The pieces of a response under way (relay.lua). */
  pieces(key: string, flight: string): string {
    return `${this.record(key)}:s:${flight}`;
  }

  /** Who reads those pieces, and how far each has come (pieces.lua). */
  readers(key: string, flight: string): string {
    return `${this.record(key)}:p:${flight}`;
  }

  /** What stands before the process's id in the name of its channel. */
  get channels(): string {
    return `${this.#prefix}:p:`;
  }
}

/** A text as a pattern that matches it alone. */
function literally(text: string): string {
  return text.replace(/[\\*?[\]]/g, '\\$&');
}
