/* engine.h: decoding GPT-2 one token at a time, with everything that happens reported to an observer.
 *
 * All arithmetic is float32. Every output element is summed in one fixed order, the same in decode and in prefill, with
 * any number of threads, with or without an observer and with every kernel, so all of them give the same bits.
 * Formulas: Radford et al. 2019 (GPT-2), Vaswani et al. 2017 (attention); docs/design.md writes them all out.
 */
#ifndef KVSTEP_ENGINE_H
#define KVSTEP_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvstep/error.h"
#include "kvstep/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what happens in a step ------------------------------------------------------------------------------------ */

typedef enum kvs_mode { KVS_PREFILL, KVS_DECODE } kvs_mode;

/* Where a token came from. */
typedef enum kvs_source { KVS_PROMPT, KVS_SAMPLED, KVS_FORCED } kvs_source;

/* The ten moments of a step, in their order. project … mlp happen once per layer, the others once per step. */
typedef enum kvs_phase {
  KVS_READ_LENGTH,
  KVS_EMBED,
  KVS_PROJECT,
  KVS_APPEND,
  KVS_SCORE,
  KVS_SOFTMAX,
  KVS_MIX,
  KVS_OUTPUT,
  KVS_MLP,
  KVS_LOGITS,
  KVS_PHASE_COUNT
} kvs_phase;

/* The names the trace uses: "read_length" …, "prefill" / "decode", "prompt" / "sampled" / "forced". */
KVS_API const char *kvs_phase_name(kvs_phase phase);
KVS_API const char *kvs_mode_name(kvs_mode mode);
KVS_API const char *kvs_source_name(kvs_source source);

/* One token's way through the model. */
typedef struct kvs_step {
  int step; /* from 0 since the engine was created or reset */
  kvs_mode mode;
  int token;
  kvs_source source;
  int cache_length_before; /* rows before this token's own (in prefill: earlier rows of the batch included) */
  int position;            /* the row of wpe that was added, or -1 when none was (a fault) */
  int cache_length_after;
  double logprob; /* natural log of this token's probability as the step before saw it; NaN for the first step, or when
                     the logits of the step before were not computed */
  double seconds; /* wall clock; in prefill the batch's time divided by its tokens. NaN: not known */
} kvs_step;

/* What an observer sees. The arrays belong to the engine and hold only during the call; those that the moment has not
 * reached are NULL, those that this layer has already produced stay set (at mix, q and scores are still there). */
typedef struct kvs_moment {
  const kvs_step *step; /* not yet settled before step_end: logprob (in prefill), seconds, cache_length_after */
  kvs_phase phase;
  int layer;        /* -1 at read_length, embed and logits */
  int cache_length; /* rows in this layer's cache just after this phase, this token's share of a batch counted alone */

  const float *wte, *wpe,
      *x;                 /* embed:   [n_embd] each, x = wte[token] + wpe[position]; wpe is NULL if none was added */
  const float *q, *k, *v; /* project: [n_embd] each, heads side by side: head h is [h·head_dim, (h+1)·head_dim) */
  int row;                /* append:  the cache row that k and v went to; -1 if none */
  const float *row_k, *row_v; /* append:  [n_embd] that row of the cache, as it is now */
  int rows;                   /* score:   how many rows are attended, P + 1 when all is right */
  const float *scores;        /* score:   [n_head][rows] = q·K[row] / sqrt(head_dim) */
  const float *weights;       /* softmax: [n_head][rows] */
  const float *out;           /* mix:     [n_head][head_dim] = Σ weights[row]·V[row] */
  const float *x_in;          /* project: [n_embd] the residual stream as it enters this layer */
  const float *attn_out;      /* output:  [n_embd] heads concatenated, through c_proj */
  const float *x_mid;         /* output:  [n_embd] x_in + attn_out */
  const float *mlp_out;       /* mlp:     [n_embd] */
  const float *x_out;         /* mlp:     [n_embd] x_mid + mlp_out */
  const float *logits;        /* logits:  [n_vocab] */
} kvs_moment;

/* Who watches. A function that is NULL is not called. One that returns anything but KVS_OK ends the step there with that
 * status; the engine must then be reset before it is used again. Called on the thread that called the engine. */
