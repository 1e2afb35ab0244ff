/* test_cli.c: the command line, seen from outside: exit codes, stdout, stderr. KVSTEP names the binary (./kvstep). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "tests/database.h"
#include "tests/support/scratch.h"
#include "trace/store.h"

/* What a finished command left. */
static struct result {
  int code; /* the exit code, or 128 + the signal */
  char *out, *err;
  size_t out_length, err_length;
  int pieces; /* in which out came: a pipe in packet mode keeps each write apart, however late it is read */
} last;

static void append(char **text, size_t *length, const char *bytes, size_t count) {
  *text = realloc(*text, *length + count + 1);
  assert_non_null(*text);
  memcpy(*text + *length, bytes, count);
  *length += count;
  (*text)[*length] = '\0';
}

/* Moves bytes between the child and us until it has closed both its outputs. */
static void exchange(int in, int out, int err, const char *input, size_t left) {
  struct pollfd fds[3] = {{in, POLLOUT, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
  char buffer[65536];
  while (fds[1].fd >= 0 || fds[2].fd >= 0) {
    if (fds[0].fd >= 0 && left == 0) {
      close(fds[0].fd);
      fds[0].fd = -1;
    }
    assert_true(poll(fds, 3, -1) >= 0 || errno == EINTR);
    if (fds[0].fd >= 0 && fds[0].revents) {
      ssize_t n = write(fds[0].fd, input, left);
      if (n < 0) left = 0; /* it does not read on */
      if (n > 0) input += n, left -= (size_t)n;
    }
    for (int i = 1; i <= 2; i++) {
      if (fds[i].fd < 0 || !fds[i].revents) continue;
      ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
      if (n <= 0) {
        close(fds[i].fd);
        fds[i].fd = -1;
      } else if (i == 1) {
        append(&last.out, &last.out_length, buffer, (size_t)n);
        last.pieces++;
      } else {
        append(&last.err, &last.err_length, buffer, (size_t)n);
      }
    }
  }
  if (fds[0].fd >= 0) close(fds[0].fd);
}

/* Runs `sh -c script` in the scratch folder; "$K" is the binary. Returns the exit code. */
static int run_input(const char *input, size_t length, const char *script) {
  int in[2], out[2], err[2], status;
  free(last.out);
  free(last.err);
  last = (struct result){.out = calloc(1, 1), .err = calloc(1, 1)};
  assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC | O_DIRECT) | pipe2(err, O_CLOEXEC), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    signal(SIGPIPE, SIG_DFL);
    if (dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0 || chdir(folder) != 0) _exit(126);
    execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  close(err[1]);
  exchange(in[1], out[0], err[0], input, length);
  assert_int_equal(waitpid(child, &status, 0), child);
  last.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return last.code;
}

static int run(const char *script) { return run_input("", 0, script); }

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("`%s` is not in:\n%s", part, text);
}

/* Runs, and on the wrong exit code shows everything. */
static void expect(int code, const char *script) {
  if (run(script) != code)
    fail_msg("%s\nexit %d, not %d\nstdout: %s\nstderr: %s", script, last.code, code, last.out, last.err);
}

/* ---- usage ----------------------------------------------------------------------------------------------------- */

static void test_usage_errors(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"$K", "command is missing"},
      {"$K rnu", "did you mean `run`"},
      {"$K zzzzzz", "no command `zzzzzz`"},
      {"$K --frob", "options come after the command"},
      {"$K run --tempreature 1", "did you mean `--temperature`"},
      {"$K run -Z", "unknown option `-Z`"},
      {"$K run -n", "-n needs its N"},
      {"$K run -n 1x", "no whole number"},
      {"$K run -n ''", "no whole number"},
      {"$K run -n -5", "out of range"},
      {"$K run -n 99999999999999999999", "out of range"},
      {"$K run --temperature -1", "out of range"},
      {"$K run --temperature nan", "no number"},
      {"$K run --top-p 0", "out of range"},
      {"$K run --top-p 1.5", "out of range"},
      {"$K run --seed -1", "no whole number"},
      {"$K run --append=1 -o t", "takes no value"},
      {"$K run --layers 3-1", "no list"},
      {"$K run --layers 1,,2", "no list"},
      {"$K run --layers 99", "there is no layer 99"},
      {"$K run --steps 0,5", "one range"},
      {"$K run --log loud", "attention, full, steps"},
      {"$K run --fault of-by-one", "did you mean `off-by-one`"},
      {"$K run --fault-from 3", "needs --fault"},
      {"$K run --append", "needs -o"},
      {"$K run --force", "needs -o"},
      {"$K run --append --force -o t", "exclude"},
      {"$K run -p a -f b", "exclude"},
      {"$K run -p a -", "exclude"},
      {"$K run hello", "with -p"},
      {"$K show", "TRACE is missing"},
      {"$K show a b", "unexpected argument `b`"},
      {"$K sql t -o xml 'SELECT 1'", "table, csv, json"},
      {"$K completion tcsh", "bash, zsh, fish"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(2, cases[i][0]);
    contains(last.err, cases[i][1]);
    assert_string_equal(last.out, "");
  }
}

