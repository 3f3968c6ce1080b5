/**
 * What the API of Kubernetes would refuse in a manifest without a cluster: fields that it does not have, and values of
 * another type, by the description of the API that its official client has.
 */

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { npmPackage } from './npm-package.js';

const CLIENT = {
  name: '@kubernetes/client-node',
  version: '2.0.1',
  integrity: 'sha512-evJgmEtgArEYlj6DNkMGjK41IrFK/hEwb5lWVxx0VRBWybQpnvi+2TtA19mLgVfRHfqX5yjHObX6e9W7LEZBjw==',
} as const;

export type KubernetesObject = {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Readonly<Record<string, string>> };
};

type Field = { readonly baseName: string; readonly type: string };
type Models = Readonly<Record<string, { getAttributeTypeMap(): readonly Field[] } | undefined>>;

/** Judges objects; a line for each fault. */
export async function objectJudge(): Promise<(object: KubernetesObject) => string[]> {
  const folder = await npmPackage(CLIENT);
  const file = join(folder, 'dist/gen/models/ObjectSerializer.js');
  const models = (await import(pathToFileURL(file).href)) as Models;
  return (object) => {
    // apps/v1 Deployment is V1Deployment; v2 is the autoscaler's.
    const version = object.apiVersion.split('/').at(-1) ?? '';
    const type = `${version[0]?.toUpperCase()}${version.slice(1)}${object.kind}`;
    if (models[type] === undefined) return [`${object.apiVersion} ${object.kind}: no such kind`];
    return valueFaults(object, type, object.kind, models);
  };
}

function valueFaults(value: unknown, type: string, path: string, models: Models): string[] {
  const element = /^Array<(.+)>$/.exec(type)?.[1];
  if (element !== undefined) {
    if (!Array.isArray(value)) return [`${path}: no list`];
    return value.flatMap((item, index) => valueFaults(item, element, `${path}[${index}]`, models));
  }
  const member = /^\{ \[key: string\]: (.+); \}$/.exec(type)?.[1];
  if (member !== undefined) {
    if (!isObject(value)) return [`${path}: no object`];
    return Object.entries(value).flatMap(([name, item]) => valueFaults(item, member, `${path}.${name}`, models));
  }
  const fields = models[type]?.getAttributeTypeMap?.();
  if (fields === undefined) return plainFaults(value, type, path);
  if (!isObject(value)) return [`${path}: no object`];
  return Object.entries(value).flatMap(([name, item]) => {
    const field = fields.find(({ baseName }) => baseName === name);
    return field === undefined
      ? [`${path}.${name}: no such field`]
      : valueFaults(item, field.type, `${path}.${name}`, models);
  });
}

function plainFaults(value: unknown, type: string, path: string): string[] {
  const isIntOrString = type === 'IntOrString' && (typeof value === 'number' || typeof value === 'string');
  return type === 'any' || isIntOrString || typeof value === type ? [] : [`${path}: no ${type}`];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
