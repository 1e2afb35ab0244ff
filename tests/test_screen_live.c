/* test_screen_live.c: decoding on the screen, as somebody at a terminal meets it: the next token, e, f, ^C, leaving and dying meanwhile.
 * Every ending leaves a whole trace in one file. */
#include "tests/at_terminal.h"

#include <sys/ioctl.h>

#include "tests/support/model_files.h"
#include "tests/support/random.h"

#define SLOW_CONTEXT 100000 /* positions: a run in it does not end by itself */

static char base[128], slow[128], slow_base[128];

/* ---- a model that is never at its end --------------------------------------------------------------------------------- */

/* Any weights do: one layer, 8 wide, the backwards speller's 28 letters, and no end of text. */
static void write_slow_weights(const char *path) {
  static const struct {
    const char *name;
    int rows, columns;
  } tensors[] = {{"wte.weight", 28, 8},
                 {"wpe.weight", SLOW_CONTEXT, 8},
                 {"h.0.ln_1.weight", 8, 0},
                 {"h.0.ln_1.bias", 8, 0},
                 {"h.0.attn.c_attn.weight", 8, 24},
                 {"h.0.attn.c_attn.bias", 24, 0},
                 {"h.0.attn.c_proj.weight", 8, 8},
                 {"h.0.attn.c_proj.bias", 8, 0},
                 {"h.0.ln_2.weight", 8, 0},
                 {"h.0.ln_2.bias", 8, 0},
                 {"h.0.mlp.c_fc.weight", 8, 32},
                 {"h.0.mlp.c_fc.bias", 32, 0},
                 {"h.0.mlp.c_proj.weight", 32, 8},
                 {"h.0.mlp.c_proj.bias", 8, 0},
                 {"ln_f.weight", 8, 0},
                 {"ln_f.bias", 8, 0}};
  char header[4096] = "{";
  size_t count = 0, size;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    size_t numbers = (size_t)tensors[i].rows * (size_t)(tensors[i].columns ? tensors[i].columns : 1),
           used = strlen(header);
    char shape[64];
    snprintf(shape, sizeof shape, tensors[i].columns ? "%d,%d" : "%d", tensors[i].rows, tensors[i].columns);
    snprintf(header + used, sizeof header - used,
             "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", i ? "," : "", tensors[i].name,
             shape, 4 * count, 4 * (count + numbers));
    count += numbers;
  }
  strcat(header, "}");
  float *values = malloc(count * sizeof *values);
  assert_non_null(values);
  for (size_t i = 0; i < count; i++) values[i] = (float)random_below(65536) / 32768.0F - 1;
  unsigned char *bytes = safetensors_bytes(-1, header, values, count * sizeof *values, &size);
  write_file(path, bytes, size);
  free(bytes);
  free(values);
}

static int make_all(void **state) {
  if (setup(state) != 0) return -1;
  char path[160];
  snprintf(base, sizeof base, "%s/base.trace", folder);
  snprintf(slow, sizeof slow, "%s/slow", folder);
  snprintf(slow_base, sizeof slow_base, "%s/slow.trace", folder);
  if (rename(trace, base) != 0 || mkdir(slow, 0777) != 0) return -1;
  snprintf(path, sizeof path, "%s/model.safetensors", slow);
  write_slow_weights(path);
  return shell(
      "cp examples/models/reverse/vocab.json examples/models/reverse/merges.txt '%s' && "
      "sed -e 's/\"n_embd\": [0-9]*/\"n_embd\": 8/; s/\"n_head\": [0-9]*/\"n_head\": 2/; s/\"n_layer\": [0-9]*/"
      "\"n_layer\": 1/; s/\"n_ctx\": [0-9]*/\"n_ctx\": %d/; s/\"n_positions\": [0-9]*/\"n_positions\": %d/; "
      "s/\"eos_token_id\": [0-9]*/\"eos_token_id\": null/' examples/models/reverse/config.json > '%s/config.json' && "
      "'%s' run -m '%s' -p 'position>' -n 2 --log steps -o '%s' >/dev/null 2>&1",
      slow, SLOW_CONTEXT, SLOW_CONTEXT, slow, program, slow, slow_base);
}