typedef struct kvs_observer {
  void *context;
  kvs_status (*moment)(void *context, const kvs_moment *moment, kvs_error *err);
  kvs_status (*step_end)(void *context, const kvs_step *step, kvs_error *err);
  /* Every step reported so far is complete: after each decode step, and once after a prefill's whole batch. */
  kvs_status (*settled)(void *context, kvs_error *err);
  /* Called once after each `settled` that succeeded: what may be done beside the next step, such as writing this one down. Runs on
   * a thread of its own or one of the engine's, on the caller's if there is but one core, and may still run when the call that fed the tokens has returned; never
   * two at once, and never later than the next `settled`. kvs_engine_settle waits for it, and so do kvs_engine_observe,
   * kvs_engine_reset and kvs_engine_free: call one of them before `context` goes. What fails in it is told by the observer's
   * next call. */
  void (*behind)(void *context);
} kvs_observer;

/* ---- faults ---------------------------------------------------------------------------------------------------- */

struct kvs_step_plan; /* what one step is going to do in one layer; src/engine/plan.h */
struct kvs_situation; /* what a fault may look at */
struct kvs_feed;      /* what the caller wants fed */
struct kvs_engine;

/* A cache bug that can be injected. All strings are static. A fault bends the plan of each step, or takes a detour around the
 * feeding of tokens, or both; those that it does not use are NULL. */
typedef struct kvs_fault {
  const char *name;       /* "off-by-one" */
  const char *kind;       /* its family: the same as the name but for variants ("wrong-scale-n-embd": "wrong-scale") */
  const char *summary;    /* one line */
  const char *right_line; /* the line of code as it should be … */
  const char *wrong_line; /* … and as it is mistakenly written */
  const char *effect;     /* what it does to the model, and to the trace */
  const char *seen;       /* where it was seen in the wild */
  const char *detect;     /* how it is found: the rules of `kvstep check` */
  const char *sql;        /* a query that returns rows for a trace with this fault, and none for a correct run */
  bool from_start;        /* it begins with the run, not with the first decode step */
  bool fills_context;     /* it shows only at the context's end: see kvs_fault_prompt_length */
  void (*bend)(struct kvs_step_plan *plan, const struct kvs_situation *situation);
  kvs_status (*before)(struct kvs_engine *engine, struct kvs_feed *feed, kvs_error *err);
  kvs_status (*after)(struct kvs_engine *engine, struct kvs_feed *feed, kvs_error *err);
} kvs_fault;

/* The i-th fault, or NULL when i is past the last. */
KVS_API const kvs_fault *kvs_fault_at(int i);
/* The fault of that name, or NULL. "none" is no fault. */
KVS_API const kvs_fault *kvs_fault_find(const char *name);

/* The step from which a fault is usually injected into a run whose prompt has `prompt_tokens` tokens: the first decode step, or
 * step 0 for one that begins with the run. */
KVS_API int kvs_fault_usual_start(const kvs_fault *fault, int prompt_tokens);

/* How long a prompt of `count` tokens must be made, by repeating it from its start, for the fault to show within a few
 * generated tokens: `count` itself for most; nearly n_ctx for those that show at the context's end. `fault` may be NULL. */
KVS_API int kvs_fault_prompt_length(const kvs_fault *fault, const kvs_config *config, int count);

/* ---- the engine ------------------------------------------------------------------------------------------------ */

typedef struct kvs_engine kvs_engine;

typedef struct kvs_engine_options {
  int threads;        /* 1 to 256; 0: as many as the physical cores that this process may use */
  const char *kernel; /* NULL: the fastest this CPU has; else a name from kvs_kernel_name, e.g. "reference" */
} kvs_engine_options;

/* Creates an engine for `model`, which must outlive it. Its cache has n_ctx rows per layer: 2·n_layer·n_ctx·n_embd·4
 * bytes, reserved now and touched as it fills. `options` may be NULL. The caller frees *out with kvs_engine_free.
 * Errors: KVS_ERR_USAGE (unknown kernel, or one this CPU lacks; threads out of range), KVS_ERR_MEMORY. */
KVS_API kvs_status kvs_engine_create(const kvs_model *model, const kvs_engine_options *options, kvs_engine **out,
                                     kvs_error *err);

/* NULL is allowed. */
KVS_API void kvs_engine_free(kvs_engine *engine);

/* Empties the cache; steps count from 0 again. Observer and fault stay. */
KVS_API void kvs_engine_reset(kvs_engine *engine);

