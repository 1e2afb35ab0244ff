/* diagnose.h: from what was observed (facts) to the mistakes that explain it. Each kind of mistake has a signature; what it explains is
 * taken away, and what is left is explained by the next, so that mistakes that happen together are all named. What merely follows
 * from a mistake is taken away with it. It sees facts and the numbers of the steps, nothing else.
 */
#ifndef KVS_STUDY_DIAGNOSE_H
#define KVS_STUDY_DIAGNOSE_H

#include "study/check/check_parts.h"

/* Findings in the order of their first steps; the caller frees *findings. Errors: KVS_ERR_MEMORY. */
kvs_status diagnose(const struct check *check, struct finding **findings, size_t *count, kvs_error *err);

#endif