/* ---- helpers -------------------------------------------------------------------------------------------------------------- */

static int open_copy(void **state) {
  (void)state;
  return shell("rm -f '%s'* && cp '%s' '%s'", trace, base, trace);
}

static int open_slow_copy(void **state) {
  (void)state;
  return shell("rm -f '%s'* && cp '%s' '%s'", trace, slow_base, trace);
}

static void open_live(const char *model) {
  const char *const argv[] = {program, "view", trace, model ? "-m" : NULL, model, NULL};
  pty = pty_start(argv, 24, 80, NULL);
  assert_non_null(pty);
  see_all("step 9/");
}

/* One file in its usual mode, whole; and what a query says of it. */
static void is_whole(const char *query, const char *answer) {
  assert_int_equal(shell("test \"$(ls '%s'*)\" = '%s'", trace, trace), 0);
  assert_int_equal(
      shell("test \"$(sqlite3 '%s' 'PRAGMA integrity_check; PRAGMA journal_mode; PRAGMA foreign_key_check')\" = "
            "\"$(printf 'ok\\ndelete')\"",
            trace),
      0);
  if (shell("test \"$(sqlite3 '%s' \"%s\")\" = '%s'", trace, query, answer) != 0) {
    shell("sqlite3 '%s' \"%s\" >&2", trace, query);
    fail_msg("%s is not %s", query, answer);
  }
}

/* Whether it is said that a step beyond this one is being decoded. */
static bool is_beyond(struct pty *p, const void *step) {
  for (int row = 0; row < p->rows; row++) {
    const char *said = strstr(pty_row(p, row), "decoding step ");
    if (said) return atoi(said + strlen("decoding step ")) > *(const int *)step;
  }
  return false;
}

/* Decoding without an end, some way into it. */
static void open_decoding(void) {
  static const int some = 20;
  open_live(slow);
  type(":decode 99000\r");
  assert_true(pty_wait_for(pty, is_beyond, &some));
}

#define UNFINISHED "SELECT count(*) > 11, sum(finished_at IS NULL) > 0 FROM step JOIN run USING (run)"

/* ---- the next token -------------------------------------------------------------------------------------------------------- */

static void test_next_token(void **state) {
  (void)state;
  open_live(NULL);
  type_and_see("G", "step 16/16");
  assert_true(pty_wait(pty, "decode on  e prompt  f fault")); /* the status line names what can be done at the end */
  type_and_see("l", "step 17/17");
  assert_true(pty_wait(pty, "step 17 was decoded just now"));
  assert_true(pty_wait(pty, "the model ends the text here"));
  type_and_see(" ", "row 18 free"); /* by moments: past the text's end, its first */
  assert_true(pty_wait(pty, "step 18/18"));
  type_and_see("b", "step 17/18");
  quit_whole();
  is_whole("SELECT count(*), sum(finished_at IS NULL) FROM step JOIN run USING (run) WHERE run = 1", "19|0");
}

static void test_many_tokens(void **state) {
  (void)state;
  open_live(slow);
  type_and_see("G\006", "step 20/20"); /* ten */
  assert_true(pty_wait(pty, "step 20 was decoded"));
  type_and_see(":decode 30\r", "step 50/50");
  quit_whole();
  is_whole("SELECT count(*), sum(source = 'sampled') FROM step", "51|42");
}

/* A fault's own context ends before the other: there is no wpe[32]. */
static void test_context_end(void **state) {
  (void)state;
  open_live(NULL);
  type_and_see("r", "run 2 off-by-one");
  type_and_see("G", "step 16/16");
  for (int step = 17; step <= 30; step++) {
    char words[64];
    snprintf(words, sizeof words, "step %d was decoded", step);
    type_and_see("l", words);
  }
  type_and_see("l", "wpe[32]");
  assert_true(pty_wait(pty, "step 30/30"));
  quit_whole();
  is_whole("SELECT count(*), max(position) FROM step WHERE run = 2", "31|31");
}

