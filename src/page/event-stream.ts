/**
 * Server-sent events out of a stream of bytes. A browser's own reader of them cannot send the token, and an address that
 * had it would be in logs and histories.
 */

export type ServerEvent = { readonly name: string; readonly data: string };

/** The events of a stream in UTF-8. Comments are left out, and so is what the end cuts off. */
export async function* eventsOf(pieces: AsyncIterable<Uint8Array>): AsyncIterable<ServerEvent> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const piece of pieces) {
    text += decoder.decode(piece, { stream: true });
    const blocks = text.split('\n\n');
    text = blocks.pop() ?? '';
    for (const block of blocks) {
      const event = eventOf(block);
      if (event !== null) yield event;
    }
  }
}

function eventOf(block: string): ServerEvent | null {
  let name = 'message';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7);
    if (line.startsWith('data: ')) data.push(line.slice(6));
  }
  return data.length === 0 ? null : { name, data: data.join('\n') };
}