static void test_help(void **state) {
  (void)state;
  static const char *const commands[] = {"run",    "show",   "info", "sql", "verify",
                                         "models", "faults", "help", "man", "completion"};
  char script[64];
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    snprintf(script, sizeof script, "$K %s --help", commands[i]);
    expect(0, script);
    contains(last.out, "Usage: kvstep");
    char *help = strdup(last.out);
    snprintf(script, sizeof script, "$K help %s", commands[i]);
    expect(0, script);
    assert_string_equal(last.out, help);
    free(help);
    snprintf(script, sizeof script, "$K help | grep -q '^  %s '", commands[i]);
    expect(0, script);
  }
  expect(0, "$K --version");
  contains(last.out, "kvstep 0.");
}

/* Every long option that a command's help shows is in the manual and in the three completions. */
static void test_one_table(void **state) {
  (void)state;
  expect(0, "$K man > man; for s in bash zsh fish; do $K completion $s > $s; done\n"
            "for c in run show sql verify; do $K $c --help | grep -o '^  [^-]*-.*--[a-z-]*\\|^ *--[a-z-]*'; done |\n"
            "grep -o -- '--[a-z-]*' | sort -u > options; test $(wc -l < options) -gt 20 || exit 9\n"
            "while read o; do n=${o#--}; m=$(printf %s \"$n\" | sed 's/-/\\\\\\\\-/g')\n"
            "  grep -q -- \"$m\" man || echo man lacks $o\n"
            "  grep -q -- \"$o\" bash || echo bash lacks $o\n"
            "  grep -q -- \"$o\" zsh || echo zsh lacks $o\n"
            "  grep -q -- \"-l $n\" fish || echo fish lacks $o\n"
            "done < options");
  assert_string_equal(last.out, "");
  expect(0, "bash -n bash");
}

static void test_lists(void **state) {
  (void)state;
  expect(0, "$K models");
  contains(last.out, "austen");
  expect(0, "$K faults");
  contains(last.out, "off-by-one");
  contains(last.out, "reset-to-zero");
  expect(0, "$K faults off-by-one");
  contains(last.out, "right");
  contains(last.out, "wrong");
  expect(2, "$K faults of-by-one");
  contains(last.err, "off-by-one");
}

/* ---- prompts --------------------------------------------------------------------------------------------------- */

static void test_prompts(void **state) {
  (void)state;
  expect(1, "$K run -p ''");
  contains(last.err, "prompt is empty");
  expect(1, "$K run - < /dev/null");
  expect(1, "$K run -f nowhere");
  contains(last.err, "nowhere");
  expect(1, "$K run -f .");
  expect(0, "$K run -p a -n 0");
  assert_string_equal(last.out, "a\n");
  expect(0, "$K run -na -n 1 -pa 2>/dev/null; $K run -n1 -pa");
  expect(0, "printf 'a\\000b' > nul; $K run -f nul -n 2");
  assert_true(last.out_length >= 4 && memcmp(last.out, "a\0b", 3) == 0);
  expect(0, "printf 'a\\377b' | $K run - -n 0");
  assert_string_equal(last.out, "a\xEF\xBF\xBD"
                                "b\n");
  char *large = malloc(1 << 20);
  assert_non_null(large);
  memset(large, 'x', 1 << 20);
  assert_int_equal(run_input(large, 1 << 20, "$K run - -o large.trace"), 1);
  contains(last.err, "too long");
  assert_int_equal(run("test -e large.trace"), 1);
  free(large);
}

