/* sql.c: `kvstep sql`: queries on a trace, or the stock sqlite3 shell with the fast views loaded. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/out.h"
#include "cli/result.h"
#include "kvstep/trace.h"

struct values {
  int format;
};

/* ---- one query ------------------------------------------------------------------------------------------------- */

static sqlite3 *volatile interrupted_db;

/* sqlite3_interrupt may be called from a signal handler as long as the database stays open. */
static void on_interrupt(int number) {
  (void)number;
  if (interrupted_db) sqlite3_interrupt(interrupted_db);
}

/* The line of `sql` that holds byte `offset`, with a caret under it. */
static void put_caret(const char *sql, int offset) {
  int begin = offset, end = offset;
  while (begin > 0 && sql[begin - 1] != '\n') begin--;
  while (sql[end] && sql[end] != '\n') end++;
  enum { BEFORE = 50, AFTER = 20 };
  if (offset - begin > BEFORE) begin = offset - BEFORE;
  if (end - offset > AFTER) end = offset + AFTER;
  while (begin < offset && ((unsigned char)sql[begin] & 0xC0) == 0x80) begin++; /* not inside a character */
  while (sql[end] && ((unsigned char)sql[end] & 0xC0) == 0x80) end++;
  char before[4 * BEFORE];
  snprintf(before, sizeof before, "%.*s", offset - begin, sql + begin);
  fputs("  ", stderr);
  put_safe(stderr, sql + begin, (size_t)(end - begin));
  fputs("\n  ", stderr);
  for (char *c = before; *c; c++)
    if (*c == '\t') fputc('\t', stderr); /* a tab above is a tab below */
  int width = 0;
  for (char *c = before; *c; c++)
    if (*c == '\t') *c = ' ', width--;
  fprintf(stderr, "%*s^\n", width + text_width(before), "");
}

static int sql_error(sqlite3 *db, const char *sql, int result) {
  fflush(stdout);
  int offset = sqlite3_error_offset(db);
  if (result == SQLITE_READONLY)
    fputs("kvstep sql: a trace is only read here, and this statement writes; work on a copy with sqlite3\n", stderr);
  else if (result == SQLITE_INTERRUPT)
    fputs("kvstep sql: interrupted\n", stderr);
  else {
    /* It quotes names, from the query or from a trace of anybody's making. */
    const char *said = result == SQLITE_NOMEM ? "out of memory" : sqlite3_errmsg(db);
    fputs("kvstep sql: ", stderr);
    put_safe(stderr, said, strlen(said));
    fputc('\n', stderr);
  }
  if (offset >= 0 && (size_t)offset <= strlen(sql)) put_caret(sql, offset);
  return result == SQLITE_INTERRUPT ? 130 : EXIT_BAD;
}

static int run_queries(sqlite3 *db, const char *sql, const struct values *v, struct style style) {
  int done = 0;
  while (*sql) {
    sqlite3_stmt *statement = NULL;
    const char *rest;
    int result = sqlite3_prepare_v2(db, sql, -1, &statement, &rest);
    if (result != SQLITE_OK) return sql_error(db, sql, result);
    if (!statement) { /* blanks or a comment */
      if (rest == sql) break;
      sql = rest;
      continue;
    }
    if (done++ && v->format == RESULT_TABLE) putchar('\n');
    result = sqlite3_stmt_readonly(statement) ? result_print(statement, v->format, style) : SQLITE_READONLY;
    int code = result == SQLITE_DONE ? EXIT_OK : sql_error(db, sql, result);
    sqlite3_finalize(statement);
    if (code != EXIT_OK) return code;
    if (ferror(stdout)) break;
    sql = rest;
  }
  if (done) return finish_stdout(EXIT_OK);
  fputs("kvstep sql: the query is empty; try 'SELECT * FROM rule'\n", stderr);
  return EXIT_BAD;
}

static int query_trace(const char *path, const char *sql, const struct values *v) {
  kvs_error err;
  sqlite3 *db = NULL;
  if (kvs_trace_read(path, &db, &err) != KVS_OK) return report(&err);
  interrupted_db = db;
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGINT, &action, NULL);
  int code = run_queries(db, sql, v, style_of_stdout(false));
  interrupted_db = NULL;
  sqlite3_close(db);
  return code;
}

/* ---- where queries come from ----------------------------------------------------------------------------------- */

