/**
 * Changes that a configuration makes to the fields of a message. Field lines are flat lists. Names are compared without case,
 * and with `_` for `-`: servers that hand fields to programs as variables take one for the other, so that a client could say
 * by such a name what is the configuration's to say.
 */

/** What is done to a list of lines, in this order: lines go, those of `set` among them; then lines are added. */
export type FieldEdits = {
  /** Names whose lines go, as they are compared (`comparedName`). */
  readonly removed: ReadonlySet<string>;
  /** Flat field lines that follow the others. */
  readonly added: readonly string[];
};

export function comparedName(name: string): string {
  const lower = name.toLowerCase();
  return lower.includes('_') ? lower.replaceAll('_', '-') : lower;
}

/** The lines after the edits. */
export function editedFields(fields: readonly string[], { removed, added }: FieldEdits): string[] {
  const out = withoutNames(fields, removed);
  out.push(...added);
  return out;
}

/** The lines without those of some names, as they are compared. */
export function withoutNames(fields: readonly string[], names: ReadonlySet<string>): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (!names.has(comparedName(fields[i] as string))) out.push(fields[i] as string, fields[i + 1] as string);
  }
  return out;
}
