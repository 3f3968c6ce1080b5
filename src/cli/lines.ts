/** Lines of a stream, whatever its length: a line that is longer than the limit is passed over, and told. */

import { StringDecoder } from 'node:string_decoder';

export type Line =
  | { readonly kind: 'line'; readonly number: number; readonly text: string }
  | { readonly kind: 'too-long'; readonly number: number };

/** `limit` in characters. Numbers count from 1. */
export async function* linesOf(stream: AsyncIterable<Buffer>, limit: number): AsyncGenerator<Line> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  let number = 1;
  let isTooLong = false;
  const ended = (text: string): Line => {
    const line: Line = isTooLong || text.length > limit ? { kind: 'too-long', number } : { kind: 'line', number, text };
    number += 1;
    isTooLong = false;
    return line;
  };
  for await (const chunk of stream) {
    const texts = (rest + decoder.write(chunk)).split('\n');
    rest = texts.pop() ?? '';
    for (const text of texts) yield ended(text);
    if (rest.length > limit) {
      isTooLong = true;
      rest = '';
    }
  }
  rest += decoder.end();
  if (rest !== '' || isTooLong) yield ended(rest);
}
