/** What operators are told of certificates and of new configurations. */

import type { Logger } from 'pino';
import { formatError } from '../config/fault.js';
import type { ReloadNews } from '../config/reloading.js';
import { type CertificateNews, faultText } from '../server/certificate.js';

export function tellOfCertificate(news: CertificateNews, log: Logger): void {
  if (news.kind === 'renewed') log.info({ subject: news.subject, validTo: news.validTo }, 'certificate renewed');
  else log.error({ reason: faultText(news.faults) }, 'certificate not renewed: the one in use stays');
}

/** One line for each try, and one for each warning of a configuration that was taken into use. */
export function tellOfReload({ file, result, warnings, isGoodAgain }: ReloadNews, log: Logger): void {
  switch (result.kind) {
    case 'refused':
      log.error({ file, errors: result.errors.map(formatError) }, 'configuration refused: the one in use stays');
      return;
    case 'stopping':
      log.warn({ file }, 'reload ignored: the gateway is stopping');
      return;
    case 'unchanged':
      log.info({ file }, isGoodAgain ? 'configuration is good again, and the one in use' : 'configuration unchanged');
      return;
    case 'reloaded': {
      const { changed, needsRestart } = result;
      if (needsRestart.length === 0) log.info({ file, changed }, 'configuration reloaded');
      else log.warn({ file, changed, needsRestart }, 'configuration reloaded, but some of it needs a restart');
      for (const { message, ...place } of warnings) log.warn(place, message);
    }
  }
}
