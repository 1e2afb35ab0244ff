/* kvstep.h: everything that libkvstep offers. */
#ifndef KVSTEP_KVSTEP_H
#define KVSTEP_KVSTEP_H

#include "kvstep/engine.h"
#include "kvstep/error.h"
#include "kvstep/model.h"
#include "kvstep/tokenizer.h"
#include "kvstep/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the headers, and of the library that is linked: "0.1.0". */
#define KVS_VERSION "0.1.0"
KVS_API const char *kvs_version(void);

#ifdef __cplusplus
}
#endif

#endif
