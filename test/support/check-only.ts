/** How `validate` is called without any option. */

export const CHECK_ONLY = { connect: false, print: false, format: 'text', stdin: () => nothing() } as const;

async function* nothing(): AsyncGenerator<Buffer> {}
