/* info.c: `kvstep info`: what a trace holds. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/out.h"
#include "trace/query.h"
#include "kvstep/trace.h"

enum { TABLES = 6 };

/* The base tables that hold a run's steps, in the order of what logs them. */
static const struct logged {
  const char *table;
  const char
      *number; /* what counts its rows as they are written: in the whole table, or in a run; NULL: nothing does */
  const char *second; /* the column of the key after run */
  const char *blobs;  /* the SQL for a row's bytes, NULL if it has none */
  const char *remedy;
} logged[TABLES] = {
    {"event", "seq", "step", NULL, "the engine that wrote it reports no events"},
    {"top_token", NULL, NULL, NULL, "the engine that wrote it gives no next tokens"},
    {"kv_row", "rowid", "layer", "length(k) + length(v)", "`cache` is empty: run with --log attention"},
    {"head_step", "rowid", "step", "length(q) + length(scores) + length(weights) + length(out)",
     "`attention`, `query_vector` and `head_summary` are empty: run with --log attention"},
    {"step_vector", "rowid", "step", "length(wte) + length(wpe) + length(x) + length(logits)",
     "run with --log attention"},
    {"layer_step", "rowid", "step", "length(x_in) + length(attn_out) + length(x_mid) + length(mlp_out) + length(x_out)",
     "run with --log full"},
};

/* Prints `count` bytes of a prompt on one line, cut to 60 columns. */
static void put_prompt(const char *prompt, int count) {
  char text[256];
  kvs_token_text((const unsigned char *)prompt, count < 200 ? (size_t)count : 200, text, sizeof text);
  fputs("  prompt      ", stdout);
  int width = text_width(text);
  put_padded(stdout, style_of_stdout(false), text, width < 62 ? width : 62);
  printf(count > 200 ? " … (%s bytes)\n" : "\n", grouped(count));
}

/* SQL for two columns: the numbers of a run's first row and its last by the key, which an index finds at once. */
static const char *ends_of(const struct logged *l, const char *run) {
  static char sql[200];
  snprintf(sql, sizeof sql,
           "(SELECT %s FROM %s WHERE run = %s ORDER BY %s LIMIT 1), "
           "(SELECT %s FROM %s WHERE run = %s ORDER BY %s DESC LIMIT 1)",
           l->number, l->table, run, l->second, l->number, l->table, run, l->second);
  return sql;
}

/* Do a table's rows lie as a writer puts them, run after run without a gap? Then the numbers of a run's first row and its last
 * say how many it has. All rows of a table are counted quickly, by its pages; those of one run only one by one. */
static kvs_status lies_in_order(sqlite3 *db, const struct logged *l, bool *in_order, kvs_error *err) {
  char sql[600];
  long long all, numbered = 0;
  *in_order = false;
  if (!l->number) return KVS_OK;
  kvs_status status = query_rows(db, l->table, &all, err);
  if (status != KVS_OK || all < 0) return status;
  snprintf(sql, sizeof sql,
           "WITH ends (low, high) AS MATERIALIZED (SELECT %s FROM run AS r) SELECT "
           "CASE WHEN '%s' <> 'rowid' OR max(high) - min(low) + 1 = total(high - low + 1) THEN total(high - low + 1) "
           "ELSE -1 END FROM ends",
           ends_of(l, "r.run"), l->number);
  status = query_number(db, sql, NULL, 0, 0, &numbered, err);
  *in_order = numbered == all;
  return status;
}

static kvs_status count_rows(sqlite3 *db, int run, const struct logged *l, bool in_order, long long *rows,
                             kvs_error *err) {
  char sql[400];
  if (in_order)
    snprintf(sql, sizeof sql, "WITH ends (low, high) AS (SELECT %s) SELECT high - low + 1 FROM ends", ends_of(l, "?1"));
  else
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE run = ?1", l->table); /* of the key's index alone */
  return query_number(db, sql, &run, 1, 0, rows, err);
}