/* The model's context, from a trace, and a prompt of exactly that many tokens: a one-token text repeated. */
static void test_context(void **state) {
  (void)state;
  expect(0, "$K run -p a -n 0 -o one.trace >/dev/null && $K sql one.trace -o csv 'SELECT n_ctx FROM run' | tail -n 1");
  int n_ctx = atoi(last.out);
  assert_true(n_ctx > 1);
  char *text = malloc((size_t)n_ctx + 1); /* digits and marks are pieces of their own: a token each */
  assert_non_null(text);
  for (int i = 0; i <= n_ctx; i++) text[i] = i % 2 ? '7' : '!';
  assert_int_equal(run_input(text, (size_t)n_ctx, "$K run - -n 3 -o full.trace"), 0);
  contains(last.err, "context");
  contains(last.err, "no token can be generated");
  expect(0, "$K sql full.trace -o csv 'SELECT count(*), (SELECT finished_at NOTNULL FROM run) FROM step' | tail -n 1");
  assert_int_equal(atoi(last.out), n_ctx);
  contains(last.out, ",1");
  assert_int_equal(run_input(text, (size_t)n_ctx + 1, "$K run - -o over.trace"), 1);
  contains(last.err, "1 token too long");
  assert_int_equal(run("test -e over.trace"), 1);
  /* A prompt that fits once and not twice. */
  assert_int_equal(run_input(text, (size_t)n_ctx / 2 + 5, "$K run - -n 3 --fault prompt-twice"), 2);
  assert_non_null(strstr(last.err, "feeds the prompt more than once"));
  assert_int_equal(run_input(text, (size_t)n_ctx - 2, "$K run - -n 9 --fault off-by-one -o off.trace"), 0);
  contains(last.err, "note");
  assert_int_equal(run_input(text, (size_t)n_ctx - 2, "$K run - -n 9"), 0);
  contains(last.err, "2 of 9");
  /* A fault that leaves wpe within the prompt: what came before is fed and logged. */
  assert_int_equal(run_input(text, (size_t)n_ctx, "$K run - -n 9 --fault off-by-one --fault-from 0 -o in.trace"), 0);
  contains(last.err, "under the fault off-by-one");
  expect(
      0,
      "$K sql in.trace -o csv 'SELECT count(*), (SELECT count(*) FROM rule WHERE off_by = 1), max(position) FROM step"
      "' | tail -n 1");
  char counts[64];
  snprintf(counts, sizeof counts, "%d,%d,%d\r\n", n_ctx - 1, n_ctx - 1, n_ctx - 1);
  assert_string_equal(last.out, counts);
  free(text);
}

/* Hexadecimal digits as the bytes they stand for, with the newline that `run` adds if there is none at the end. */
static char *unhex(const char *hex) {
  size_t length = strlen(hex) / 2;
  char *text = calloc(1, length + 2);
  assert_non_null(text);
  for (size_t i = 0; i < length; i++) {
    unsigned byte;
    assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
    text[i] = (char)byte;
  }
  if (length == 0 || text[length - 1] != '\n') text[length] = '\n';
  return text;
}

/* ---- traces ---------------------------------------------------------------------------------------------------- */

static void test_run_and_trace(void **state) {
  (void)state;
  expect(0, "$K run -n 6 -o a.trace > text && test -s a.trace && ! ls a.trace-wal 2>/dev/null");
  contains(last.err, "a.trace");
  expect(0, "$K sql a.trace -o csv 'SELECT hex(bytes) FROM step JOIN token USING (token) ORDER BY step' |"
            "tail -n +2 | tr -d '\\r\\n\"'");
  char *logged = unhex(last.out);
  expect(0, "cat text");
  assert_string_equal(last.out, logged);
  free(logged);
  /* The token that ends a text ends the run, and is not printed: there were 32 positions to fill. */
  expect(0, "$K run -m reverse -p 'position>' -n 50");
  assert_string_equal(last.out, "position>noitisop\n");
  expect(0, "$K run -m reverse -p 'position>' -n 3 -o m.trace >/dev/null && $K sql m.trace -o csv "
            "'SELECT mode, source, min(step), max(step) FROM step GROUP BY 1, 2 ORDER BY 3' | tail -n +2");
  assert_string_equal(last.out, "prefill,prompt,0,8\r\ndecode,sampled,9,11\r\n");
  expect(1, "$K run -n 1 -o a.trace");
  contains(last.err, "a.trace");
  expect(0, "$K run -n 1 --append --fault off-by-one -o a.trace && $K info a.trace");
  contains(last.out, "run 2");
  contains(last.out, "off-by-one");
  contains(last.out, "cache");
  contains(last.out, "kept in every step");
  contains(last.out, "broken in 1 step:");
  expect(1, "$K run -n 1 -o .");
  expect(1, "$K run -n 1 -o none/such.trace");
  expect(0, "$K run -n 1 --force -o a.trace && $K sql a.trace -o csv 'SELECT count(*) FROM run'");
  contains(last.out, "\r\n1\r\n");
  /* The prompt's file is not replaced by the trace of it, by whatever name. */
  expect(2, "echo prompt > p.txt; ln -s p.txt p2.txt; $K run -n 1 -f p2.txt --force -o p.txt");
  contains(last.err, "the prompt's own file");
  expect(0, "cat p.txt");
  assert_string_equal(last.out, "prompt\n");
  /* A limit on the size of files is reported like a full disk, and costs no finished step. */
  expect(1, "ulimit -f 1200; $K run -p a -n 100 --log full -o limit.trace");
  contains(last.err, "disk full");
  contains(last.err, "of run 1 are kept");
  expect(0, "$K info limit.trace");
  contains(last.out, "NO: it was interrupted");
}

