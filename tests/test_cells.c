/* test_cells.c: the grid against pictures drawn by hand: widths, clipping, halves, bars, graphs, lines, text and SVG. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "text/utf8.h"
#include "tests/support/random.h"
#include "tui/cells.h"

static struct cells grid;

static void start(int rows, int columns, bool ascii) {
  grid.ascii = ascii;
  assert_true(cells_resize(&grid, rows, columns));
}

/* A row as it stands: `|` at each end is the picture's, not the grid's. */
static void expect(int row, const char *picture) {
  char text[4096] = "|";
  for (int column = 0; column < grid.columns; column++) strcat(text, cells_at(&grid, row, column)->text);
  strcat(text, "|");
  assert_string_equal(text, picture);
}

static int put(int column, const char *text) {
  return cells_put(&grid, cells_area(&grid), 0, column, -1, ROLE_TEXT, text);
}

/* What has to hold of every grid, whatever was drawn. */
static void check_whole(void) {
  for (int row = 0; row < grid.rows; row++)
    for (int column = 0; column < grid.columns; column++) {
      const struct cell *cell = cells_at(&grid, row, column), *next = cells_at(&grid, row, column + 1);
      const char *end = memchr(cell->text, '\0', sizeof cell->text);
      assert_non_null(end);
      assert_true(cell->width <= 2);
      assert_true((cell->width == 0) == (cell->text[0] == '\0'));
      if (cell->width == 2) assert_true(next && next->width == 0);
      if (cell->width == 0) assert_true(column > 0 && cells_at(&grid, row, column - 1)->width == 2);
      for (const char *c = cell->text; *c;) {
        kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)c, (size_t)(end - c));
        assert_int_equal(unit.kind, KVS_UTF8_CHARACTER);
        assert_true(unit.code >= 0x20 && (unit.code < 0x7F || unit.code >= 0xA0));
        if (grid.ascii) assert_true(unit.code < 0x80);
        c += unit.length;
      }
    }
}

static void test_clipping(void **state) {
  (void)state;
  start(3, 8, false);
  assert_int_equal(put(6, "abcd"), 2);
  expect(0, "|      ab|");
  assert_int_equal(put(-2, "12345"), 5);
  expect(0, "|345   ab|");
  assert_int_equal(put(8, "x"), 0);
  assert_int_equal(put(-9, "x"), 1);
  struct area area = {1, 2, 1, 4};
  assert_int_equal(cells_put(&grid, area, 0, 0, -1, ROLE_TEXT, "abcdef"), 4);
  expect(1, "|  abcd  |");
  assert_int_equal(cells_put(&grid, area, 0, 1, 2, ROLE_TEXT, "XYZ"), 2);
  expect(1, "|  aXYd  |");
  cells_put(&grid, area, 1, 0, -1, ROLE_TEXT, "below");
  cells_put(&grid, area, -1, 0, -1, ROLE_TEXT, "above");
  expect(0, "|345   ab|");
  expect(2, "|        |");
  cells_put(&grid, area, 0, -1, -1, ROLE_TEXT, "<q");
  expect(1, "|  qXYd  |");
  assert_int_equal(cells_putf(&grid, area, 0, 0, -1, ROLE_TEXT, "t=%d", 5), 3);
  expect(1, "|  t=5d  |");
  assert_null(cells_at(&grid, 3, 0));
  assert_null(cells_at(&grid, 0, -1));
}

