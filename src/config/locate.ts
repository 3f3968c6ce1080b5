/** Walks in the tree of values: from a field's path to its value and its place in the file. */

import { describeValue, type Fault, type FaultCode, type FieldPath, type Position, pathText } from './fault.js';
import type { Located } from './source.js';

/** The value at a path, or undefined. */
export function valueAt(root: Located, path: FieldPath): Located | undefined {
  let node: Located | undefined = root;
  for (const step of path) {
    if (node?.kind === 'list') node = node.items[Number(step)];
    else if (node?.kind === 'mapping') node = node.entries.get(String(step))?.value;
    else return undefined;
  }
  return node;
}

/** Where a field's name stands; a list's items and the root have none and begin where their value does. */
export function namePosition(root: Located, path: FieldPath): Position {
  const parent = valueAt(root, path.slice(0, -1));
  const entry = parent?.kind === 'mapping' ? parent.entries.get(String(path.at(-1))) : undefined;
  return entry?.keyPosition ?? valueAt(root, path)?.position ?? root.position;
}

/** A fault at a field: at its value, or where the mapping begins that lacks it. */
export function faultAt(
  root: Located,
  path: FieldPath,
  expected: string,
  more: { readonly got?: string; readonly suggestion?: string | null; readonly code?: FaultCode } = {},
): Fault {
  const value = valueAt(root, path);
  const position = value?.position ?? namePosition(root, path.slice(0, -1));
  const got = more.got ?? describeValue(path, value);
  const written = pathText(writtenPath(root, path));
  // Who says what came knows of another field.
  const code = more.code ?? (value === undefined && more.got === undefined ? 'missing-field' : 'conflict');
  return { ...position, code, path: written, expected, got, suggestion: more.suggestion ?? null };
}

/** The path of a field in its own file: routes of included files are counted from the first of that file. */
export function writtenPath(root: Located, path: FieldPath): FieldPath {
  const [section, index, ...rest] = path;
  const routes = section === 'routes' && typeof index === 'number' ? valueAt(root, ['routes']) : undefined;
  if (routes?.kind !== 'list') return path;
  const { file } = routes.items[Number(index)]?.position ?? {};
  const before = routes.items.slice(0, Number(index)).filter(({ position }) => position.file !== file).length;
  return ['routes', Number(index) - before, ...rest];
}
