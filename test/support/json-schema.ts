/** JSON Schemas that somebody else has written, over the validator that Fastify brings. */

import Fastify from 'fastify';

type Schema = { readonly $id: string };
type Fault = { readonly instancePath: string; readonly message?: string };

/** What is wrong with a value by the first of the schemas, which may refer to the others; one line each. */
export async function schemaFaults([schema, ...others]: readonly Schema[], value: unknown): Promise<string[]> {
  // A value is judged as it is, and their formats are not all known here.
  const customOptions = {
    allErrors: true,
    coerceTypes: false,
    removeAdditional: false,
    useDefaults: false,
    strict: false,
    validateFormats: false,
  } as const;
  const fastify = Fastify({ ajv: { customOptions } });
  for (const other of others) fastify.addSchema(other);
  let faults: string[] = [];
  fastify.post('/', {
    schema: { body: schema ?? {} },
    attachValidation: true,
    handler: async (request) => {
      const found = (request.validationError?.validation ?? []) as readonly Fault[];
      faults = found.map(({ instancePath, message }) => `${instancePath}: ${message}`);
      return {};
    },
  });
  await fastify.inject({ method: 'POST', url: '/', payload: value as object });
  await fastify.close();
  return faults;
}