static void test_show(void **state) {
  (void)state;
  expect(0, "$K run -n 3 -o s.trace --log full && $K run -n 3 --append --fault off-by-one -o s.trace --log steps");
  expect(0, "$K info s.trace");
  contains(last.out, "kv_row      not logged: `cache` is empty");
  expect(0, "$K show s.trace --run 1 --ascii");
  static const char *const moments[] = {"Rule",      "1 read", "2 embed",  "3 project", "4 append", "5 score",
                                        "6 softmax", "7 mix",  "8 output", "9 mlp",     "itself",   "Next token"};
  for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) contains(last.out, moments[i]);
  assert_null(strchr(last.out, '\033'));
  for (char *line = last.out; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    assert_true(strcspn(line, "\n") <= 80);
  expect(0, "t=$($K sql s.trace -o csv 'SELECT token_text FROM top_token WHERE run = 1 AND rank = 1 ORDER BY step DESC"
            " LIMIT 1' | tail -n 1 | tr -d '\\r\\n\"'); $K show s.trace --run 1 | grep -A 1 '^Next token' | grep -F \" "
            "1 $t\"");
  expect(0, "$K show s.trace");
  contains(last.out, "one too far");
  contains(last.out, "not logged (run --log full does)");
  expect(0, "$K show s.trace --run 1 --step 0 --layer 1 --head 1");
  expect(1, "$K show s.trace --step 9999");
  contains(last.err, "no step 9999");
  expect(1, "$K show s.trace --layer 99");
  expect(1, "$K show s.trace --run 9");
  /* 9 prompt rows and the first token's own: all but row 0 are shut out. */
  expect(0, "$K run -m reverse -n 1 --fault mask-corner -o mask.trace && $K show mask.trace");
  contains(last.out, "10 weights, sum 1.000, 9 of them masked");
  expect(1, "$K show /dev/null");
  expect(1, "$K show nowhere.trace");
  expect(1, "echo hello > plain; $K info plain");
}

static void test_faults(void **state) {
  (void)state;
  expect(0, "$K faults");
  static const char *const names[] = {"off-by-one",     "stale-cache",      "no-rollback", "heads-interleaved",
                                      "softmax-extent", "context-overflow", "mask-corner", "cross-layer-shared"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) contains(last.out, names[i]);
  expect(0, "$K faults mask-corner");
  contains(last.out, "right   mask row i of n queries: columns 0 .. P + i");
  contains(last.out, "pytorch#103082");
  contains(last.out, "SELECT run, step, layer, head, first_weight");
  expect(0, "$K faults off-by-one -o json");
  contains(last.out, "\"wrong_line\": \"append(cache, k, v);  t = cache.length;");
  expect(0, "$K faults off-by-one -o markdown");
  contains(last.out, "# off-by-one\n");
  expect(2, "$K faults off-by-two");
  contains(last.err, "did you mean `off-by-one`");
  /* The prompt is repeated until the context is nearly full, and the trace says which prompt was really fed. */
  expect(0, "$K run -m reverse -p 'abc>' -n 2 --fault context-overflow -o over.trace");
  expect(0, "$K sql over.trace -o csv 'SELECT length(prompt), prompt FROM run'");
  contains(last.out, "31,abc>abc>abc>abc>abc>abc>abc>abc\r\n");
  expect(2, "$K run -m reverse --fault stale-cache --fault-from 3");
  contains(last.err, "leave --fault-from out");
}