static void test_kinds_of_characters(void **state) {
  (void)state;
  start(1, 10, false);
  assert_int_equal(put(0, "a\xE6\xBC\xA2z"), 4); /* 漢 */
  expect(0, "|a漢z      |");
  assert_int_equal(cells_at(&grid, 0, 1)->width, 2);
  assert_int_equal(cells_at(&grid, 0, 2)->width, 0);
  start(1, 4, false);
  assert_int_equal(put(0, "e\xCC\x81x"), 2); /* e and U+0301 */
  assert_string_equal(cells_at(&grid, 0, 0)->text, "e\xCC\x81");
  assert_string_equal(cells_at(&grid, 0, 1)->text, "x");
  start(1, 4, false);
  put(0, "\xD7\xA9\xD7\x9C"); /* Hebrew: first letter in the first cell */
  assert_string_equal(cells_at(&grid, 0, 0)->text, "\xD7\xA9");
  assert_string_equal(cells_at(&grid, 0, 1)->text, "\xD7\x9C");
  start(1, 6, false);
  assert_int_equal(put(0, "👩\xE2\x80\x8D💻"), 4); /* with a joiner between */
  expect(0, "|👩💻  |");
  start(1, 4, false);
  assert_int_equal(put(0, "\xCC\x81"), 1); /* a mark alone */
  expect(0, "|◌\xCC\x81   |");
  start(1, 8, false);
  assert_int_equal(put(0, "\t\x1B[\x7F\xC2\x9B\xE2\x80\xAE"), 6); /* controls, C1, right-to-left override */
  expect(0, "|??[???  |");
  start(1, 8, false);
  assert_int_equal(put(0, "a\xFF\xC3.\xE6\xBC"), 5); /* broken, cut by a dot, cut by the end */
  expect(0, "|a??.?   |");
}

static void test_many_marks(void **state) {
  (void)state;
  char text[200] = "a";
  for (int i = 0; i < 90; i++) strcat(text, "\xCC\x81");
  start(1, 3, false);
  assert_int_equal(put(0, text), 1);
  assert_int_equal(strlen(cells_at(&grid, 0, 0)->text), 19); /* 1 + 9 · 2 */
  expect(0, "|a\xCC\x81\xCC\x81\xCC\x81\xCC\x81\xCC\x81\xCC\x81\xCC\x81\xCC\x81\xCC\x81  |");
  check_whole();
}

static void test_halves(void **state) {
  (void)state;
  start(1, 6, false);
  put(0, "漢字漢");
  put(1, "x"); /* the right half of the first */
  expect(0, "| x字漢|");
  put(2, "y"); /* the left half of the second */
  expect(0, "| xy 漢|");
  put(3, "語"); /* over a blank and a left half */
  expect(0, "| xy語 |");
  check_whole();
  start(1, 5, false);
  put(0, ".....");
  assert_int_equal(put(4, "漢"), 1);
  expect(0, "|.... |");
  put(-1, "漢a");
  expect(0, "| a.. |");
  check_whole();
}

static void test_fields(void **state) {
  (void)state;
  start(1, 10, false);
  struct area all = cells_area(&grid);
  put(0, "..........");
  assert_int_equal(cells_put_field(&grid, all, 0, 1, 6, ROLE_TEXT, "ab"), 6);
  expect(0, "|.ab    ...|");
  cells_put_field(&grid, all, 0, 1, 6, ROLE_TEXT, "abcdef");
  expect(0, "|.abcdef...|");
  cells_put_field(&grid, all, 0, 1, 6, ROLE_TEXT, "abcdefg");
  expect(0, "|.abcde…...|");
  cells_put_field(&grid, all, 0, 1, 6, ROLE_TEXT, "abcd漢字");
  expect(0, "|.abcd …...|");
  cells_put_field(&grid, all, 0, 1, 1, ROLE_TEXT, "ab");
  expect(0, "|.…bcd …...|");
  assert_int_equal(cells_put_field(&grid, all, 0, 1, 0, ROLE_TEXT, "ab"), 0);
  assert_int_equal(cells_put_right(&grid, all, 0, 10, 4, ROLE_TEXT, "42"), 2);
  expect(0, "|.…bcd ….42|");
  assert_int_equal(cells_put_right(&grid, all, 0, 10, 4, ROLE_TEXT, "12345"), 4);
  expect(0, "|.…bcd 1234|");
  assert_int_equal(text_columns("a漢e\xCC\x81"), 4);
  assert_int_equal(text_line("", 5), 0);
  assert_int_equal(text_line("ab cd", 5), 5);
  assert_int_equal(text_line("ab cd", 4), 2);
  assert_int_equal(text_line("ab cd ef", 5), 5); /* the blank itself needs no room */
  assert_int_equal(text_line("abcdef", 4), 4);
  assert_int_equal(text_line("漢漢漢", 5), 6);
  assert_int_equal(text_line("漢漢", 1), 3); /* never nothing */
  assert_int_equal(text_line("ae\xCC\x81x", 2), 4);
}