static void test_plays_on(void **state) {
  (void)state;
  open_live(NULL);
  type("G++++P");
  assert_true(pty_wait(pty, "the model ends the text here"));
  assert_true(pty_wait(pty, "step 17/17"));
  type_and_see("P", "playing");
  assert_true(pty_wait(pty, "Space decodes past its end"));
  assert_true(pty_wait(pty, "step 17/17"));
  quit_whole();
}

/* ---- another prompt --------------------------------------------------------------------------------------------------------- */

static void test_prompt(void **state) {
  (void)state;
  open_live(NULL);
  type_and_see("e", ">position>");
  assert_true(pty_wait(pty, "the prompt of a new run"));
  assert_true(pty->cursor);
  type("\177\177\177\177>");
  assert_true(pty_wait(pty, ">posit>"));
  type_and_see("\r", "run 3 begins with this prompt");
  assert_true(pty_wait(pty, "run 3 correct"));
  assert_true(pty_wait(pty, "step 6/6"));
  type_and_see("e", ">posit>");
  type_and_see("\003e\177\\q\r", "\"\\q\" is no escape");
  assert_true(pty_wait(pty, ">posit\\q"));
  type("\177\177");                /* what was typed is still there to be mended */
  type_and_see("A\r", "no token"); /* the alphabet has no capitals */
  type_and_see("\177>\r", "run 4 begins with this prompt");
  quit_whole();
  is_whole("SELECT group_concat(prompt, ' ') FROM (SELECT prompt FROM run ORDER BY run)",
           "position> position> posit> posit>");
}

static void test_prompt_escapes(void **state) {
  (void)state;
  assert_int_equal(
      shell("'%s' run -m austen -p 'She said:\n\t\\x' -n 2 -o '%s' --force >/dev/null 2>&1", program, trace), 0);
  const char *const argv[] = {program, "view", trace, NULL};
  pty = pty_start(argv, 24, 80, NULL);
  see_all("run 1 correct");
  type_and_see("e", ">She said:\\n\\t\\\\x");
  type_and_see("\\x0a\r", "run 2 begins");
  quit_whole();
  is_whole("SELECT hex(prompt) FROM run WHERE run = 2", "53686520736169643A0A095C780A");
}

/* ---- a fault ------------------------------------------------------------------------------------------------------------------ */

#define PASTE(text) "\033[200~" text "\033[201~"

static void test_pasted(void **state) {
  (void)state;
  open_live(NULL);
  type_and_see(PASTE("q rd:quit\r"), "pasted text is not taken for keys");
  type_and_see("l", "step 10/"); /* the next key is one again */
  type_and_see("e", "the prompt of a new run");
  type_and_see("\177\177\177\177\177\177\177\177\177" PASTE("ab\rc\\d\tx\xE9"
                                                            "\xE2\x82y"),
               ">ab\\nc\\\\d\\tx\\xE9\\xE2\\x82y");
  type_and_see("\007:", "take it");
  type_and_see(PASTE("step\r3") "\r", "step 3/");
  quit_whole();
}

static void test_fault(void **state) {
  (void)state;
  open_live(NULL);
  type_and_see(":step 12\r", "step 12/");
  type_and_see("f", "a fault for the tokens of run 1");
  type_and_see("j", "append(cache, k, v);  t = cache.length;"); /* the wrong line, and above it the right one */
  assert_true(pty_wait(pty, "t = cache.length;  append(cache, k, v);"));
  type_and_see("\033[F", "▸");
  type_and_see("g", "no fault: the same tokens");
  type_and_see("jj", "▸ reset-to-zero");
  type_and_see("\r", "the tokens of run 1 under reset-to-zero");
  assert_true(pty_wait(pty, "run 3 reset-to-zero"));
  assert_true(pty_wait(pty, "step 12/16"));
  type_and_see("8", "run 3 reset-to-zero  beside  run 1 correct");
  assert_true(pty_wait(pty, "the same tokens"));
  type_and_see("f", "▸ reset-to-zero");
  type("\033");
  assert_true(pty_wait_gone(pty, "a fault for the tokens"));
  type_and_see(":fault nonsense\r", "there is no fault \"nonsense\"");
  type_and_see(":fault none\r", "without a fault");
  assert_true(pty_wait(pty, "run 4 correct"));
  quit_whole();
  is_whole("SELECT count(*) FROM step AS a JOIN step AS b USING (step, token) WHERE a.run = 1 AND b.run IN (3, 4) AND "
           "(b.source = 'forced') = (a.source = 'sampled')",
           "34");
}

