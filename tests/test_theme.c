/* test_theme.c: the colours, checked by computing what eyes get from them: brightness, contrast, colour blindness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tui/theme.h"

/* What full protanopia, deuteranopia and tritanopia make of linear RGB: Machado, Oliveira, Fernandes, "A Physiologically-based
 * Model for Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009, severity 1.0. The first is normal sight. */
static const double sights[4][3][3] = {
    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
    {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
    {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
    {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
};

/* WCAG 2.1, "relative luminance". */
static double linear(unsigned value) {
  double part = value / 255.0;
  return part <= 0.03928 ? part / 12.92 : pow((part + 0.055) / 1.055, 2.4);
}

static double luminance(uint32_t rgb, int sight) {
  static const double weights[3] = {0.2126, 0.7152, 0.0722};
  const double parts[3] = {linear(rgb >> 16 & 255), linear(rgb >> 8 & 255), linear(rgb & 255)};
  double sum = 0;
  for (int i = 0; i < 3; i++) {
    double seen = 0;
    for (int j = 0; j < 3; j++) seen += sights[sight][i][j] * parts[j];
    sum += weights[i] * fmin(1, fmax(0, seen));
  }
  return sum;
}

/* WCAG 2.1, "contrast ratio". */
static double contrast(uint32_t a, uint32_t b) {
  double x = luminance(a, 0), y = luminance(b, 0);
  return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

static void test_rgb(void **state) {
  (void)state;
  assert_int_equal(theme_rgb(0), 0x000000);
  assert_int_equal(theme_rgb(15), 0xFFFFFF);
  assert_int_equal(theme_rgb(16), 0x000000);
  assert_int_equal(theme_rgb(21), 0x0000FF);
  assert_int_equal(theme_rgb(67), 0x5F87AF);  /* 16 + 36·1 + 6·2 + 3 */
  assert_int_equal(theme_rgb(196), 0xFF0000); /* 16 + 36·5 */
  assert_int_equal(theme_rgb(231), 0xFFFFFF);
  assert_int_equal(theme_rgb(232), 0x080808);
  assert_int_equal(theme_rgb(255), 0xEEEEEE);
  assert_int_equal(theme_rgb(-1), 0);
  assert_int_equal(theme_rgb(256), 0);
}

static void test_contrast_formula(void **state) {
  (void)state;
  assert_float_equal(contrast(0x000000, 0xFFFFFF), 21, 1e-6);
  assert_float_equal(contrast(0x777777, 0xFFFFFF), 4.48, 0.005); /* WebAIM's well-known near miss */
  for (int sight = 1; sight < 4; sight++) assert_float_equal(luminance(0x808080, sight), luminance(0x808080, 0), 1e-3);
}

/* 0.02 of relative luminance is a step that can be told apart side by side. */
static void test_ramp_rises(void **state) {
  (void)state;
  for (int sight = 0; sight < 4; sight++)
    for (int i = 1; i < RAMP_STEPS; i++) {
      double before = luminance(theme_rgb(theme_face(DEPTH_256, (enum role)(ROLE_RAMP + i - 1)).foreground), sight);
      double here = luminance(theme_rgb(theme_face(DEPTH_256, (enum role)(ROLE_RAMP + i)).foreground), sight);
      if (here - before < 0.0199) fail_msg("sight %d, step %d: %f after %f", sight, i, here, before);
    }
  for (int i = 1; i < RAMP_STEPS; i++)
    assert_true(luminance(theme_rgb(theme_face(DEPTH_16, (enum role)(ROLE_RAMP + i)).foreground), 0) >=
                luminance(theme_rgb(theme_face(DEPTH_16, (enum role)(ROLE_RAMP + i - 1)).foreground), 0));
}

/* Both colours ours: 4.5, WCAG's AA. The background the terminal's: 4 on black and on white, since 4.5 on both leaves only
 * three colours of the cube; 16 colours are what the user made them. */
static void test_contrast_of_roles(void **state) {
  (void)state;
  for (int depth = DEPTH_16; depth <= DEPTH_256; depth++)
    for (int role = 0; role < ROLE_COUNT; role++) {
      struct face look = theme_face((enum depth)depth, (enum role)role);
      assert_true(look.foreground >= -1 && look.foreground < (depth == DEPTH_16 ? 16 : 256));
      assert_true(look.background >= -1 && look.background < (depth == DEPTH_16 ? 16 : 256));
      assert_true(look.foreground >= 0 || look.background < 0); /* never the terminal's ink on our ground */
      if (look.foreground < 0) continue;
      uint32_t ink = theme_rgb(look.foreground);
      if (look.background >= 0) {
        double ratio = contrast(ink, theme_rgb(look.background));
        if (ratio < 4.5) fail_msg("depth %d, role %d: contrast %f", depth, role, ratio);
      } else if (depth == DEPTH_256) {
        double ratio = fmin(contrast(ink, 0x000000), contrast(ink, 0xFFFFFF));
        if (ratio < 4) fail_msg("role %d: contrast %f on black or white", role, ratio);
      }
    }
}

static void test_mono(void **state) {
  (void)state;
  for (int role = 0; role < ROLE_COUNT; role++) {
    struct face look = theme_face(DEPTH_MONO, (enum role)role);
    assert_int_equal(look.foreground, -1);
    assert_int_equal(look.background, -1);
  }
  assert_int_equal(theme_face(DEPTH_MONO, ROLE_TEXT).attributes, 0);
  assert_int_equal(theme_face(DEPTH_MONO, ROLE_HERE).attributes, ATTR_REVERSE);
  /* What may stand side by side differs in more than its place. */
  static const enum role pairs[][2] = {{ROLE_BAR, ROLE_NEGATIVE}, {ROLE_TITLE, ROLE_NEW},  {ROLE_NEW, ROLE_FREE},
                                       {ROLE_NEW, ROLE_TEXT},     {ROLE_TEXT, ROLE_DIM},   {ROLE_TITLE, ROLE_TEXT},
                                       {ROLE_HERE, ROLE_WRONG},   {ROLE_HERE, ROLE_TOKEN}, {ROLE_STATUS, ROLE_KEY},
                                       {ROLE_RIGHT, ROLE_WRONG},  {ROLE_FREE, ROLE_BAR},   {ROLE_MESSAGE, ROLE_ERROR},
                                       {ROLE_INPUT, ROLE_TEXT},   {ROLE_FREE, ROLE_WRONG}, {ROLE_NEW, ROLE_WRONG}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (theme_face(DEPTH_MONO, pairs[i][0]).attributes == theme_face(DEPTH_MONO, pairs[i][1]).attributes)
      fail_msg("roles %d and %d look alike without colours", (int)pairs[i][0], (int)pairs[i][1]);
  assert_int_equal(theme_face(DEPTH_MONO, ROLE_WRONG).attributes, ATTR_REVERSE | ATTR_BOLD);
  assert_int_equal(theme_face(DEPTH_MONO, ROLE_FREE).attributes, ATTR_UNDERLINE);
}

static void test_no_such_role(void **state) {
  (void)state;
  struct face text = theme_face(DEPTH_256, ROLE_TEXT);
  struct face none = theme_face(DEPTH_256, (enum role)ROLE_COUNT);
  assert_memory_equal(&text, &none, sizeof text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rgb),        cmocka_unit_test(test_contrast_formula),
      cmocka_unit_test(test_ramp_rises), cmocka_unit_test(test_contrast_of_roles),
      cmocka_unit_test(test_mono),       cmocka_unit_test(test_no_such_role),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
