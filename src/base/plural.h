/* plural.h: the s of a word that is counted: "1 row", "2 rows". */
#ifndef KVS_BASE_PLURAL_H
#define KVS_BASE_PLURAL_H

static inline const char *plural(long long count) { return count == 1 ? "" : "s"; }

#endif