/* ---- stopping, leaving, dying -------------------------------------------------------------------------------------------------- */

static void test_stops(void **state) {
  (void)state;
  open_decoding();
  type_and_see("2", "2 cache"); /* the keys answer meanwhile */
  type_and_see("?", "help: every key");
  type("\007");
  assert_true(pty_wait_gone(pty, "help: every key"));
  type_and_see("e", "the prompt of a new run"); /* what is typed now is text, whatever is being decoded */
  type_and_see("q\r", "still decoding; ^C stops it");
  type("\007");
  assert_true(pty_wait_gone(pty, "decode it"));
  type_and_see("\003", "stopped: steps 0 to");
  assert_true(pty_wait_gone(pty, "decoding step"));
  type_and_see("l", "was decoded just now"); /* and on from there */
  quit_whole();
  is_whole("SELECT count(*) > 11, sum(finished_at IS NULL) FROM step JOIN run USING (run)", "1|0");
}

static void test_quits_while_decoding(void **state) {
  (void)state;
  open_decoding();
  quit_whole();
  is_whole(UNFINISHED, "1|1");
}

static void dies_whole_of(int number) {
  open_decoding();
  kill(pty->child, number);
  assert_int_equal(pty_wait_exit(pty), 128 + number);
  assert_false(pty->alternate);
  assert_true(pty->cursor);
  assert_true(pty_modes_whole(pty));
  is_whole(UNFINISHED, "1|1");
}

static void test_dies_of_term_while_decoding(void **state) {
  (void)state;
  dies_whole_of(SIGTERM);
}

static void test_dies_of_hup_while_decoding(void **state) {
  (void)state;
  dies_whole_of(SIGHUP);
}

/* A shell that ends and the terminal under it: SIGHUP comes again and again while the trace is being closed. */
static void test_dies_of_many_hups_while_decoding(void **state) {
  (void)state;
  open_decoding();
  int status = 0;
  do kill(pty->child, SIGHUP);
  while (waitpid(pty->child, &status, WNOHANG) == 0);
  pty->ended = true;
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP);
  is_whole(UNFINISHED, "1|1");
}

/* Nobody reads what it draws, so that it hangs in the middle of drawing: a signal still ends it. */
static void test_dies_of_term_at_a_terminal_that_hangs(void **state) {
  (void)state;
  open_decoding();
  int status = 0, in_pipe;
  do usleep(1000);
  while (ioctl(pty->master, FIONREAD, &in_pipe) == 0 && in_pipe < 4000);
  usleep(200000);
  kill(pty->child, SIGTERM);
  assert_int_equal(waitpid(pty->child, &status, 0), pty->child);
  pty->ended = true;
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  assert_int_equal(shell("sqlite3 '%s' 'PRAGMA journal_mode = DELETE' >/dev/null", trace), 0);
  is_whole(UNFINISHED, "1|1");
}

/* Of what cannot wait, every step that was committed is there, by way of the log beside the file. */
static void test_dies_of_kill_while_decoding(void **state) {
  (void)state;
  open_decoding();
  kill(pty->child, SIGKILL);
  assert_int_equal(pty_wait_exit(pty), 128 + SIGKILL);
  assert_int_equal(shell("sqlite3 '%s' 'PRAGMA journal_mode = DELETE' >/dev/null", trace), 0);
  is_whole(UNFINISHED, "1|1");
}

