/* drive_keys.c: keys to actions, or into the line that is being typed; what is pasted is never keys. */
#include <stdio.h>

#include "tui/drive.h"

static void encode(unsigned c, char text[5]) {
  int n = 0;
  if (c < 0x80) {
    text[n++] = (char)c;
  } else if (c < 0x800) {
    text[n++] = (char)(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    text[n++] = (char)(0xE0 | c >> 12);
    text[n++] = (char)(0x80 | (c >> 6 & 63));
  } else {
    text[n++] = (char)(0xF0 | c >> 18);
    text[n++] = (char)(0x80 | (c >> 12 & 63));
    text[n++] = (char)(0x80 | (c >> 6 & 63));
  }
  if (c >= 0x80) text[n++] = (char)(0x80 | (c & 63));
  text[n] = '\0';
}

static bool is_printable(int key) { return key >= ' ' && key < KEYS_BASE && !(key >= 0x7F && key < 0xA0); }

/* What a key that was pasted or is a byte without a character puts into the line: a prompt has escapes for what cannot be seen. */
static void type_escaped(struct drive *d, int key) {
  bool prompt = d->state.mode == INPUT_PROMPT;
  char text[5] = "";
  if (key > KEYS_BYTE && prompt)
    snprintf(text, sizeof text, "\\x%02X", (unsigned)(key - KEYS_BYTE) & 0xFF);
  else if (key == KEYS_ENTER || key == KEYS_TAB)
    snprintf(text, sizeof text, "%s", !prompt ? " " : key == KEYS_TAB ? "\\t" : "\\n");
  else if (key == '\\' && prompt)
    snprintf(text, sizeof text, "\\\\");
  else if (is_printable(key))
    encode((unsigned)key, text);
  if (*text && state_is_typing(&d->state)) state_type(&d->state, text);
}

/* Pasted text is never keys. ^C ends a paste whose end got lost on the way. */
static void paste(struct drive *d, int key) {
  if (key == KEYS_PASTED || key == 'C' - '@') {
    d->pasting = false;
    if (!state_is_typing(&d->state))
      state_say(&d->state, false, "pasted text is not taken for keys; in a line it is typed: e : ; or / first");
  } else {
    type_escaped(d, key);
  }
}

void drive_key(struct drive *d, int key) {
  bool typing = state_is_typing(&d->state), printable = is_printable(key);
  if (d->pasting) {
    paste(d, key);
    return;
  }
  if (key == KEYS_PASTE || key == KEYS_PASTED || key >= KEYS_BYTE) {
    d->pasting = key == KEYS_PASTE;
    if (key >= KEYS_BYTE) type_escaped(d, key);
    return;
  }
  if (!typing || !printable) {
    drive_action(d, action_for_key(key));
    return;
  }
  char text[5];
  encode((unsigned)key, text);
  state_type(&d->state, text);
}
