/** Exit codes of every command (SPEC: command line). */

/** Done, or the check passed. */
export const DONE = 0;
/** Failed at run time, or the check failed. */
export const FAILED = 1;
/** The command line is wrong. */
export const USAGE = 2;
/** The configuration is wrong (EX_CONFIG of sysexits). */
export const BAD_CONFIG = 78;