static void test_closed_while_decoding(void **state) {
  (void)state;
  open_decoding();
  pty_close(pty);
  int status;
  assert_int_equal(waitpid(pty->child, &status, 0), pty->child);
  pty->ended = true;
  is_whole(UNFINISHED, "1|1");
}

/* A question in SQL and a step at the same time: neither is held up, and both are answered. */
static void test_asks_while_decoding(void **state) {
  (void)state;
  open_decoding();
  type_and_see(";SELECT 6 * 7 AS answer\r", "row 1 of 1");
  type_and_see("\003", "stopped: steps 0 to");
  quit_whole();
  is_whole(UNFINISHED, "1|1");
}

/* ---- where nothing is decoded ----------------------------------------------------------------------------------------------------- */

static void test_no_model(void **state) {
  (void)state;
  assert_int_equal(open_slow_copy(state), 0);
  const char *const argv[] = {program, "view", trace, NULL};
  pty = pty_start(argv, 24, 80, NULL);
  see_all("step 9/");
  type_and_see("Gl", "give -m DIR");
  type_and_see("1eqqq\r", "no model at hand"); /* in one go: nobody quits */
  type_and_see("1f", "no model at hand");
  type_and_see("\r", "no model at hand");
  quit_whole();
  is_whole("SELECT count(*), count(DISTINCT run) FROM step", "11|1");
}

static void test_read_only(void **state) {
  (void)state;
  open_screen();
  type_and_see("Gl", "--read-only");
  type_and_see("1f", "--read-only");
  type("\007");
  assert_true(pty_wait_gone(pty, "under it"));
  quit_whole();
  is_whole("SELECT count(*) FROM step", "34");
}

static void test_other_model(void **state) {
  (void)state;
  char line[9000];
  snprintf(line, sizeof line, "'%s' view '%s' -m austen 2>'%s/err' </dev/null", program, trace, folder);
  assert_int_equal(shell("%s", line), 1);
  assert_int_equal(shell("grep -q 'other weights' '%s/err'", folder), 0);
  is_whole("SELECT count(*) FROM step", "34");
}

/* ---- kvstep alone ------------------------------------------------------------------------------------------------------------------ */

static void open_demo(void) {
  char temporary[512];
  snprintf(temporary, sizeof temporary, "TMPDIR=%s/tmp", folder);
  assert_int_equal(shell("mkdir -p '%s/tmp'", folder), 0);
  const char *const argv[] = {program, NULL}, *const environment[] = {temporary, NULL};
  pty = pty_start(argv, 24, 80, environment);
  assert_non_null(pty);
  see_all("step 9/");
}

static void nothing_is_left(void) { assert_int_equal(shell("test -z \"$(ls -A '%s/tmp')\"", folder), 0); }

static void test_kvstep_alone_decodes(void **state) {
  (void)state;
  open_demo();
  type_and_see("Gl", "was decoded just now");
  type_and_see("f\033[Hj\r", "the tokens of run 1 under off-by-one");
  type_and_see("e\177\177\177>\r", "run 5 begins");
  quit_whole();
  nothing_is_left();
}

static void test_kvstep_alone_dies(void **state) {
  (void)state;
  static const int numbers[] = {SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGUSR1};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (sanitized() && (numbers[i] == SIGSEGV || numbers[i] == SIGABRT)) continue; /* the sanitizer's own way */
    open_demo();
    type_and_see("Gl", "was decoded just now");
    kill(pty->child, numbers[i]);
    assert_int_equal(pty_wait_exit(pty), 128 + numbers[i]);
    assert_false(pty->alternate);
    assert_true(pty_modes_whole(pty));
    nothing_is_left();
    close_pty(NULL);
  }
}

/* ---- scripts, anything at all --------------------------------------------------------------------------------------------------- */