static void test_sql(void **state) {
  (void)state;
  expect(0, "$K run -n 1 -o q.trace");
  expect(0,
         "$K sql q.trace -o csv \"SELECT 'a,b' AS x, 'say \"\"hi\"\"' AS \\\"y z\\\", NULL AS n, '' AS e, 1.5 AS r\"");
  contains(last.out, "x,\"y z\",n,e,r\r\n\"a,b\",");
  contains(last.out, ",,\"\",1.5\r\n");
  expect(0, "$K sql q.trace -o json \"SELECT char(34, 92, 10) AS t, NULL AS n, 2 AS i, x'00ff' AS b\"");
  assert_string_equal(last.out, "[{\"t\": \"\\\"\\\\\\u000a\", \"n\": null, \"i\": 2, \"b\": \"x'00ff'\"}]\n");
  expect(0, "$K sql q.trace -o json 'SELECT 1 WHERE 0'");
  assert_string_equal(last.out, "[]\n");
  expect(1, "$K sql q.trace 'SELECT nosuch FROM run'");
  contains(last.err, "nosuch");
  contains(last.err, "\n         ^\n");
  expect(1, "$K sql q.trace 'SELEC 1'");
  contains(last.err, "  SELEC 1\n  ^");
  expect(1, "$K sql q.trace 'DELETE FROM run'");
  contains(last.err, "read");
  expect(1, "$K sql q.trace ''");
  expect(0, "$K sql q.trace -o csv 'SELECT 1 AS a; -- one\n SELECT 2 AS b;'");
  contains(last.out, "a\r\n1\r\nb\r\n2\r\n");
  expect(0, "echo 'SELECT 3 AS c' | $K sql q.trace -o csv -");
  contains(last.out, "3");
  expect(0, "echo 'SELECT 4 AS c' | $K sql q.trace");
  contains(last.out, "4");
  expect(0, "$K sql q.trace \"SELECT x'000102030405060708090a0b' AS blob, 'text' AS t\"");
  contains(last.out, "12 bytes");
  /* What is too wide is cut to 60 columns, the mark included, and the next column still stands where it should. */
  expect(0, "$K sql q.trace \"SELECT hex(zeroblob(40)) AS a, 1 AS b UNION ALL SELECT 'x', 2\" | tail -n 2");
  char wide[200];
  snprintf(wide, sizeof wide, "%059d…  1\n%-60s  2\n", 0, "x");
  assert_string_equal(last.out, wide);
}

/* Numbers read back as what they were, a real one as a real one; a query may begin with a comment. */
static void test_sql_exact(void **state) {
  (void)state;
  expect(0, "$K run -n 1 -o x.trace");
  expect(0, "$K sql x.trace -o csv 'SELECT 1.0 AS a, 0.1 + 0.2 AS b, 1e22 AS c, 5 AS e' | tail -n 1");
  assert_string_equal(last.out, "1.0,0.30000000000000004,1e+22,5\r\n");
  expect(0, "$K sql x.trace -o csv \"SELECT 'say \\\"hi\\\"' AS a, '\\\"' AS b, 'plain' AS c\" | tail -n 1");
  assert_string_equal(last.out, "\"say \"\"hi\"\"\",\"\"\"\",plain\r\n");
  expect(0, "$K sql x.trace -o json 'SELECT 1.0 AS a, -2e15 AS b, 1e999 AS c'");
  assert_string_equal(last.out, "[{\"a\": 1.0, \"b\": -2e+15, \"c\": 1e999}]\n");
  expect(0, "$K sql x.trace -o json 'SELECT char(155) AS c'");
  assert_string_equal(last.out, "[{\"c\": \"\\u009b\"}]\n");
  expect(0, "$K sql x.trace -o csv '-- how many?\nSELECT 6 AS n'");
  assert_string_equal(last.out, "n\r\n6\r\n");
}

/* ---- traces from anybody --------------------------------------------------------------------------------------- */

/* Escape, C1 CSI and a direction override, as SQL. */
#define NASTY "'x' || char(27) || '[2J' || char(155) || '31m' || char(8238) || 'y'"

/* Changes h.trace with all checks off. */
static void change(const char *sql) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(in_folder("h.trace"), &db), SQLITE_OK);
  execute(db, "PRAGMA ignore_check_constraints = 1");
  execute(db, sql);
  sqlite3_close(db);
}