static void test_bars(void **state) {
  (void)state;
  static const struct {
    double fraction;
    const char *drawn, *ascii;
  } cases[] = {
      {0, "|....|", "|....|"},   {1.0 / 32, "|▏...|", "|....|"},  {1.0 / 8, "|▌...|", "|#...|"},
      {0.5, "|██..|", "|##..|"}, {31.0 / 32, "|███▉|", "|####|"}, {1, "|████|", "|####|"},
      {7, "|████|", "|####|"},   {INFINITY, "|████|", "|####|"},  {-1, "|....|", "|....|"},
      {NAN, "|....|", "|....|"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int ascii = 0; ascii < 2; ascii++) {
      start(1, 4, ascii);
      put(0, "....");
      cells_bar(&grid, cells_area(&grid), 0, 0, 4, ROLE_BAR, cases[i].fraction);
      expect(0, ascii ? cases[i].ascii : cases[i].drawn);
    }
}

static void test_graphs(void **state) {
  (void)state;
  const float values[] = {0, 1, -2, 3.5f, 7, 99, NAN};
  start(1, 8, false);
  cells_graph(&grid, cells_area(&grid), 0, 0, 8, ROLE_BAR, values, 7, 7);
  expect(0, "|▁▂▃▅██? |"); /* 3.5 lies between ▄ and ▅ */
  assert_int_equal(cells_at(&grid, 0, 1)->role, ROLE_BAR);
  assert_int_equal(cells_at(&grid, 0, 2)->role, ROLE_NEGATIVE);
  start(1, 8, true);
  cells_graph(&grid, cells_area(&grid), 0, 0, 8, ROLE_BAR, values, 7, 9);
  expect(0, "|012479? |");
  start(1, 8, false);
  const float grouped[] = {1, -7, 0, 2, 0, 0};
  cells_graph(&grid, cells_area(&grid), 0, 0, 3, ROLE_BAR, grouped, 6, 7);
  expect(0, "|█▃▁     |");
  assert_int_equal(cells_at(&grid, 0, 0)->role, ROLE_NEGATIVE);
  cells_graph(&grid, cells_area(&grid), 0, 0, 3, ROLE_BAR, NULL, 0, 7);
  expect(0, "|█▃▁     |");
}

static void test_heat(void **state) {
  (void)state;
  const double fractions[] = {0, 0.25, 0.5, 0.75, 1, NAN, 9, -9};
  for (int ascii = 0; ascii < 2; ascii++) {
    start(1, 8, ascii);
    for (int i = 0; i < 8; i++) cells_heat(&grid, cells_area(&grid), 0, i, 1, fractions[i]);
    expect(0, ascii ? "| .+#@?@ |" : "| ░▒▓█?█ |");
    assert_int_equal(cells_at(&grid, 0, 0)->role, ROLE_RAMP);
    assert_int_equal(cells_at(&grid, 0, 4)->role, ROLE_RAMP + RAMP_STEPS - 1);
    assert_int_equal(cells_at(&grid, 0, 5)->role, ROLE_WRONG);
  }
}

static void test_lines(void **state) {
  (void)state;
  for (int ascii = 0; ascii < 2; ascii++) {
    start(5, 9, ascii);
    struct area all = cells_area(&grid);
    cells_rule(&grid, all, 0, NULL);
    cells_rule(&grid, all, 4, NULL);
    cells_divider(&grid, all, 4);
    cells_rule(&grid, area_columns(all, 5, 4), 2, NULL);
    expect(0, ascii ? "|----+----|" : "|────┬────|");
    expect(1, ascii ? "|    |    |" : "|    │    |");
    expect(2, ascii ? "|    +----|" : "|    ├────|");
    expect(4, ascii ? "|----+----|" : "|────┴────|");
    cells_rule(&grid, area_columns(all, 0, 4), 3, NULL);
    expect(3, ascii ? "|----+    |" : "|────┤    |");
    cells_rule(&grid, all, 2, NULL);
    expect(2, ascii ? "|----+----|" : "|────┼────|");
    cells_rule(&grid, all, 0, "ab");
    expect(0, ascii ? "|- ab ----|" : "|─ ab ────|");
  }
}

static void test_divider_between_rules(void **state) {
  (void)state;
  start(4, 5, false);
  struct area all = cells_area(&grid);
  cells_rule(&grid, all, 0, NULL);
  cells_rule(&grid, all, 3, NULL);
  cells_divider(&grid, area_rows(all, 1, 2), 2);
  expect(0, "|──┬──|");
  expect(1, "|  │  |");
  expect(3, "|──┴──|");
}

static void test_areas(void **state) {
  (void)state;
  struct area area = {2, 3, 10, 20}, part = area_rows(area, 4, 100);
  assert_true(part.row == 6 && part.rows == 6 && part.column == 3 && part.columns == 20);
  part = area_rows(area, -2, 5);
  assert_true(part.row == 2 && part.rows == 3);
  part = area_columns(area, 25, 5);
  assert_true(part.columns == 0);
  part = area_columns(area, 5, -1);
  assert_true(part.column == 8 && part.columns == 0);
}

static void test_marks_and_roles(void **state) {
  (void)state;
  start(1, 4, false);
  put(0, "abcd");
  cells_mark(&grid, cells_area(&grid), 0, 1, 2, ATTR_BOLD);
  cells_mark(&grid, cells_area(&grid), 0, 2, -1, ATTR_REVERSE);
  cells_recolor(&grid, cells_area(&grid), 0, 3, 9, ROLE_HERE);
  assert_int_equal(cells_at(&grid, 0, 0)->attributes, 0);
  assert_int_equal(cells_at(&grid, 0, 2)->attributes, ATTR_BOLD | ATTR_REVERSE);
  assert_int_equal(cells_at(&grid, 0, 2)->role, ROLE_TEXT);
  assert_int_equal(cells_at(&grid, 0, 3)->role, ROLE_HERE);
  expect(0, "|abcd|");
}

static void test_ascii(void **state) {
  (void)state;
  start(1, 40, true);
  put(0, "␠▸←→↑↓·×√Σ…−▁▂▃▄▅▆▇█▌▏│─┬┼└░▒▓≠!");
  expect(0, "|_><>^v.xvS.-.:-=+*%## |-+++.:#/!        |");
  start(1, 8, true);
  assert_int_equal(put(0, "é漢e\xCC\x81"), 4); /* as many columns as it would take */
  expect(0, "|???e    |");
}

/* The C library knows widths too, in a UTF-8 locale; letters, CJK and pictures must come out the same. */
static void test_against_wcwidth(void **state) {
  (void)state;
  if (!setlocale(LC_CTYPE, "C.UTF-8")) skip();
  static const uint32_t ranges[][2] = {{0x20, 0x7E},     {0xA1, 0xAC},       {0xAE, 0x2FF},     {0x370, 0x482},
                                       {0x300, 0x36F},   {0x5D0, 0x5EA},     {0x621, 0x64A},    {0x2190, 0x21FF},
                                       {0x2500, 0x259F}, {0x3041, 0x3096},   {0x4E00, 0x9FFF},  {0xAC00, 0xD7A3},
                                       {0xFF01, 0xFF60}, {0x1F600, 0x1F64F}, {0x20000, 0x2A6D6}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
    for (uint32_t code = ranges[i][0]; code <= ranges[i][1]; code++) {
      char text[16] = "x"; /* something for a mark to stand on */
      mbstate_t shift = {0};
      int theirs = wcwidth((wchar_t)code);
      if (theirs < 0) continue; /* not assigned in the library's Unicode */
      size_t length = wcrtomb(text + 1, (wchar_t)code, &shift);
      assert_true(length <= 4);
      text[1 + length] = '\0';
      if (text_columns(text) - 1 != theirs) fail_msg("U+%04X: %d, not %d", code, text_columns(text) - 1, theirs);
    }
  setlocale(LC_CTYPE, "C");
}

/* Bytes that are often pieces of real characters. */
static void random_text(char *text) {
  static const char *const pieces[] = {"漢",       "\xCC\x81", "👩", "\xE2\x80\x8D", "a", "\xF0\x9F",
                                       "\xC2\x9B", "█",        "ש", "\xFF"};
  *text = '\0';
  for (int n = random_below(12); n > 0; n--) {
    char byte[2] = {(char)(1 + random_below(255)), '\0'};
    strcat(text, random_below(2) ? pieces[random_below(10)] : byte);
  }
}

static void fuzz(bool ascii, int rounds) {
  char text[64];
  for (int i = 0; i < rounds; i++) {
    if (i % 500 == 0) {
      check_whole();
      start(random_below(9), random_below(30), ascii);
    }
    struct area area = {random_below(14) - 4, random_below(40) - 10, random_below(14) - 2, random_below(40) - 4};
    int row = random_below(20) - 6, column = random_below(60) - 20, width = random_below(30) - 2;
    enum role role = (enum role)random_below(ROLE_COUNT);
    const float values[3] = {-1, 2, NAN};
    double fraction = (random_below(300) - 100) / 100.0;
    random_text(text);
    switch (random_below(10)) {
    case 0:
      cells_put_right(&grid, area, row, column, width, role, text);
      break;
    case 1:
      cells_put_field(&grid, area, row, column, width, role, text);
      break;
    case 2:
      cells_bar(&grid, area, row, column, width, role, fraction);
      break;
    case 3:
      cells_graph(&grid, area, row, column, width, role, values, random_below(4), fraction);
      break;
    case 4:
      cells_heat(&grid, area, row, column, width, fraction);
      break;
    case 5:
      cells_rule(&grid, area, row, random_below(2) ? text : NULL);
      break;
    case 6:
      cells_divider(&grid, area, column);
      break;
    case 7:
      cells_mark(&grid, area, row, column, width, ATTR_BOLD);
      break;
    default:
      cells_put(&grid, area, row, column, width, role, text);
    }
    cells_put(&grid, area, row, column, -1, role, text);
  }
  check_whole();
}

static void test_fuzz(void **state) {
  (void)state;
  fuzz(false, 50000);
  fuzz(true, 50000);
  start(4, 4, false);
  const int extremes[] = {-2147483647 - 1, -1, 0, 2147483647};
  for (int i = 0; i < 64; i++) {
    int row = extremes[i % 4], column = extremes[i / 4 % 4], width = extremes[i / 16];
    cells_put(&grid, cells_area(&grid), row, column, width, ROLE_TEXT, "漢x");
    cells_put_right(&grid, cells_area(&grid), row, column, width, ROLE_TEXT, "漢x");
    cells_put_field(&grid, cells_area(&grid), row, column, width, ROLE_TEXT, "漢x");
    cells_mark(&grid, cells_area(&grid), row, column, width, ATTR_BOLD);
    area_rows(cells_area(&grid), row, width);
  }
  check_whole();
  assert_false(cells_resize(&grid, 2000000, 2000000));
  assert_int_equal(grid.rows, 0);
  assert_true(cells_resize(&grid, 0, 5));
  assert_int_equal(put(0, "x"), 0);
}

static bool write_svg(const struct cells *cells, FILE *file) { return cells_write_svg(cells, DEPTH_256, file); }

static char *written(bool (*write)(const struct cells *, FILE *)) {
  char *text = NULL;
  size_t size;
  FILE *file = open_memstream(&text, &size);
  assert_true(write(&grid, file));
  fclose(file);
  return text;
}

static void test_text(void **state) {
  (void)state;
  start(3, 8, false);
  put(0, " a漢 b");
  cells_put(&grid, cells_area(&grid), 2, 7, -1, ROLE_TEXT, "z");
  char *text = written(cells_write_text);
  assert_string_equal(text, " a漢 b\n\n       z\n");
  free(text);
  FILE *full = fopen("/dev/full", "w");
  if (!full) return;
  assert_false(cells_write_text(&grid, full));
  assert_int_not_equal(errno, 0);
  fclose(full);
}

/* Tags closed in order, attributes quoted, no bare < & or control: enough of XML for what the writer can say. */
static void check_xml(const char *text) {
  char open[8][16];
  int depth = 0;
  for (const char *c = text; *c;) {
    assert_true((unsigned char)*c >= 0x20 || *c == '\n');
    if (*c == '&')
      assert_true(!strncmp(c, "&lt;", 4) || !strncmp(c, "&gt;", 4) || !strncmp(c, "&amp;", 5) ||
                  !strncmp(c, "&quot;", 6));
    if (*c++ != '<') continue;
    const char *end = strchr(c, '>');
    assert_non_null(end);
    assert_null(memchr(c, '<', (size_t)(end - c)));
    size_t name = strcspn(c + (*c == '/'), " />");
    int quotes = 0;
    for (const char *q = c; q < end; q++) quotes += *q == '"';
    assert_int_equal(quotes % 2, 0);
    if (*c == '/') {
      assert_true(depth > 0 && strlen(open[depth - 1]) == name && !strncmp(open[depth - 1], c + 1, name));
      depth--;
    } else if (end[-1] != '/') {
      assert_true(depth < 8 && name < 16);
      memcpy(open[depth], c, name);
      open[depth++][name] = '\0';
    }
    c = end + 1;
  }
  assert_int_equal(depth, 0);
}

static void test_svg(void **state) {
  (void)state;
  start(4, 20, false);
  put(0, "<b>&\"quoted\"'");
  cells_put(&grid, cells_area(&grid), 1, 0, -1, ROLE_WRONG, "t = 6 漢");
  cells_put(&grid, cells_area(&grid), 2, 0, -1, ROLE_FREE, "free");
  cells_mark(&grid, cells_area(&grid), 2, 0, 4, ATTR_REVERSE);
  char *svg = written(write_svg);
  check_xml(svg);
  assert_non_null(strstr(svg, ">&lt;b&gt;&amp;&quot;quoted&quot;'"));
  assert_non_null(strstr(svg, ">t = 6 </text>"));
  assert_non_null(strstr(svg, ">漢</text>"));
  assert_non_null(strstr(svg, "fill=\"#d70000\"/>")); /* colour 160 behind what is wrong */
  assert_non_null(strstr(svg, "text-decoration=\"underline\">free"));
  free(svg);
}

static int end_all(void **state) {
  (void)state;
  cells_free(&grid);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_clipping),   cmocka_unit_test(test_kinds_of_characters),
      cmocka_unit_test(test_many_marks), cmocka_unit_test(test_halves),
      cmocka_unit_test(test_fields),     cmocka_unit_test(test_bars),
      cmocka_unit_test(test_graphs),     cmocka_unit_test(test_heat),
      cmocka_unit_test(test_lines),      cmocka_unit_test(test_divider_between_rules),
      cmocka_unit_test(test_areas),      cmocka_unit_test(test_marks_and_roles),
      cmocka_unit_test(test_ascii),      cmocka_unit_test(test_against_wcwidth),
      cmocka_unit_test(test_fuzz),       cmocka_unit_test(test_text),
      cmocka_unit_test(test_svg),
  };
  return cmocka_run_group_tests(tests, NULL, end_all);
}
