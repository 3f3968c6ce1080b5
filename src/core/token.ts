/** token (RFC 9110 section 5.6.2): names of fields, methods and cookies. */

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

export function isToken(text: string): boolean {
  return TOKEN.test(text);
}
