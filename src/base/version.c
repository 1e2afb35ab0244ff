/* version.c: the version of the linked library. */
#include "kvstep/kvstep.h"

const char *kvs_version(void) { return KVS_VERSION; }
