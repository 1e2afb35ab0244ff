/* sample.h (private): what a log wants to know of the logits, in one pass. */
#ifndef KVS_ENGINE_SAMPLE_H
#define KVS_ENGINE_SAMPLE_H

typedef struct kvs_top {
  double logit;   /* the largest */
  double logprob; /* log softmax of it; another's is that much less as its logit is */
  double entropy; /* as kvs_entropy */
} kvs_top;

kvs_top kvs_logits_top(const float *logits, int n_vocab);

#endif
