/* attention.h: what can be read off one head's scores and weights. */
#ifndef KVS_STUDY_ATTENTION_H
#define KVS_STUDY_ATTENTION_H

/* Rows with a weight of exactly 0 although their score would give them one: they were hidden, as by a mask. [rows] each. */
int attention_hidden_rows(const float *scores, const float *weights, int rows);

#endif