/* Everything on stdin, or NULL after a message. */
static char *read_stdin(void) {
  size_t room = 1 << 16, used = 0;
  char *text = malloc(room);
  while (text) {
    used += fread(text + used, 1, room - used - 1, stdin);
    if (used < room - 1) break;
    char *larger = realloc(text, room *= 2);
    if (!larger) free(text);
    text = larger;
  }
  if (!text) {
    fputs("kvstep sql: out of memory while reading standard input\n", stderr);
    return NULL;
  }
  if (!ferror(stdin)) {
    text[used] = '\0';
    return text;
  }
  fprintf(stderr, "kvstep sql: standard input cannot be read: %s\n", strerror(errno));
  free(text);
  return NULL;
}

/* The extension: named by KVSTEP_EXTENSION, or beside the executable in the build tree, or installed. */
static bool find_extension(char *path, size_t size) {
  const char *named = getenv("KVSTEP_EXTENSION");
  if (named && *named) {
    snprintf(path, size, "%s", named);
    return access(path, R_OK) == 0;
  }
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return false;
  self[length] = '\0';
  char *slash = strrchr(self, '/');
  if (!slash) return false;
  *slash = '\0';
  static const char *const places[] = {"build/kvstep.so", "kvstep.so", "../lib/kvstep/kvstep.so"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    int needed = snprintf(path, size, "%s/%s", self, places[i]);
    if (needed > 0 && (size_t)needed < size && access(path, R_OK) == 0) return true;
  }
  return false;
}

static int start_shell(const char *path) {
  kvs_error err;
  sqlite3 *db = NULL;
  if (kvs_trace_read(path, &db, &err) != KVS_OK) return report(&err); /* its messages are better than the shell's */
  sqlite3_close(db);
  char extension[PATH_MAX + 32], load[PATH_MAX + 64];
  bool found = find_extension(extension, sizeof extension);
  if (!found) fputs("kvstep sql: kvstep.so is not found (KVSTEP_EXTENSION names it); the views work, slower\n", stderr);
  /* The shell's own quoting: a backslash protects a quote between double quotes. */
  char *o = load + snprintf(load, sizeof load, ".load \"");
  for (const char *c = extension; found && *c && o < load + sizeof load - 3; c++) {
    if (*c == '"' || *c == '\\') *o++ = '\\';
    *o++ = *c;
  }
  strcpy(o, "\"");
  /* A path that begins with a dash would be an option. */
  char *file = NULL;
  if (path[0] == '-' && asprintf(&file, "./%s", path) < 0) file = NULL;
  if (found)
    execlp("sqlite3", "sqlite3", "-readonly", "-cmd", load, file ? file : path, (char *)NULL);
  else
    execlp("sqlite3", "sqlite3", "-readonly", file ? file : path, (char *)NULL);
  int errnum = errno;
  free(file);
  fprintf(stderr, "kvstep sql: the sqlite3 shell cannot be started: %s; install it, or give a QUERY\n",
          strerror(errnum));
  return EXIT_BAD;
}

static int run_sql(const struct command *command, struct arguments *arguments) {
  struct values v = {0};
  int code = parse_options(command, arguments, &v);
  if (code >= 0) return code;
  const char *path = arguments->at[0], *query = arguments->count > 1 ? arguments->at[1] : NULL;
  if (!query && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) return start_shell(path);
  if (query && strcmp(query, "-") != 0) return query_trace(path, query, &v);
  char *text = read_stdin();
  if (!text) return EXIT_BAD;
  code = query_trace(path, text, &v);
  free(text);
  return code;
}

static const struct option options[] = {
    RESULT_FORMAT_OPTION,
    {0},
};
static const struct positional positionals[] = {
    {.name = "TRACE", .help = "a trace that `kvstep run -o` or another engine wrote", .completion = "file"},
    {.name = "QUERY", .help = "one or more SQL statements; - or none: from standard input", .optional = true},
    {0},
};
const struct command command_sql = {
    .name = "sql",
    .summary = "ask a trace anything, in SQL",
    .description =
        "Runs a query on a trace and prints the rows. The trace is never written. On a terminal, without a QUERY, "
        "starts the sqlite3 shell on it, with kvstep's faster views loaded.",
    .examples = "  kvstep sql my.db 'SELECT * FROM rule'\n"
                "  kvstep sql my.db 'SELECT row_token_text, weight FROM attention\n"
                "      WHERE step = 12 AND layer = 0 AND head = 2 ORDER BY weight DESC'\n"
                "  kvstep sql my.db -o csv < query.sql > rows.csv\n",
    .positionals = positionals,
    .options = options,
    .run = run_sql,
};
