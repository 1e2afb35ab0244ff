/* record.h (private): what is kept of the steps of one call of the engine: a digest of every vector, the logits, and the weights. */
#ifndef KVS_STUDY_RECORD_H
#define KVS_STUDY_RECORD_H

#include <stdint.h>

#include "study/compare/compare.h"

struct record {
  int call;         /* in which call of the engine it was made */
  int step, token;  /* as the engine counts */
  uint64_t *digest; /* [COMPARE_FIELD_COUNT][n_layer + 1]; 0: not there */
  float *logits;    /* [n_vocab] */
  struct {
    int rows;
    float *weights; /* [n_head][rows]; NULL: not kept */
  } * attention;    /* [n_layer] */
};

/* Steps as they are reported; the observer's context. */
struct records {
  const kvs_config *config;
  struct record *at;
  int count, room;
  int call, call_begin; /* the call under way, and its first record */
  int first_step;       /* steps before this one are not kept */
  size_t bytes;         /* of weights */
};

/* Weights of more than so many bytes are not kept: attention is then not compared from there on. A long prompt takes half of them at
 * most, so that the steps after it are not the ones that go without. */
#define RECORD_MOST_WEIGHTS ((size_t)512 << 20)

kvs_observer records_observer(struct records *records);
/* Records from here on belong to call number `call`. */
void records_begin(struct records *records, int call);
/* Forgets all. */
void records_clear(struct records *records);

static inline size_t record_slot(const kvs_config *config, enum compare_field field, int layer) {
  return (size_t)field * ((size_t)config->n_layer + 1) + (size_t)layer + 1; /* layer -1: the step's own */
}

/* The first vector whose digest differs, in the order in which a step makes them; fields of read_length are left out if `windowed`. */
bool record_first(const kvs_config *config, const struct record *a, const struct record *b, bool windowed,
                  enum compare_field *field, int *layer);

/* A field of a moment that has it: its numbers. A scalar is put into *scalar, and *count is 1. NULL: not there. */
const float *moment_field(const kvs_config *config, const kvs_moment *m, enum compare_field field, float *scalar,
                          int *count);

#endif
