/* action.c: the table of actions, and the names of keys. */
#include "tui/action.h"

#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

static const struct action_row rows[ACTION_COUNT] = {
#define ACTION_ROW(id, name, keys, group, help) [ACTION_##id] = {name, keys, group, help},
    ACTIONS(ACTION_ROW)
#undef ACTION_ROW
};

const struct action_row *action_row(enum action action) { return &rows[action]; }

enum action action_named(const char *name) {
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++)
    if (strcmp(rows[a].name, name) == 0) return (enum action)a;
  return ACTION_NONE;
}

static const struct {
  const char *name;
  int key;
} named_keys[] = {
    {"Space", ' '},
    {"Tab", KEYS_TAB},
    {"Enter", KEYS_ENTER},
    {"Escape", KEYS_ESCAPE},
    {"Backspace", KEYS_BACKSPACE},
    {"Left", KEYS_LEFT},
    {"Right", KEYS_RIGHT},
    {"Up", KEYS_UP},
    {"Down", KEYS_DOWN},
    {"Home", KEYS_HOME},
    {"End", KEYS_END},
    {"PageUp", KEYS_PAGE_UP},
    {"PageDown", KEYS_PAGE_DOWN},
    {"S-Tab", KEYS_SHIFT_TAB},
    {"Delete", KEYS_DELETE},
    {"F1", KEYS_F1},
};
#define NAMED_KEYS (sizeof named_keys / sizeof *named_keys)

int action_key(const char *name) {
  for (size_t i = 0; i < NAMED_KEYS; i++)
    if (strcmp(named_keys[i].name, name) == 0) return named_keys[i].key;
  size_t length = strlen(name);
  if (length == 3 && name[0] == 'C' && name[1] == '-' && name[2] >= 'a' && name[2] <= 'z') return name[2] - 'a' + 1;
  if (length == 0) return 0;
  kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)name, length);
  return unit.kind == KVS_UTF8_CHARACTER && unit.length == length ? (int)unit.code : 0;
}

/* A code point as UTF-8; it came from one. */
static void encode(int code, char *text) {
  unsigned c = (unsigned)code;
  if (c < 0x80)
    snprintf(text, 5, "%c", (char)c);
  else if (c < 0x800)
    snprintf(text, 5, "%c%c", (char)(0xC0 | c >> 6), (char)(0x80 | (c & 63)));
  else if (c < 0x10000)
    snprintf(text, 5, "%c%c%c", (char)(0xE0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)));
  else
    snprintf(text, 5, "%c%c%c%c", (char)(0xF0 | c >> 18), (char)(0x80 | (c >> 12 & 63)), (char)(0x80 | (c >> 6 & 63)),
             (char)(0x80 | (c & 63)));
}

void action_key_name(int key, char *name) {
  for (size_t i = 0; i < NAMED_KEYS; i++)
    if (named_keys[i].key == key) {
      snprintf(name, 16, "%s", named_keys[i].name);
      return;
    }
  if (key > 0 && key < 27)
    snprintf(name, 16, "C-%c", 'a' + key - 1);
  else if (key > 0 && key < KEYS_BASE)
    encode(key, name);
  else
    snprintf(name, 16, "?");
}

enum action action_for_key(int key) {
  for (int a = ACTION_NONE + 1; a < ACTION_COUNT; a++) {
    char keys[64], *rest = keys;
    snprintf(keys, sizeof keys, "%s", rows[a].keys);
    for (char *name; (name = strsep(&rest, " "));)
      if (*name && action_key(name) == key) return (enum action)a;
  }
  return ACTION_NONE;
}
