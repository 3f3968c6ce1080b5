/** Reading of Node's flat `rawHeaders` list: name, value, name, value …, every line kept apart, in the order sent. */

/** The values of all lines of one field, in order; `name` is lower case. */
export function fieldLines(fields: readonly string[], name: string): string[] {
  const lines: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const found = fields[i]!;
    if (found.length === name.length && found.toLowerCase() === name) lines.push(fields[i + 1]!);
  }
  return lines;
}