/* Waits until the observer's `behind` has done what it was left. */
KVS_API void kvs_engine_settle(kvs_engine *engine);

/* Sets who watches (copied; NULL for nobody). With an observer, prefill computes the logits of every token, so that each
 * step's logprob is known; without, only the last one's. */
KVS_API void kvs_engine_observe(kvs_engine *engine, const kvs_observer *observer);

/* Injects `fault` (NULL: none) in every step from `from_step` on. Faults of the token stream (a prompt fed twice, a draft left in the
 * cache) happen once, at the first call from there on: one call may then report more steps than it was given tokens, or fewer.
 * Kept by kvs_engine_reset. */
KVS_API void kvs_engine_fault(kvs_engine *engine, const kvs_fault *fault, int from_step);

/* Feeds `count` ≥ 1 tokens in one batch under the causal mask: row i attends to rows ≤ i.
 * Errors: KVS_ERR_USAGE (count < 1, a token that is not in the vocabulary), KVS_ERR_CONTEXT (more tokens than the context has room for, or a
 * position past wpe's last row under a fault: nothing was fed), KVS_ERR_CANCELLED, and whatever the observer returned. */
KVS_API kvs_status kvs_engine_prefill(kvs_engine *engine, const int *tokens, int count, kvs_source source,
                                      kvs_error *err);

/* Feeds one token: the decode step. Errors as for prefill. */
KVS_API kvs_status kvs_engine_decode(kvs_engine *engine, int token, kvs_source source, kvs_error *err);

/* The last token's logits, [n_vocab], owned by the engine and valid until the next call; NULL before the first. */
KVS_API const float *kvs_engine_logits(const kvs_engine *engine);

/* Rows in the cache now (layer 0's): the rule's t, if it is read before kvs_engine_decode. */
KVS_API int kvs_engine_cache_length(const kvs_engine *engine);

/* K and V of one cache row of one layer, [n_embd] each: a copy that the engine owns, valid until the next call of the same
 * function; NULL if there is no such row. */
KVS_API const float *kvs_engine_k(const kvs_engine *engine, int layer, int row);
KVS_API const float *kvs_engine_v(const kvs_engine *engine, int layer, int row);

/* How many threads it uses, and the name of its kernel. */
KVS_API int kvs_engine_threads(const kvs_engine *engine);
KVS_API const char *kvs_engine_kernel(const kvs_engine *engine);

/* Names of the kernels that this CPU can run, fastest first; NULL when i is past the last. */
KVS_API const char *kvs_kernel_name(int i);

/* Asks the step or batch under way to stop soon (async-signal-safe): it returns KVS_ERR_CANCELLED between two
 * layers, and the engine must then be reset. */
KVS_API void kvs_engine_cancel(kvs_engine *engine);

/* ---- sampling -------------------------------------------------------------------------------------------------- */

typedef struct kvs_sampling {
  double temperature; /* 0: greedy (the largest logit, the lowest id among equals) */
  int top_k;          /* keep the k most probable; 0: all */
  double top_p;       /* keep the smallest set whose probabilities sum to at least p; 1: all */
  uint64_t seed;
} kvs_sampling;

typedef struct kvs_sampler kvs_sampler;

/* A sampler for logits of n_vocab tokens, with random numbers of its own; `sampling` is copied. The caller frees *out with
 * kvs_sampler_free (NULL is allowed). Errors: KVS_ERR_USAGE (temperature < 0 or not finite, top_k < 0, top_p outside
 * (0, 1], so a zeroed kvs_sampling as well), KVS_ERR_MEMORY. */
KVS_API kvs_status kvs_sampler_create(const kvs_sampling *sampling, int n_vocab, kvs_sampler **out, kvs_error *err);
KVS_API void kvs_sampler_free(kvs_sampler *sampler);

/* Chooses the next token from logits [n_vocab] and returns its id. The same seed and the same logits give the same token on
 * every machine (the random numbers are SplitMix64; exp is kvstep's own). */
KVS_API int kvs_sampler_next(kvs_sampler *sampler, const float *logits);

/* log softmax(logits)[token] and the entropy −Σ p·ln p in nats, both in double. */
KVS_API double kvs_logprob(const float *logits, int n_vocab, int token);
KVS_API double kvs_entropy(const float *logits, int n_vocab);

#ifdef __cplusplus
}
#endif

#endif
