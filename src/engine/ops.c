/* ops.c: a step's operations, shared among threads. A share is whole columns, vocabulary rows, heads or blocks of rows whose sums are
 * added in their order, so the sums inside are the same however many threads there are. */
#include "engine/ops.h"

#include "engine/numeric.h"

/* Below about this many multiply-adds waking a thread costs more than it saves. */
#define WORTH_SHARING 16000

static void run(kvs_engine *e, double multiply_adds, kvs_pool_range range, kvs_pool_work work, void *context) {
  if (multiply_adds < WORTH_SHARING)
    work(context, 0, 0, range.count);
  else
    kvs_pool_run(e->pool, range, work, context);
}

typedef struct norm_job {
  kvs_engine *e;
  float *y;
  const float *x;
  const kvs_norm *norm;
} norm_job;

static void norm_work(void *context, int thread, int begin, int end) {
  (void)thread;
  norm_job *job = context;
  const kvs_config *c = &job->e->model->config;
  for (size_t r = (size_t)begin; r < (size_t)end; r++)
    job->e->kernels->layer_norm(job->y + r * (size_t)c->n_embd, job->x + r * (size_t)c->n_embd, job->norm,
                                c->layer_norm_epsilon, c->n_embd);
}

void kvs_op_layer_norm(kvs_engine *e, float *y, const float *x, int rows, const kvs_norm *norm) {
  norm_job job = {e, y, x, norm};
  run(e, rows == 1 ? 0 : 4.0 * rows * e->model->config.n_embd, (kvs_pool_range){rows, 1, 0}, norm_work, &job);
}

typedef struct linear_job {
  kvs_engine *e;
  float *y;
  const float *x;
  int rows;
  const kvs_linear *linear;
} linear_job;

static void linear_work(void *context, int thread, int begin, int end) {
  linear_job *job = context;
  job->e->kernels->linear(job->y, job->x, job->rows, job->linear, begin, end,
                          job->e->s.pack + (size_t)thread * KVS_PACK_FLOATS);
}

/* One row of x: reading w is what takes the time, and memory is read fastest from end to end. So w is cut into pieces, blocks of
 * rows × panels of columns, numbered in the order in which they lie in memory, and taken as whole blocks but near the end. */
#define PANEL 256 /* columns: a piece takes a few microseconds */

typedef struct row_job {
  kvs_engine *e;
  float *y;
  const float *x;
  const kvs_linear *linear;
  int blocks, panels;
} row_job;

/* Pieces begin … end: whole blocks in one go, and the panels of a block that is taken in part. */
static void row_work(void *context, int thread, int begin, int end) {
  (void)thread;
  row_job *job = context;
  const kvs_tensor *w = &job->linear->w;
  for (int piece = begin, next; piece < end; piece = next) {
    int block = piece / job->panels, panel = piece % job->panels, blocks = 1, panels = job->panels - panel;
    if (panel == 0 && end - piece >= job->panels)
      blocks = (end - piece) / job->panels;
    else if (panels > end - piece)
      panels = end - piece;
    next = piece + (panel == 0 && panels == job->panels ? blocks * panels : panels);
    int end_column = panel + panels == job->panels ? w->cols : (panel + panels) * PANEL;
    job->e->kernels->block_sums(job->e->s.sums, job->x, w, block, block + blocks, panel * PANEL, end_column);
  }
}

static void add_work(void *context, int thread, int begin, int end) {
  (void)thread;
  row_job *job = context;
  job->e->kernels->add_blocks(job->y, job->linear->b, job->e->s.sums, job->blocks, job->linear->w.cols, begin, end);
}

static void linear_row(kvs_engine *e, float *y, const float *x, const kvs_linear *linear) {
  const kvs_tensor *w = &linear->w;
  row_job job = {e, y, x, linear, (w->rows + KVS_BLOCK - 1) / KVS_BLOCK, w->cols < PANEL ? 1 : w->cols / PANEL};
  run(e, (double)w->rows * w->cols, (kvs_pool_range){job.blocks * job.panels, 1, job.panels}, row_work, &job);
  run(e, (double)job.blocks * w->cols, (kvs_pool_range){w->cols, 64, 0}, add_work, &job);
}