static void test_script(void **state) {
  (void)state;
  static const char keys[] =
      "G Right Right Space\\n:save-screen a.txt\\n:fault off-by-one\\nview-compare\\n:save-screen b.txt\\n"
      "e Backspace a > Enter\\n:decode 3\\n:save-screen c.txt\\n";
  assert_int_equal(shell("cd '%s' && printf '%s' > keys && '%s' view '%s' --keys keys && cat a.txt b.txt c.txt > first",
                         folder, keys, program, trace),
                   0);
  assert_int_equal(
      shell("cd '%s' && grep -q 'step 19/19' a.txt && grep -q 'beside  run 1' b.txt && grep -q 'run 4 off' c.txt",
            folder),
      0);
  is_whole("SELECT count(DISTINCT run) FROM step", "4");
  assert_int_equal(open_copy(state), 0);
  assert_int_equal(
      shell("cd '%s' && '%s' view '%s' --keys keys && cat a.txt b.txt c.txt | cmp - first", folder, program, trace), 0);
  assert_int_equal(shell("cd '%s' && printf ':fault nothing\\n' > keys && ! '%s' view '%s' --keys keys 2>err && "
                         "grep -q 'keys:1: there is no fault' err",
                         folder, program, trace),
                   0);
}

static void test_any_keys(void **state) {
  (void)state;
  static const char *const keys[] = {" ",    "b",    "l",    "h", "G", "g", "j", "k", "\006", "e", "f",  "\r",
                                     "\003", "\033", "\177", "a", ">", "P", "+", "r", "R",    "o", "d",  "8",
                                     "1",    "2",    "3",    "7", "p", "5", "?", "/", ";",    ":", "\t", "\014"};
  open_live(NULL);
  int count = sanitized() ? 800 : 2500;
  for (int i = 0; i < count; i++) {
    assert_true(pty_send(pty, keys[random_below((int)(sizeof keys / sizeof *keys))]));
    if (random_below(60) == 0) pty_resize(pty, 1 + random_below(60), 1 + random_below(180));
    pty_pump(pty, 0);
  }
  pty_resize(pty, 24, 80);
  type("\003\003\003\003");
  type_and_see("1:step 4\r", "step 4/");
  type("\003");
  type(
      "q"); /* not quit_whole: this model of a terminal takes "the cursor is hidden" for a part of its place, when that is restored */
  assert_int_equal(pty_wait_exit(pty), 0);
  assert_false(pty->alternate);
  assert_true(pty_modes_whole(pty));
  is_whole("SELECT count(*) >= 34 FROM step", "1");
}

int main(void) {
#define ON_COPY(name) cmocka_unit_test_setup_teardown(name, open_copy, close_pty)
#define ON_SLOW_COPY(name) cmocka_unit_test_setup_teardown(name, open_slow_copy, close_pty)
  const struct CMUnitTest tests[] = {
      ON_COPY(test_next_token),
      ON_SLOW_COPY(test_many_tokens),
      ON_COPY(test_context_end),
      ON_COPY(test_plays_on),
      ON_COPY(test_prompt),
      ON_COPY(test_prompt_escapes),
      ON_COPY(test_pasted),
      ON_COPY(test_fault),
      ON_SLOW_COPY(test_stops),
      ON_SLOW_COPY(test_quits_while_decoding),
      ON_SLOW_COPY(test_dies_of_term_while_decoding),
      ON_SLOW_COPY(test_dies_of_hup_while_decoding),
      ON_SLOW_COPY(test_dies_of_many_hups_while_decoding),
      ON_SLOW_COPY(test_dies_of_term_at_a_terminal_that_hangs),
      ON_SLOW_COPY(test_dies_of_kill_while_decoding),
      ON_SLOW_COPY(test_closed_while_decoding),
      ON_SLOW_COPY(test_asks_while_decoding),
      ON_COPY(test_no_model),
      ON_COPY(test_read_only),
      ON_COPY(test_other_model),
      ON_COPY(test_kvstep_alone_decodes),
      ON_COPY(test_kvstep_alone_dies),
      ON_COPY(test_script),
      ON_COPY(test_any_keys),
  };
  return cmocka_run_group_tests(tests, make_all, remove_folder);
}
