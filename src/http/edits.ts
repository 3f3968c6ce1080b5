/** Changes that a configuration makes to the fields of a message. Field lines are flat lists; names are compared without case. */

/** What is done to a list of lines, in this order: lines go, those of `set` among them; then lines are added. */
export type FieldEdits = {
  /** Lower-case names whose lines go. */
  readonly removed: ReadonlySet<string>;
  /** Flat field lines that follow the others. */
  readonly added: readonly string[];
};

/** The lines after the edits. */
export function editedFields(fields: readonly string[], { removed, added }: FieldEdits): string[] {
  const out = withoutNames(fields, removed);
  out.push(...added);
  return out;
}

/** The lines without those of some names, in lower case. */
export function withoutNames(fields: readonly string[], names: ReadonlySet<string>): string[] {
  const out: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (!names.has((fields[i] as string).toLowerCase())) out.push(fields[i] as string, fields[i + 1] as string);
  }
  return out;
}
