/**
 * The configuration in effect as YAML, with a comment behind each value that says where it came from.
 *
 * Invariant: it can be loaded again. What would be read as a reference is escaped; what has no value is a comment.
 */

import { stringify } from 'yaml';
import type { Effective, EffectiveMapping, EffectiveValue, ValueSource } from '../config/effective-tree.js';
import type { Reference } from '../config/expansion.js';

const INDENT = '  ';

/** The text of a whole configuration. */
export function configYaml(whole: EffectiveMapping): string {
  return `${linesOf(whole, '').join('\n')}\n`;
}

function linesOf(mapping: EffectiveMapping, indent: string): string[] {
  return [...mapping.entries].flatMap(([name, node]) => {
    const key = `${indent}${scalarText(name)}:`;
    if (node.kind === 'words') return [`${indent}# ${name}: ${node.words} (${sourceText(node.source)})`];
    if (node.kind === 'value' || isOnOneLine(node)) return [`${key} ${inline(node)} # ${sourceText(node.source)}`];
    if (node.kind === 'mapping') return [key, ...linesOf(node, indent + INDENT)];
    return [key, ...node.items.flatMap((item) => itemLines(item, indent + INDENT))];
  });
}

function itemLines(item: Effective, indent: string): string[] {
  if (item.kind !== 'mapping' || isOnOneLine(item)) return [`${indent}- ${inline(item)} # ${sourceText(item.source)}`];
  const lines = linesOf(item, indent + INDENT);
  // The first line that is a value takes the sign of the item; comments may stand before it.
  const first = lines.findIndex((line) => !line.trimStart().startsWith('#'));
  return lines.map((line, index) =>
    index === first ? `${indent}- ${line.slice(indent.length + INDENT.length)}` : line,
  );
}

/** What is empty, or a default as a whole. */
function isOnOneLine(node: Effective): boolean {
  if (node.kind === 'list') return node.items.length === 0 || node.items.every(isDefault);
  return node.kind === 'mapping' && node.entries.size === 0;
}

function isDefault(node: Effective): boolean {
  if (node.kind === 'list') return node.items.every(isDefault);
  if (node.kind === 'mapping') return [...node.entries.values()].every(isDefault);
  return node.source.kind === 'default';
}

function inline(node: Effective): string {
  switch (node.kind) {
    case 'value':
      return scalarText(node.value);
    case 'words':
      return '';
    case 'list':
      return `[${node.items.map(inline).join(', ')}]`;
    case 'mapping': {
      const fields = [...node.entries].map(([name, one]) => `${scalarText(name)}: ${inline(one)}`);
      return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`;
    }
  }
}

/** Quoted where YAML needs it, also between brackets. On one line. */
function scalarText(value: EffectiveValue['value']): string {
  if (typeof value !== 'string') return String(value);
  // A function, as in a replacement that is a text `$$` is one sign.
  const text = value.replaceAll('${', () => '$${');
  const [plain = ''] =
    stringify([text], { collectionStyle: 'flow', lineWidth: 0 })
      .match(/^\[ (.*) \]\n$/)
      ?.slice(1) ?? [];
  return plain === '' ? JSON.stringify(text) : plain;
}

/** Such as `gateway.yaml:11, from ${PORT}`. */
function sourceText(source: ValueSource): string {
  if (source.kind === 'default') return 'default';
  const place = `${source.file}:${source.line}`;
  // A name may hold what would end a comment.
  return [place, ...source.references.map(referenceText)].join(', ').replace(/\p{Cc}/gu, '?');
}

function referenceText(reference: Reference): string {
  if (reference.kind === 'file') return `from \${file:${reference.path}}`;
  return reference.used === 'value' ? `from \${${reference.name}}` : `\${${reference.name}} is not set`;
}
