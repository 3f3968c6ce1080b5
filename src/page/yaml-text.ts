/** Plain values as YAML, as operators write it. Pure. */

/** What needs no quotes anywhere in block style. */
const PLAIN = /^[A-Za-z0-9/*_.][\w/:*.-]*$/;
/** What would be read as something else than a text. */
const OTHER = /^(true|false|null|yes|no|on|off|~|[-+.]?\d.*)$/i;

export function yamlText(value: unknown, indent = ''): string {
  if (Array.isArray(value)) return listText(value, indent);
  if (typeof value === 'object' && value !== null) return mappingText(value, indent);
  return scalarText(value);
}

function mappingText(mapping: object, indent: string): string {
  const entries = Object.entries(mapping).filter(([, value]) => value !== undefined);
  if (entries.length === 0) return '{}';
  return entries
    .map(([name, value]) => {
      const text = yamlText(value, `${indent}  `);
      return isBlock(value) ? `${indent}${scalarText(name)}:\n${text}` : `${indent}${scalarText(name)}: ${text}`;
    })
    .join('\n');
}

function listText(list: readonly unknown[], indent: string): string {
  if (list.length === 0) return '[]';
  return list
    .map((item) => {
      const text = yamlText(item, `${indent}  `);
      return `${indent}- ${isBlock(item) ? text.slice(indent.length + 2) : text}`;
    })
    .join('\n');
}

function isBlock(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

function scalarText(value: unknown): string {
  if (typeof value !== 'string') return String(value);
  // Durations and sizes are texts that begin with a digit, and are read as such.
  const isText = PLAIN.test(value) && !value.endsWith(':') && (!OTHER.test(value) || /^\d+[a-zA-Z]+$/.test(value));
  return isText ? value : JSON.stringify(value);
}