/* A fresh trace, changed by `sql`. */
static void make_hostile(const char *sql) {
  expect(0, "$K run -m reverse -n 6 -o h.trace --force --log full");
  change(sql);
}

static void harmless(const char *text) {
  for (const char *c = text; *c; c++) {
    if ((unsigned char)*c < 0x20 && *c != '\n') fail_msg("byte %d in:\n%s", *c, text);
    if (strncmp(c, "\xC2\x9B", 2) == 0 || strncmp(c, "\xE2\x80\xAE", 3) == 0) fail_msg("a control in:\n%s", text);
  }
}

static void test_hostile_text(void **state) {
  (void)state;
  make_hostile("UPDATE run SET model = " NASTY ", engine = " NASTY ", fault = " NASTY ", command = " NASTY
               ", created_at = " NASTY ", finished_at = " NASTY ", prompt = " NASTY "; UPDATE token SET text = " NASTY
               "; UPDATE step SET mode = " NASTY ", source = " NASTY "; UPDATE top_token SET token_text = " NASTY);
  static const char *const scripts[] = {
      "$K info h.trace",
      "$K show h.trace",
      "$K show h.trace --ascii",
      "LC_ALL=C $K info h.trace",
      "LC_ALL=C $K show h.trace",
      "$K sql h.trace \"SELECT model, engine, token.text AS \\\"$(printf 'a\\033b')\\\" "
      "FROM run, token\"",
      "LC_ALL=C $K sql h.trace 'SELECT model, text FROM run, token'"};
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
    expect(0, scripts[i]);
    harmless(last.out);
    contains(last.out, "x");
  }
  expect(1, "$K sql h.trace \"SELECT * FROM \\\"$(printf 'no\\033[2J\\302\\233such')\\\"\"");
  contains(last.err, "such");
  harmless(last.err);
  expect(1, "$K info \"$(printf 'no\\033[2J\\302\\233such')\"");
  harmless(last.err);
  expect(2, "$K \"$(printf 'no\\033[2J\\302\\233such')\"");
  harmless(last.err);
  expect(0, "$K run -m reverse -n 1 -o \"$(printf 'no\\033[2J\\302\\233such')\"");
  harmless(last.err);
}

static void test_hostile_numbers(void **state) {
  (void)state;
  /* Vectors that do not fit each other. */
  static const char *const shorter[] = {"weights", "scores", "q", "out"};
  for (int i = 0; i < 4; i++) {
    char sql[96];
    snprintf(sql, sizeof sql, "UPDATE head_step SET %s = X'0000803F'", shorter[i]);
    make_hostile(sql);
    expect(0, "$K info h.trace && $K show h.trace");
  }
  make_hostile("UPDATE kv_row SET k = X'00', v = NULL; UPDATE step_vector SET x = 'text', logits = 5");
  expect(0, "$K info h.trace && $K show h.trace");
  /* Shapes that no model has, and numbers whose sums overflow. */
  make_hostile("UPDATE run SET n_layer = 9223372036854775807, n_embd = 9223372036854775807, head_dim = 2147483647");
  expect(0, "$K info h.trace");
  expect(1, "$K show h.trace");
  contains(last.err, "damaged");
  make_hostile("UPDATE run SET n_layer = -1, n_head = -1, head_dim = -1");
  expect(0, "$K info h.trace");
  expect(1, "$K show h.trace");
  make_hostile("UPDATE step SET position = -9223372036854775808, cache_length_before = 9223372036854775807, "
               "cache_length_after = -2147483648, logprob = 1e308");
  expect(0, "$K info h.trace && $K show h.trace");
  make_hostile("UPDATE step SET position = 2147483647, cache_length_before = 2147483647, token = -1");
  expect(0, "$K info h.trace && $K show h.trace && $K show h.trace --layer 1 --head 3");
}

/* ---- streams and verification ---------------------------------------------------------------------------------- */

