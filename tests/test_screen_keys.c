/* test_screen_keys.c: any keys and sizes at a terminal: no crash, no leak, no broken screen. KVSTEP_KEYS says how many. */
#include "at_terminal.h"
#include "tests/support/random.h"

/* Whether the terminal shows what a screen does that was only just opened at the same place, in each of its cells. */
static bool is_whole(struct pty *p, const void *nothing) {
  (void)nothing;
  char line[512], path[512];
  snprintf(path, sizeof path, "%s/whole.txt", folder);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  bool same = true;
  for (int row = 0; row < p->rows && fgets(line, sizeof line, file); row++) {
    char shown[8192];
    snprintf(shown, sizeof shown, "%s", pty_row(p, row));
    line[strcspn(line, "\n")] = '\0';
    size_t end = strlen(shown);
    while (end > 0 && shown[end - 1] == ' ') shown[--end] = '\0';
    same = same && strcmp(line, shown) == 0;
  }
  fclose(file);
  return same;
}

static void make_whole(void) {
  int code = shell(
      "printf ':run 1\\n:4.0.0\\n1\\n:save-screen %s/whole.txt\\n' > '%s/keys' && '%s' view '%s' --keys '%s/keys'",
      folder, folder, program, trace, folder);
  assert_int_equal(code, 0);
}

static void test_random_keys(void **state) {
  (void)state;
  static const char *const keys[] = {" ",        ".",        "b",
                                     ",",        "\033[C",   "\033[D",
                                     "\033[A",   "\033[B",   "\033[H",
                                     "\033[F",   "\033[5~",  "\033[6~",
                                     "\033OP",   "\033",     "\t",
                                     "\033[Z",   "\r",       "\177",
                                     "h",        "j",        "k",
                                     "l",        "g",        "G",
                                     "n",        "N",        "d",
                                     "r",        "R",        "P",
                                     "+",        "-",        "[",
                                     "]",        "{",        "}",
                                     "/",        ":",        "?",
                                     "1",        "2",        "3",
                                     "4",        "5",        "6",
                                     "7",        "\007",     "\003",
                                     "\014",     "\303\251", "\344\270\255",
                                     "\033[99~", "\377",     "e\314\201",
                                     "8",        "9",        "o",
                                     "s",        "w",        "p",
                                     ";",        "0"};
  make_whole();
  open_screen();
  random_state = 20240607;
  const char *named = getenv("KVSTEP_KEYS");
  int count = named && atoi(named) > 0 ? atoi(named) : sanitized() ? 2000 : 5000;
  for (int i = 0; i < count; i++) {
    assert_true(pty_send(pty, keys[random_below((int)(sizeof keys / sizeof *keys))]));
    if (random_below(40) == 0) pty_resize(pty, 1 + random_below(60), 1 + random_below(180));
    pty_pump(pty, 0);
  }
  pty_resize(pty, 24, 80);
  type("\007\007\0071:run 1\r:4.0.0\r");
  assert_true(pty_wait(pty, "step 4/"));
  type("\003");
  assert_true(pty_wait_for(pty, is_whole, NULL));
  quit_whole();
}

int main(void) {
#define SCREEN_TEST(name) cmocka_unit_test_teardown(name, close_pty)
  const struct CMUnitTest tests[] = {
      SCREEN_TEST(test_random_keys),
  };
  return cmocka_run_group_tests(tests, setup, remove_folder);
}