/* `ours`: kvstep made this run, so its options would log more. */
static kvs_status put_table(sqlite3 *db, int run, bool ours, const struct logged *l, bool in_order,
                            long long total_steps, kvs_error *err) {
  char sql[900];
  long long rows, bytes = 0;
  kvs_status status = count_rows(db, run, l, in_order, &rows, err);
  if (status != KVS_OK) return status;
  if (rows == 0 && total_steps == 0) return KVS_OK; /* of what? */
  if (rows == 0) {
    printf("  %-11s not logged: %s\n", l->table, ours ? l->remedy : "see docs/recording.md for what it would show");
    return KVS_OK;
  }
  printf("  %-11s %s row%s", l->table, grouped(rows), plural(rows));
  if (l->blobs) {
    /* The mean of a few rows that lie evenly over the run's: to look at all of a large trace would read all of it, and each
     * of them reads a page. */
    const int most = rows < 1000 ? 99 : 12;
    char sum[400] = "";
    for (const char *c = l->blobs; *c;) {
      size_t length = strcspn(c, "+");
      size_t used = strlen(sum);
      snprintf(sum + used, sizeof sum - used, "%scoalesce(%.*s, 0)", used ? " + " : "", (int)length, c);
      c += length + (c[length] == '+');
    }
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE pick (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM pick WHERE i < %d), "
             "ends (low, high) AS MATERIALIZED (SELECT %s) "
             "SELECT round(avg(%s) * %lld) FROM ends CROSS JOIN pick CROSS JOIN %s AS t "
             "ON t.rowid = low + (high - low) * i / %d AND t.run = ?1",
             most, ends_of(l, "?1"), sum, rows, l->table, most);
    status = query_number(db, sql, &run, 1, 0, &bytes, err);
    if (status != KVS_OK) return status;
    printf(", about %s of numbers", bytes_text((double)bytes));
  }
  if (strcmp(l->table, "step_vector") == 0 && rows < total_steps)
    printf(" (%lld of %lld steps)", rows, total_steps); /* so there are two or more */
  putchar('\n');
  return KVS_OK;
}

static kvs_status put_steps(sqlite3 *db, int run, bool finished, long long *total, kvs_error *err) {
  long long decode = 0, off = 0;
  kvs_status status = query_number(db, "SELECT count(*) FROM step WHERE run = ?1", &run, 1, 0, total, err);
  if (status == KVS_OK)
    status = query_number(db, "SELECT count(*) FROM step WHERE run = ?1 AND mode = 'decode'", &run, 1, 0, &decode, err);
  if (status == KVS_OK)
    status = query_number(db, "SELECT count(*) FROM step WHERE run = ?1 AND position IS NOT cache_length_before", &run,
                          1, 0, &off, err);
  if (status != KVS_OK) return status;
  if (*total == 0) {
    printf("  steps       none%s\n",
           finished ? "" : ": it was stopped before its first step was kept, or is making it");
    return KVS_OK;
  }
  printf("  steps       %s: %s prefill, %s decode\n", grouped(*total), grouped(*total - decode), grouped(decode));
  if (off)
    printf("  rule        broken in %s step%s: position is not the cache's length before the append\n", grouped(off),
           plural(off));
  else
    puts("  rule        kept in every step, by the positions that were logged; `kvstep check` looks further");
  return KVS_OK;
}

/* A text column; "?" where it is NULL. */
static void put_column(sqlite3_stmt *s, int column) {
  const char *text = (const char *)sqlite3_column_text(s, column);
  put_shown(stdout, style_of_stdout(false), text ? text : "?");
}

static void put_run(sqlite3_stmt *s) {
  const char *fault = (const char *)sqlite3_column_text(s, 6), *command = (const char *)sqlite3_column_text(s, 11);
  double layers = sqlite3_column_double(s, 2), embd = sqlite3_column_double(s, 4);
  const char *more = layers == 1 ? "" : "s";
  int heads = sqlite3_column_int(s, 3);
  printf("\nrun %d\n  model       ", sqlite3_column_int(s, 0));
  put_column(s, 1);
  printf(": %.0f layer%s, %d head%s, n_embd %.0f, n_ctx %d\n", layers, more, heads, plural(heads), embd,
         sqlite3_column_int(s, 5));
  double bytes = 2 * layers * embd * 4;
  if (bytes >= 0 && bytes < 1e15)
    printf("  cache       %s bytes per token (K and V * %.0f layer%s * n_embd %.0f * 4)\n", grouped((long long)bytes),
           layers, more, embd);
  fputs("  engine      ", stdout);
  put_column(s, 10);
  if (fault && strcmp(fault, "none") != 0) {
    fputs(", fault ", stdout);
    put_column(s, 6);
    printf(" from step %d on", sqlite3_column_int(s, 7));
  }
  putchar('\n');
  if (command) {
    fputs("  command     ", stdout);
    int width = text_width(command);
    put_padded(stdout, style_of_stdout(false), command, width < 62 ? width : 62);
    putchar('\n');
  }
  fputs("  finished    ", stdout);
  if (sqlite3_column_type(s, 9) != SQLITE_NULL)
    put_column(s, 9);
  else
    fputs("NO: it was interrupted, or still goes on", stdout);
  fputs(" (begun ", stdout);
  put_column(s, 8);
  puts(")");
  const char *prompt = sqlite3_column_blob(s, 12);
  if (prompt) put_prompt(prompt, sqlite3_column_bytes(s, 12));
}

