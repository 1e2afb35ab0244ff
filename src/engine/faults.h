/* faults.h (private): the tables that fault.c puts together, one for each place where a cache goes wrong. */
#ifndef KVS_ENGINE_FAULTS_H
#define KVS_ENGINE_FAULTS_H

#include "kvstep/engine.h"

/* Each ends with a row whose name is NULL. */
extern const kvs_fault kvs_faults_position[];  /* which row of wpe */
extern const kvs_fault kvs_faults_cache[];     /* which row is written, and what of it */
extern const kvs_fault kvs_faults_attention[]; /* which rows are attended, and how */
extern const kvs_fault kvs_faults_stream[];    /* which tokens are fed */

#endif
