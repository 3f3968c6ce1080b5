/** Plain text tables: the first column to the left, numbers to the right, ASCII only. */

/** Lines of a table whose first row is the head. Every row has as many cells as the head. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const head = rows[0] ?? [];
  const widths = head.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  ')
      .trimEnd();
  const rule = widths.map((width) => '-'.repeat(width)).join('  ');
  return [line(head), rule, ...rows.slice(1).map(line)];
}
