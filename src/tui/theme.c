/* theme.c: how each role looks with 256, 16 and no colours.
 * Where the background is the terminal's own, the foreground is of middle brightness: it reads on black and on white alike.
 * Right and wrong are blue against white on red, not green against red, and every role that matters has a word or mark too. */
#include "tui/theme.h"

#define OWN (-1)

/* Blue to teal to green to pale yellow on black. Each is brighter than the one before, by 0.02 of relative luminance or more,
 * to normal eyes and to those without red, green or blue cones; the darkest still reads on black. */
static const short ramp_256[RAMP_STEPS] = {30, 32, 33, 36, 38, 41, 78, 83, 155, 191, 227, 229};
static const short ramp_16[RAMP_STEPS] = {8, 8, 8, 6, 6, 6, 14, 14, 14, 11, 11, 15};

static const struct face looks_256[ROLE_RAMP] = {
    [ROLE_TEXT] = {OWN, OWN, 0},
    [ROLE_DIM] = {243, OWN, 0},
    [ROLE_TITLE] = {31, OWN, ATTR_BOLD},
    [ROLE_FRAME] = {243, OWN, 0},
    [ROLE_TOKEN] = {30, OWN, 0},
    [ROLE_HERE] = {16, 220, 0},
    [ROLE_NEW] = {130, OWN, ATTR_BOLD},
    [ROLE_FREE] = {98, OWN, ATTR_UNDERLINE},
    [ROLE_RIGHT] = {31, OWN, 0},
    [ROLE_WRONG] = {231, 160, ATTR_BOLD},
    [ROLE_BAR] = {31, OWN, 0},
    [ROLE_NEGATIVE] = {130, OWN, 0},
    [ROLE_KEY] = {220, 24, ATTR_BOLD},
    [ROLE_STATUS] = {231, 24, 0},
    [ROLE_MESSAGE] = {29, OWN, 0},
    [ROLE_ERROR] = {231, 124, ATTR_BOLD},
    [ROLE_INPUT] = {OWN, OWN, ATTR_UNDERLINE},
};

/* People choose their 16 colours, so few of them are used, and none where a foreground alone must be read. */
static const struct face looks_16[ROLE_RAMP] = {
    [ROLE_TEXT] = {OWN, OWN, 0},
    [ROLE_DIM] = {OWN, OWN, 0},
    [ROLE_TITLE] = {OWN, OWN, ATTR_BOLD},
    [ROLE_FRAME] = {OWN, OWN, 0},
    [ROLE_TOKEN] = {OWN, OWN, 0},
    [ROLE_HERE] = {0, 3, 0},
    [ROLE_NEW] = {5, OWN, ATTR_BOLD},
    [ROLE_FREE] = {OWN, OWN, ATTR_UNDERLINE},
    [ROLE_RIGHT] = {OWN, OWN, 0},
    [ROLE_WRONG] = {15, 1, ATTR_BOLD},
    [ROLE_BAR] = {OWN, OWN, 0},
    [ROLE_NEGATIVE] = {5, OWN, 0},
    [ROLE_KEY] = {11, 4, ATTR_BOLD},
    [ROLE_STATUS] = {15, 4, 0},
    [ROLE_MESSAGE] = {OWN, OWN, ATTR_BOLD},
    [ROLE_ERROR] = {15, 1, ATTR_BOLD},
    [ROLE_INPUT] = {OWN, OWN, ATTR_UNDERLINE},
};

/* Roles that may stand side by side look unlike each other. */
static const unsigned attributes_mono[ROLE_RAMP] = {
    [ROLE_DIM] = ATTR_DIM,
    [ROLE_TITLE] = ATTR_BOLD,
    [ROLE_FRAME] = ATTR_DIM,
    [ROLE_HERE] = ATTR_REVERSE,
    [ROLE_NEW] = ATTR_BOLD | ATTR_UNDERLINE,
    [ROLE_FREE] = ATTR_UNDERLINE,
    [ROLE_WRONG] = ATTR_REVERSE | ATTR_BOLD,
    [ROLE_NEGATIVE] = ATTR_UNDERLINE,
    [ROLE_KEY] = ATTR_BOLD,
    [ROLE_STATUS] = ATTR_REVERSE,
    [ROLE_MESSAGE] = ATTR_BOLD,
    [ROLE_ERROR] = ATTR_REVERSE | ATTR_BOLD,
    [ROLE_INPUT] = ATTR_UNDERLINE,
};

struct face theme_face(enum depth depth, enum role role) {
  int number = (int)role;
  if (number < 0 || number >= ROLE_COUNT) number = ROLE_TEXT;
  if (number >= ROLE_RAMP) {
    int step = number - ROLE_RAMP;
    /* On black, the terminal's own background or not: on white the brightest would fade away. */
    if (depth == DEPTH_256) return (struct face){ramp_256[step], 16, 0};
    if (depth == DEPTH_16) return (struct face){ramp_16[step], 0, 0};
    return (struct face){OWN, OWN, 0};
  }
  if (depth == DEPTH_256) return looks_256[number];
  if (depth == DEPTH_16) return looks_16[number];
  return (struct face){OWN, OWN, attributes_mono[number]};
}

uint32_t theme_rgb(int color) {
  /* xterm's own first sixteen; terminals let people change them. */
  static const uint32_t first[16] = {0x000000, 0xCD0000, 0x00CD00, 0xCDCD00, 0x0000EE, 0xCD00CD, 0x00CDCD, 0xE5E5E5,
                                     0x7F7F7F, 0xFF0000, 0x00FF00, 0xFFFF00, 0x5C5CFF, 0xFF00FF, 0x00FFFF, 0xFFFFFF};
  static const uint8_t levels[6] = {0, 95, 135, 175, 215, 255};
  if (color < 0 || color > 255) return 0;
  if (color < 16) return first[color];
  if (color >= 232) return (uint32_t)(8 + 10 * (color - 232)) * 0x010101u;
  int place = color - 16;
  return (uint32_t)levels[place / 36] << 16 | (uint32_t)levels[place / 6 % 6] << 8 | levels[place % 6];
}
