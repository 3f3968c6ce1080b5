// The reference page of all options, made from the schema that the gateway itself checks with.

/** `schema`: that of the configuration with tagged unions as `oneOf` (config/json-schema.ts); `written`: a value on one line. */
export function referencePage(schema, written) {
  const { store, routes, ...sections } = schema.properties;
  const scalars = {};
  const own = {};
  for (const [name, section] of Object.entries(sections)) {
    if (isSection(section)) own[name] = section;
    else scalars[name] = section;
  }
  const table = (prefix, properties, required = []) => tableOf(rowsOf(prefix, properties, required, written));
  const parts = [
    INTRODUCTION,
    heading('Single options', null),
    table('', scalars, schema.required),
    ...Object.entries(own).flatMap(([name, section]) => {
      const named = section.additionalProperties?.properties === undefined ? section : section.additionalProperties;
      const { properties, required } = objectOf(named);
      const prefix = named === section ? `${name}.` : `${name}.<name>.`;
      // Of a section that may be something else as well, also what it may be as a whole.
      const itself = section.anyOf === undefined ? [] : rowsOf('', { [name]: section }, [], written).slice(0, 1);
      const rows = tableOf([...itself, ...rowsOf(prefix, properties, required, written)]);
      return [heading(`\`${name}\``, section.description), rows];
    }),
    heading('`store`', store.description),
    ...tagged('store.', 'kind', store.oneOf, table),
    heading('`routes`', routes.description),
    ...tagged('routes[].', 'policy', routes.items.oneOf, table),
  ];
  return `${parts.join('\n\n')}\n`;
}

const INTRODUCTION = `# Reference

Every option of the configuration. This page is made from the schema that the gateway checks with: \`npm run docs\` writes it, and a test
fails when it is out of date. The same words are shown by editors (\`oneflight init\` writes what they need, \`oneflight schema\` prints
it), and \`oneflight validate --print\` shows the values that are in effect, and where each comes from.

- A duration is a whole number with a unit: \`250ms\`, \`3s\`, \`5m\`, \`24h\`; or \`0\`.
- A size is a number of bytes, or one with a unit: \`512B\`, \`64KiB\`, \`8MiB\`, \`2GiB\`.
- In the place of any value may stand \`\${VAR}\`, \`\${VAR:-default}\` or \`\${file:/run/secrets/x}\`, also as a part of a text; \`$\${\` is a literal \`\${\`.
- \`[]\` is an item of a list, \`<name>\` a name of your own. "–" as the default: nothing, or what the sentence says.`;

function heading(title, sentence) {
  return sentence === null ? `## ${title}` : `## ${title}\n\n${sentence}`;
}

/** Tables of a union with a tag: the fields that several kinds have alike come once, before those of each kind. */
function tagged(prefix, tag, variants, table) {
  const kindOf = (variant) => variant.properties[tag].const;
  const groups = new Map();
  for (const variant of variants) {
    for (const [field, schema] of Object.entries(variant.properties)) {
      if (field === tag) continue;
      const alike = variants.filter((other) => JSON.stringify(other.properties[field]) === JSON.stringify(schema));
      const kinds = alike.map(kindOf).join(', ');
      const group = groups.get(kinds) ?? { count: alike.length, properties: {}, required: [] };
      group.properties[field] = schema;
      if (variant.required?.includes(field) && !group.required.includes(field)) group.required.push(field);
      groups.set(kinds, group);
    }
  }
  const kinds = variants.map((variant) => {
    const { default: byDefault, description } = variant.properties[tag];
    return `- \`${tag}: ${kindOf(variant)}\`${byDefault === undefined ? '' : ' (default)'}: ${lowered(description)}`;
  });
  const sorted = [...groups].sort(([, one], [, other]) => other.count - one.count);
  return [
    kinds.join('\n'),
    ...sorted.flatMap(([names, { count, properties, required }]) => [
      `### ${count === variants.length ? `Whatever the \`${tag}\`` : `\`${tag}\`: ${names.replace(/, ([^,]+)$/, ' or $1')}`}`,
      table(prefix, properties, required),
    ]),
  ];
}

function lowered(sentence) {
  return sentence[0].toLowerCase() + sentence.slice(1);
}

/** The branch of a union that is a mapping, or the schema itself. */
function objectOf(schema) {
  return schema.anyOf?.find(({ properties }) => properties !== undefined) ?? schema;
}

function isSection(schema) {
  return objectOf(schema).properties !== undefined || schema.additionalProperties?.properties !== undefined;
}

function rowsOf(prefix, properties, required, written) {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const path = `${prefix}${name}`;
    const { default: byDefault, description = '' } = schema;
    const isEmptySection = objectOf(schema).properties !== undefined && written(byDefault ?? {}) === '{}';
    const value = byDefault === undefined || isEmptySection ? '–' : `\`${written(byDefault)}\``;
    const row = [`\`${path}\``, phraseOf(schema), required?.includes(name) ? 'required' : value, description];
    return [row, ...rowsBelow(path, schema, written)];
  });
}

function rowsBelow(path, schema, written) {
  const object = objectOf(schema);
  if (object.properties !== undefined) return rowsOf(`${path}.`, object.properties, object.required, written);
  const list = schema.anyOf?.find(({ items }) => items !== undefined) ?? schema;
  if (list.items?.properties !== undefined)
    return rowsOf(`${path}[].`, list.items.properties, list.items.required, written);
  return [];
}

/** What a value must be, as errors say it. */
function phraseOf(schema) {
  if (schema.expected !== undefined) return schema.expected;
  if (schema.const !== undefined) return `\`${schema.const}\``;
  if (schema.enum !== undefined) return schema.enum.map((word) => `\`${word}\``).join(', ');
  if (schema.anyOf !== undefined) return schema.anyOf.map(phraseOf).join(', or ');
  if (schema.type === 'boolean') return '`true`, `false`';
  if (schema.type === 'array')
    return schema.items.properties === undefined ? `a list: ${phraseOf(schema.items)}` : 'a list';
  if (schema.properties !== undefined) return 'a mapping';
  return `a mapping: ${schema.propertyNames?.expected ?? 'a name'} → ${phraseOf(schema.additionalProperties)}`;
}

function tableOf(rows) {
  const lines = rows.map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`);
  return ['| option | value | default | meaning |', '| --- | --- | --- | --- |', ...lines].join('\n');
}