static kvs_status put_runs(sqlite3 *db, kvs_error *err) {
  sqlite3_stmt *statement = NULL;
  bool row = false, in_order[TABLES];
  kvs_status status = KVS_OK;
  for (int i = 0; i < TABLES && status == KVS_OK; i++) status = lies_in_order(db, &logged[i], &in_order[i], err);
  if (status == KVS_OK)
    status = query_prepare(db,
                           "SELECT run, model, n_layer, n_head, n_embd, n_ctx, fault, fault_from_step, "
                           "created_at, finished_at, engine, command, prompt FROM run ORDER BY run",
                           NULL, 0, &statement, err);
  while (status == KVS_OK && (status = query_step(statement, &row, err)) == KVS_OK && row) {
    long long steps = 0;
    int run = sqlite3_column_int(statement, 0);
    put_run(statement);
    const char *engine = (const char *)sqlite3_column_text(statement, 10);
    bool ours = engine && strcmp(engine, "kvstep") == 0;
    bool finished = sqlite3_column_type(statement, 9) != SQLITE_NULL;
    status = put_steps(db, run, finished, &steps, err);
    for (int i = 0; i < TABLES && status == KVS_OK; i++)
      status = put_table(db, run, ours, &logged[i], in_order[i], steps, err);
  }
  sqlite3_finalize(statement);
  return status;
}

/* What lies in the log, of a run that goes on or was cut off: it belongs to the trace. */
static void put_wal(const char *path) {
  struct stat log;
  char *name = NULL;
  if (asprintf(&name, "%s-wal", path) < 0) return;
  if (stat(name, &log) == 0 && log.st_size > 0)
    printf("%s more in the -wal file beside it, ", bytes_text((double)log.st_size));
  free(name);
}

static int run_info(const struct command *command, struct arguments *arguments) {
  int code = parse_options(command, arguments, NULL);
  if (code >= 0) return code;
  kvs_error err;
  sqlite3 *db = NULL;
  struct stat file;
  struct query_budget budget;
  const char *path = arguments->at[0];
  long long runs = 0;
  kvs_status status = kvs_trace_read(path, &db, &err);
  if (status == KVS_OK) query_limit(db, &budget);
  /* LIMIT keeps SQLite from counting the tree's pages in one instruction, which nothing ends. */
  if (status == KVS_OK)
    status = query_number(db, "SELECT count(*) FROM (SELECT run FROM run LIMIT 1000000000)", NULL, 0, 0, &runs, &err);
  if (status == KVS_OK) {
    put_shown(stdout, style_of_stdout(false), path);
    fputs(": ", stdout);
    if (stat(path, &file) == 0) printf("%s, ", bytes_text((double)file.st_size));
    put_wal(path);
    printf("%lld run%s, trace version %d\n", runs, plural(runs), KVS_TRACE_VERSION);
    status = put_runs(db, &err);
  }
  if (db) sqlite3_close(db);
  return status == KVS_OK ? finish_stdout(EXIT_OK) : report_on(path, &err);
}

static const struct positional positionals[] = {
    {.name = "TRACE", .help = "a trace that `kvstep run -o` or another engine wrote", .completion = "file"},
    {0},
};
const struct command command_info = {
    .name = "info",
    .summary = "what a trace holds: runs, sizes, what was logged",
    .description =
        "Lists a trace's runs: model, fault, prompt, how many steps, whether the run finished, and which tables "
        "were logged. A view over what was not logged is empty; here it says why.",
    .examples = "  kvstep info my.db\n",
    .positionals = positionals,
    .run = run_info,
};
