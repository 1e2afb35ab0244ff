/* schema.c: schema.sql, put into the library. */
#include "trace/store.h"

#include "base/embed.h"

KVS_EMBED(kvs_schema_sql_text, "src/trace/schema.sql");

const char *kvs_trace_schema(void) {
  return (const char *)kvs_schema_sql_text;
} /* ends in the NUL that KVS_EMBED adds */