void kvs_op_linear(kvs_engine *e, float *y, const float *x, int rows, const kvs_linear *linear) {
  linear_job job = {e, y, x, rows, linear};
  const kvs_tensor *w = &linear->w;
  int share = (w->cols + kvs_pool_threads(e->pool) - 1) / kvs_pool_threads(e->pool);
  share = (share + 31) / 32 * 32; /* one for each thread: x is packed anew for each part */
  if (rows == 1)
    linear_row(e, y, x, linear);
  else
    run(e, (double)rows * w->rows * w->cols, (kvs_pool_range){w->cols, share, 0}, linear_work, &job);
}

typedef struct activate_job {
  kvs_engine *e;
  float *x;
  size_t n;
} activate_job;

#define ACTIVATED 256 /* floats of x, as a unit of work */

static void activate_work(void *context, int thread, int begin, int end) {
  (void)thread;
  activate_job *job = context;
  size_t from = (size_t)begin * ACTIVATED, to = (size_t)end * ACTIVATED;
  job->e->kernels->activate(job->x + from, (to < job->n ? to : job->n) - from, job->e->model->config.activation);
}

void kvs_op_activate(kvs_engine *e, float *x, int rows) {
  activate_job job = {e, x, (size_t)rows * (size_t)e->model->config.n_inner};
  int units = (int)((job.n + ACTIVATED - 1) / ACTIVATED);
  double cost = 20.0 * (double)job.n; /* an activation costs about as much as twenty multiply-adds */
  run(e, cost, (kvs_pool_range){units, 1, 0}, activate_work, &job);
}