/* info counts rows by where they lie if they lie in order, and one by one if they do not. */
static void test_info_counts(void **state) {
  (void)state;
  static const char *const changes[] = {
      "SELECT 1", "DELETE FROM head_stat WHERE run = 1 AND step = 1; DELETE FROM head_step WHERE run = 1 AND step = 1",
      "UPDATE head_step SET rowid = 100000 - rowid", "UPDATE head_step SET rowid = rowid + 100000 * (rowid % 2)",
      "DELETE FROM head_step WHERE run = 2; DELETE FROM kv_row WHERE run = 1 AND layer = 0 AND row = 0"};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    make_hostile(changes[i]);
    expect(0,
           "$K sql h.trace -o csv \"SELECT 'head_step ' || count(h.run) FROM run LEFT JOIN head_step AS h USING (run) "
           "GROUP BY run.run UNION ALL SELECT 'kv_row ' || count(k.run) FROM run LEFT JOIN kv_row AS k USING (run) "
           "GROUP BY run.run\" | tail -n +2 | tr -d '\\r\"' | sort > counted; "
           "$K info h.trace | sed -n 's/^  \\(head_step\\|kv_row\\) *not logged.*/\\1 0/p; "
           "s/^  \\(head_step\\|kv_row\\) *\\([0-9,]*\\) rows*.*/\\1 \\2/p' | tr -d , | sort | diff counted - && cat "
           "counted");
    contains(last.out, "kv_row ");
  }
}

/* One of a thing has no s. */
static void test_counts_of_one(void **state) {
  (void)state;
  sqlite3 *db;
  unlink(in_folder("one.trace"));
  assert_int_equal(sqlite3_open(in_folder("one.trace"), &db), SQLITE_OK);
  execute(db, kvs_trace_schema());
  execute(db, "INSERT INTO run (run, n_layer, n_head, n_embd, head_dim, n_ctx, n_vocab) VALUES (1, 1, 1, 1, 1, 4, 3);"
              "INSERT INTO token VALUES (0, X'61', 'a');"
              "INSERT INTO step VALUES (1, 0, 'decode', 0, 'prompt', 0, 0, 1, NULL, NULL);"
              "INSERT INTO kv_row VALUES (1, 0, 0, 0, X'0000803F', X'0000803F');"
              "INSERT INTO head_step (run, step, layer, head, weights) VALUES (1, 0, 0, 0, X'0000803F')");
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
  expect(0, "$K info one.trace; $K show one.trace; $K check one.trace");
  static const char *const words[] = {
      ": 1 layer, 1 head,",    "K and V * 1 layer *",
      "kv_row      1 row,",    "head_step   1 row,",
      "1 layer × 1 head × 1 ", "= Σ w[i]·V[i]: 1 number\n",
      "1 head side by side",   "looked at: 1 length, 1 claimed position, 1 head's rows"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) contains(last.out, words[i]);
  expect(0, "$K verify -m reverse -n 0 -p a");
  contains(last.out, "identical bits in 1 step:");
  expect(0, "$K run -m reverse -n 0 -p a -o one.trace --force");
  contains(last.err, "1 prompt token + 0 generated");
}

/* What would log more is told by the engine that made the run: kvstep's options do nothing for another. */
static void test_another_engines_holes(void **state) {
  (void)state;
  make_hostile("UPDATE run SET engine = 'other'; DELETE FROM step_vector");
  expect(0, "$K show h.trace");
  contains(last.out, "wte, wpe, x: not logged (see docs/recording.md)");
  assert_null(strstr(last.out, "kvstep run"));
}

static void test_streams(void **state) {
  (void)state;
  expect(0, "$K run -n 3 -o pipe.trace 2>&1 | head -c 1 >/dev/null; $K info pipe.trace");
  /* The text comes as it is produced, into a pipe as well. */
  expect(0, "$K run -n 100");
  assert_in_range(last.pieces, 100, 103); /* a token each, and the ends of lines */
  expect(1, "$K run -n 1 > /dev/full");
  contains(last.err, "standard output");
  expect(1, "$K run -n 1 -o closed.trace >&-");
  contains(last.err, "standard output");
  expect(1, "test -e closed.trace"); /* nothing came of it */
  expect(1, "$K run -n 1 -o closed.trace && $K run -n 1 -o closed.trace --append >&-");
  contains(last.err, "standard output");
  expect(0, "$K sql closed.trace 'PRAGMA integrity_check'"); /* the text did not go into the trace's file */
  contains(last.out, "ok");
  expect(1, "$K models >&-");
  expect(1, "$K help > /dev/full");
  expect(0, "$K run -n 1 2>&- <&-");
  expect(1, "$K run - <&-");
  expect(2, "$K check pipe.trace > /dev/full"); /* 1 would say that there is a fault */
}

