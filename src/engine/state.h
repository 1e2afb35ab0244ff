/* state.h (private): an engine's state and its working memory. */
#ifndef KVS_ENGINE_STATE_H
#define KVS_ENGINE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "kvstep/engine.h"
#include "engine/cache.h"
#include "engine/kernels.h"
#include "engine/plan.h"
#include "engine/pool.h"
#include "model/weights.h"

/* Tokens of a batch whose attention and logits are worked out, and reported, at a time. */
#define KVS_CHUNK 16

/* Working memory for `rows` tokens at once: [rows][…], grown by kvs_scratch_grow. */
typedef struct kvs_scratch {
  int rows;
  float *wte, *wpe, *x;    /* [rows][n_embd] embedding parts; x is the residual stream as it enters a layer */
  float *norm;             /* [rows][n_embd] after ln_1, ln_2 or ln_f */
  float *qkv;              /* [rows][3·n_embd]: q | k | v */
  float *out;              /* [rows][n_embd] heads side by side */
  float *attn_out, *x_mid; /* [rows][n_embd] */
  float *hidden;           /* [rows][n_inner] */
  float *mlp_out, *x_out;  /* [rows][n_embd] */
  float *scores, *weights; /* [KVS_CHUNK][n_head][n_ctx], the last stride being the rows attended */
  float *logits;           /* [KVS_CHUNK][n_vocab] */
  float *row_k, *row_v;    /* [rows][n_embd] the cache row that was appended, heads side by side */
  float *pack;             /* [threads][KVS_PACK_FLOATS] */
  float *sums;             /* [blocks of w.rows][w.cols] for the largest matrix of a layer */
  float *q_cut, *joined;   /* [n_embd] q cut into heads, heads joined again: only where heads are interleaved */
  float
      *head_rows; /* [threads][n_ctx·head_dim + 2·n_head] K or V of one interleaved head; a row's scores in all heads */
} kvs_scratch;

struct kvs_engine {
  const kvs_model *model;
  const kvs_kernels *kernels;
  kvs_pool *pool;
  kvs_cache cache;
  kvs_scratch s;
  kvs_observer observer;
  bool observed;
  const kvs_fault *fault;
  int fault_from_step;
  bool detour_taken;          /* the fault of the token stream has struck */
  int *prompt, prompt_length; /* [n_ctx] tokens fed as a prompt so far */
  int steps;                  /* tokens fed so far */
  bool broken;                /* a step was cut short: reset before going on */
  atomic_bool cancelled;
  float *shown_k, *shown_v; /* [n_embd] the cache rows that were asked for last */
  float *last_logits;       /* [n_vocab] of the last token fed */
  bool has_logits;
  double observer_seconds; /* spent in the observer during this call: not the engine's time */
};

/* Makes room for `rows` tokens at once. KVS_ERR_MEMORY leaves none, and the engine broken. */
kvs_status kvs_scratch_grow(kvs_engine *e, int rows, kvs_error *err);

#endif