void kvs_op_add(float *sum, const float *a, const float *b, size_t n) {
  for (size_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

typedef struct lm_head_job {
  kvs_engine *e;
  float *logits;
  const float *x;
  int rows;
} lm_head_job;

static void lm_head_work(void *context, int thread, int begin, int end) {
  (void)thread;
  lm_head_job *job = context;
  const kvs_model *model = job->e->model;
  job->e->kernels->dot_rows(job->logits, model->config.n_vocab, job->x, job->rows, &model->lm_head, begin, end);
}

void kvs_op_lm_head(kvs_engine *e, float *logits, const float *x, int rows) {
  const kvs_config *c = &e->model->config;
  lm_head_job job = {e, logits, x, rows};
  run(e, (double)rows * c->n_vocab * c->n_embd, (kvs_pool_range){c->n_vocab, 64, 0}, lm_head_work, &job);
}

/* ---- attention ----------------------------------------------------------------------------------------------------- */

typedef struct attend_job {
  kvs_engine *e;
  const kvs_attend *tokens;
  int count;
} attend_job;

static void attend(kvs_engine *e, const kvs_attend *tokens, int count, kvs_pool_work work) {
  attend_job job = {e, tokens, count};
  const kvs_config *c = &e->model->config;
  run(e, (double)count * tokens[count - 1].plan->rows * c->n_embd, (kvs_pool_range){c->n_head, 1, 0}, work, &job);
}

/* One head's rows of `part`, K or V. Interleaved heads are not together in the cache: they are gathered into this thread's room. */
static const float *rows_of_head(const kvs_engine *e, const kvs_attend *t, int head, int thread, float *part) {
  const kvs_config *c = &e->model->config;
  int layer = t->plan->cache_layer;
  if (!t->plan->interleaved) return kvs_cache_rows(&e->cache, part, layer, head);
  float *room = e->s.head_rows + (size_t)thread * ((size_t)c->n_ctx * (size_t)c->head_dim + 2 * (size_t)c->n_head);
  for (int d = 0; d < c->head_dim; d++) {
    int from = d * c->n_head + head; /* of a row of n_embd */
    const float *column = kvs_cache_rows(&e->cache, part, layer, from / c->head_dim) + from % c->head_dim;
    for (int i = 0; i < t->plan->rows; i++) room[i * c->head_dim + d] = column[i * c->head_dim];
  }
  return room;
}

static void score_work(void *context, int thread, int begin, int end) {
  attend_job *job = context;
  const kvs_config *c = &job->e->model->config;
  for (int h = begin; h < end; h++)
    for (const kvs_attend *t = job->tokens; t < job->tokens + job->count; t++) {
      const float *k = rows_of_head(job->e, t, h, thread, job->e->cache.k);
      job->e->kernels->score(t->scores + h * t->plan->rows, t->q + h * c->head_dim, k, c->head_dim, t->plan->rows,
                             c->head_dim, t->scale);
    }
}

static void softmax_work(void *context, int thread, int begin, int end) {
  (void)thread;
  attend_job *job = context;
  for (int h = begin; h < end; h++)
    for (const kvs_attend *t = job->tokens; t < job->tokens + job->count; t++) {
      float *weights = t->weights + h * t->plan->rows;
      job->e->kernels->softmax(weights, t->scores + h * t->plan->rows, t->plan->visible);
      for (int i = t->plan->visible; i < t->plan->rows; i++) weights[i] = 0; /* masked */
    }
}

/* The mistaken axis: for each row its scores in all heads, as a vector of n_head. */
static void softmax_across_heads(const kvs_engine *e, const kvs_attend *t) {
  int n_head = e->model->config.n_head, rows = t->plan->rows;
  float *scores = e->s.head_rows, *weights = scores + n_head; /* room for 2·n_head: see state.c */
  for (int i = 0; i < rows; i++) {
    for (int h = 0; h < n_head; h++) scores[h] = t->scores[h * rows + i];
    e->kernels->softmax(weights, scores, n_head);
    for (int h = 0; h < n_head; h++) t->weights[h * rows + i] = weights[h];
  }
}

static void mix_work(void *context, int thread, int begin, int end) {
  attend_job *job = context;
  const kvs_config *c = &job->e->model->config;
  for (int h = begin; h < end; h++)
    for (const kvs_attend *t = job->tokens; t < job->tokens + job->count; t++) {
      const float *v = rows_of_head(job->e, t, h, thread, job->e->cache.v);
      job->e->kernels->mix(t->out + h * c->head_dim, t->weights + h * t->plan->rows, v, c->head_dim, t->plan->rows,
                           c->head_dim);
    }
}

void kvs_op_score(kvs_engine *e, const kvs_attend *tokens, int count) { attend(e, tokens, count, score_work); }

void kvs_op_softmax(kvs_engine *e, const kvs_attend *tokens, int count) {
  attend(e, tokens, count, softmax_work);
  for (const kvs_attend *t = tokens; t < tokens + count; t++)
    if (t->plan->across_heads) softmax_across_heads(e, t);
}

void kvs_op_mix(kvs_engine *e, const kvs_attend *tokens, int count) { attend(e, tokens, count, mix_work); }

const float *kvs_op_cut_heads(const kvs_engine *e, const kvs_step_plan *plan, float *to, const float *from) {
  const kvs_config *c = &e->model->config;
  if (!plan->interleaved) return from;
  for (int h = 0; h < c->n_head; h++)
    for (int d = 0; d < c->head_dim; d++) to[h * c->head_dim + d] = from[d * c->n_head + h];
  return to;
}

const float *kvs_op_join_heads(const kvs_engine *e, const kvs_step_plan *plan, float *to, const float *from) {
  const kvs_config *c = &e->model->config;
  if (!plan->interleaved) return from;
  for (int h = 0; h < c->n_head; h++)
    for (int d = 0; d < c->head_dim; d++) to[d * c->n_head + h] = from[h * c->head_dim + d];
  return to;
}