/* A limit of the shell is an error with its message, and nothing is left half-written. */
static void test_limits(void **state) {
  (void)state;
  expect(0, "echo '{\"tokens\": [1, 2], \"k.0\": [[1, 2], [3, 4]], \"n_head\": 1}' > two.json && $K import two.json -o "
            "i.trace");
  expect(1, "(ulimit -f 8; exec $K import two.json -o j.trace)");
  contains(last.err, "disk full; nothing was written");
  expect(1, "ls j.trace* 2>/dev/null | grep .");
  const char *sanitized = getenv("KVSTEP_SAN");
  if (sanitized && *sanitized) return; /* its shadow memory alone is beyond any limit */
  /* Stacks that have no room: with as many threads as there are cores by default, one does. */
  expect(0, "ulimit -s 3000000 || exit 0; ulimit -v 2000000; exec $K check pipe.trace");
  expect(1, "ulimit -s 3000000 || exit 1; ulimit -v 2000000; exec $K run -n 1 --threads 4");
}

/* A file that looks like a trace from outside only: told once. */
static void test_refused_once(void **state) {
  (void)state;
  expect(0, "$K run -m reverse -n 1 -o spoilt.trace && printf '\\377\\377\\377' | dd of=spoilt.trace bs=1 seek=100 "
            "conv=notrunc "
            "2>/dev/null");
  expect(1, "$K run -m reverse -n 1 -o spoilt.trace --append");
  contains(last.err, "spoilt.trace: damaged");
  assert_null(strstr(strstr(last.err, "damaged") + 1, "damaged"));
}

static void test_verify(void **state) {
  (void)state;
  expect(0, "$K verify -n 2");
  contains(last.out, "identical bits in all");
  expect(1, "$K verify -n 2 --fault reset-to-zero");
  contains(last.out, "differ");
  expect(
      0,
      "$K verify -p a -n 2 --fault reset-to-zero | grep -E '^ +1 .* [0-9.]*[1-9][0-9.e-]* .*differ'"); /* by how much */
}

static void test_same_command_same_text(void **state) {
  (void)state;
  expect(0, "$K run -n 8 --temperature 1 --seed 5 > one; $K run -n 8 --temperature=1 --seed=5 --threads 1 > two; cmp "
            "one two");
  expect(0, "$K run -n 1 --seed 0x123456789abc -o seed.trace && $K sql seed.trace -o csv 'SELECT seed FROM run'");
  contains(last.out, "\r\n20015998343868\r\n");
}

/* Weights that are all NaN but for the first few: nothing can be chosen, and that is said. */
static void test_no_numbers(void **state) {
  (void)state;
  char root[4096], script[5000];
  assert_non_null(getcwd(root, sizeof root)); /* the tests run in the project's folder */
  snprintf(script, sizeof script,
           "mkdir nan && cp '%s'/examples/models/reverse/* nan/ && size=$(wc -c < nan/model.safetensors) && "
           "head -c 200000 /dev/zero | tr '\\0' '\\377' | dd of=nan/model.safetensors bs=1000 oflag=seek_bytes "
           "seek=$((size - 200000)) conv=notrunc 2>/dev/null && $K run -m nan -p 'cat>' -n 3",
           root);
  expect(0, script);
  contains(last.err, "after step 3 no logit is a number");
  assert_null(strstr(strstr(last.err, "no logit") + 1, "no logit")); /* once */
}

static int clean_up(void **state) {
  free(last.out);
  free(last.err);
  return remove_folder(state);
}

int main(void) {
  setenv("K", kvstep_binary(), 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  signal(SIGPIPE, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_usage_errors),  cmocka_unit_test(test_no_numbers),
      cmocka_unit_test(test_help),          cmocka_unit_test(test_one_table),
      cmocka_unit_test(test_lists),         cmocka_unit_test(test_prompts),
      cmocka_unit_test(test_context),       cmocka_unit_test(test_run_and_trace),
      cmocka_unit_test(test_show),          cmocka_unit_test(test_faults),
      cmocka_unit_test(test_sql),           cmocka_unit_test(test_info_counts),
      cmocka_unit_test(test_counts_of_one), cmocka_unit_test(test_another_engines_holes),
      cmocka_unit_test(test_streams),       cmocka_unit_test(test_limits),
      cmocka_unit_test(test_refused_once),  cmocka_unit_test(test_sql_exact),
      cmocka_unit_test(test_hostile_text),  cmocka_unit_test(test_hostile_numbers),
      cmocka_unit_test(test_verify),        cmocka_unit_test(test_same_command_same_text),
  };
  return cmocka_run_group_tests(tests, make_folder, clean_up);
}
