/* summary.h (private): vectors in a few numbers: what a log stores beside them, and what the choice of a token begins with. */
#ifndef KVS_ENGINE_SUMMARY_H
#define KVS_ENGINE_SUMMARY_H

/* Where x [n] is largest, the first among equals; -1 where there is nothing but NaN. */
int kvs_argmax(const float *x, int n);

/* The `room` best tokens of logits [n_vocab] into best, the lower id first among equals; returns how many. NaN is never
 * among them. */
int kvs_best_tokens(const float *logits, int n_vocab, int *best, int room);

typedef struct kvs_top {
  double logit;   /* the largest */
  double logprob; /* log softmax of it; another's is that much less as its logit is */
  double entropy; /* as kvs_entropy */
} kvs_top;

kvs_top kvs_logits_top(const float *logits, int n_vocab);

/* A head's weights [rows]. The same bits on every machine. */
typedef struct kvs_weights_summary {
  double entropy; /* −Σ w·ln w in nats over the positive ones; NaN if one is */
  double sum;
  int max_row; /* kvs_argmax */
} kvs_weights_summary;

kvs_weights_summary kvs_summarize_weights(const float *w, int rows);

#endif
