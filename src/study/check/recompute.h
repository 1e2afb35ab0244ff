/* recompute.h: a trace's steps worked out again from the model's weights and from the trace's own tokens and cache rows, one step at a
 * time, so that each step is judged by itself whatever went wrong before it. Adds facts (facts.h), judges nothing.
 */
#ifndef KVS_STUDY_RECOMPUTE_H
#define KVS_STUDY_RECOMPUTE_H

#include "kvstep/model.h"
#include "study/check/facts.h"
#include "study/look/look.h"

/* Mistakes that a layer's attention may have made: tried one after another where the chain breaks (FACT_CHAIN_HYPOTHESIS). Where
 * several give the same numbers (row 0 only and without itself, at P = 1), each adds a fact. */
enum hypothesis {
  HYPOTHESIS_NONE,
  HYPOTHESIS_WITHOUT_ITSELF, /* attends over P rows: attend-before-append */
  HYPOTHESIS_FIRST_ROW_ONLY, /* mask-corner */
  HYPOTHESIS_WHOLE_BATCH,    /* prefill-unmasked */
  HYPOTHESIS_NO_SCALE,       /* wrong-scale: 1 */
  HYPOTHESIS_SCALE_N_EMBD,   /* wrong-scale: 1/sqrt(n_embd) */
  HYPOTHESIS_WHOLE_CAPACITY, /* softmax-extent: unused rows, all zero, take part */
  HYPOTHESIS_WRONG_AXIS,     /* softmax over the heads */
  HYPOTHESIS_INTERLEAVED,    /* heads cut interleaved */
  HYPOTHESIS_SHARED_BUFFER,  /* layers share one buffer */
  HYPOTHESIS_ZERO_V,         /* this token's V (or K and V) read as zero: k-without-v, row-never-written */
  HYPOTHESIS_ZERO_K_V,
  HYPOTHESIS_LAYER_LENGTH, /* up to the row that this layer wrote, which is not layer 0's: cross-layer-length */
  HYPOTHESIS_PADDING,      /* rows of left padding take part: padding-unmasked */
  HYPOTHESIS_WINDOW,       /* past n_ctx the rows have moved down by one each step: context-overflow */
  HYPOTHESIS_COUNT
};

/* How the trace's K rows are stored, by their bits and by how exactly they match. */
enum recompute_storage { STORAGE_F32, STORAGE_F16, STORAGE_BF16, STORAGE_COARSE };

/* How far the last step could be seen through. */
struct recompute_reach {
  bool position; /* layer 0's row told the position */
  int layers;    /* so many layers' attention was worked out and compared with something of the trace */
  bool logits;   /* the logits were compared */
};

struct recompute;

/* For traces of this model, which must outlive it. Takes about as much memory as an engine (its cache is mirrored).
 * Errors: KVS_ERR_MEMORY. */
kvs_status recompute_open(const kvs_model *model, struct recompute **out, kvs_error *err);
void recompute_close(struct recompute *recompute);

/* The first `pads` tokens are left padding: no token behind them attends to them, and positions count from behind them. 0 at first. */
void recompute_padding(struct recompute *recompute, int pads);

/* How exactly this trace's rows can match: measured from the trace's own layer 0 K rows (float32 about 1e-6, another summation order up to
 * 1e-4, fp16 2e-4, bf16 2e-3, int8 4e-3 …), and from how well the layers above fit. Call it once per run, before recompute_step.
 * *tolerance: a layer 0 row nearer than this to a table entry is that entry. */
kvs_status recompute_calibrate(struct recompute *recompute, struct look *look, int run, double *tolerance,
                               kvs_error *err);

/* Works out one step and adds what does not fit. What was not logged is left out: the least that carries a fact is the token and layer 0's K row.
 * Steps are best asked for in their order. Errors: KVS_ERR_MEMORY, and KVS_ERR_INPUT where the trace's shapes are not the model's. What
 * could not be read is told by look_error. */
kvs_status recompute_step(struct recompute *recompute, struct look *look, int run, int step, struct facts *facts,
                          kvs_error *err);

struct recompute_reach recompute_reached(const struct recompute *recompute);
enum recompute_storage recompute_stored_as(const struct recompute *recompute);

#endif
