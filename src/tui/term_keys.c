/* term_keys.c: what comes from the terminal: keys, characters, pastes, and between them what signals have told. */
#define NCURSES_WIDECHAR 1
#include "tui/term_parts.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "text/utf8.h"
#include "tui/action.h"
#include "tui/term.h"
#include "tui/term_signals.h"

static int watched_descriptor; /* another one that wakes; 0: none */

void term_watch(int descriptor) { watched_descriptor = descriptor; }

/* Beyond ncurses' own keys. */
enum { KEY_PASTE = KEY_MAX + 1, KEY_PASTED };

/* Terminals differ in what these keys send, and many a TERM does not tell the truth. */
void term_define_keys(void) {
  static const struct {
    const char *sequence;
    int key;
  } keys[] = {
      {"\033[A", KEY_UP},        {"\033OA", KEY_UP},    {"\033[B", KEY_DOWN},   {"\033OB", KEY_DOWN},
      {"\033[C", KEY_RIGHT},     {"\033OC", KEY_RIGHT}, {"\033[D", KEY_LEFT},   {"\033OD", KEY_LEFT},
      {"\033[H", KEY_HOME},      {"\033OH", KEY_HOME},  {"\033[1~", KEY_HOME},  {"\033[7~", KEY_HOME},
      {"\033[F", KEY_END},       {"\033OF", KEY_END},   {"\033[4~", KEY_END},   {"\033[8~", KEY_END},
      {"\033[5~", KEY_PPAGE},    {"\033[Z", KEY_BTAB},  {"\033[11~", KEY_F(1)}, {"\033OP", KEY_F(1)},
      {"\033[6~", KEY_NPAGE},    {"\033[3~", KEY_DC},   {"\033[[A", KEY_F(1)},  {"\033[200~", KEY_PASTE},
      {"\033[201~", KEY_PASTED},
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) define_key(keys[i].sequence, keys[i].key);
}

static int translated(int key) {
  static const struct {
    int from, to;
  } keys[] = {{KEY_LEFT, KEYS_LEFT},       {KEY_RIGHT, KEYS_RIGHT},        {KEY_UP, KEYS_UP},
              {KEY_DOWN, KEYS_DOWN},       {KEY_HOME, KEYS_HOME},          {KEY_FIND, KEYS_HOME},
              {KEY_END, KEYS_END},         {KEY_SELECT, KEYS_END},         {KEY_PPAGE, KEYS_PAGE_UP},
              {KEY_NPAGE, KEYS_PAGE_DOWN}, {KEY_BTAB, KEYS_SHIFT_TAB},     {KEY_DC, KEYS_DELETE},
              {KEY_F(1), KEYS_F1},         {KEY_ENTER, KEYS_ENTER},        {KEY_RESIZE, KEYS_RESIZE},
              {KEY_PASTE, KEYS_PASTE},     {KEY_PASTED, KEYS_PASTED},      {'\n', KEYS_ENTER},
              {'\b', KEYS_BACKSPACE},      {KEY_BACKSPACE, KEYS_BACKSPACE}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (keys[i].from == key) return keys[i].to;
  return key > 255 ? TERM_NOTHING : key;
}

/* The rest of a control sequence that is no key of ours: it is no typing. */
static int swallow_sequence(void) {
  for (int c = getch(); c != ERR && c < 256; c = getch())
    if (c >= 0x40 && c <= 0x7E) break;
  return TERM_NOTHING;
}

/* After an ESC that belongs to no key we know. */
static int after_escape(void) {
  int next = getch();
  if (next != '[' && next != 'O') {
    if (next != ERR) ungetch(next);
    return KEYS_ESCAPE;
  }
  return swallow_sequence();
}

/* The character that begins with this byte. What is no UTF-8 comes byte by byte. */
static int character(int first) {
  unsigned char bytes[4] = {(unsigned char)first};
  size_t length = 1;
  for (; length <= 4; length++) {
    kvs_utf8_unit unit = kvs_utf8_next(bytes, length);
    if (unit.kind == KVS_UTF8_CHARACTER) return (int)unit.code;
    if (unit.kind == KVS_UTF8_BROKEN || length == 4) break;
    int next = getch();
    if (next == ERR) break;
    if (next < 0x80 || next > 0xBF) {
      ungetch(next);
      break;
    }
    bytes[length] = (unsigned char)next;
  }
  for (size_t i = length > 4 ? 4 : length; i > 1; i--) ungetch(bytes[i - 1]);
  return KEYS_BYTE + first;
}

/* A key that is there already. *any: something was read, whether or not it was a key. */
static int ready_key(bool *any) {
  int key = getch();
  *any = key != ERR;
  if (key == ERR) return TERM_NOTHING;
  if (key == KEYS_ESCAPE) return after_escape();
  if (key == KEY_MOUSE) return swallow_sequence(); /* only the beginning of a click's report has been read */
  if (key >= 0x80 && key <= 0xFF) return character(key);
  return translated(key);
}

/* What signals have told since the last time. Of many resizes only the last counts. */
static int told(void) {
  unsigned news = signals_news();
  if (news & NEWS_ENDING) return TERM_ENDING;
  if (news & NEWS_SUSPEND) return TERM_SUSPEND;
  if (news & NEWS_BACK) reset_prog_mode(), term_bracket_pastes(true); /* the shell had the terminal meanwhile */
  if (news & (NEWS_RESIZE | NEWS_BACK)) {
    term_take_size();
    return KEYS_RESIZE;
  }
  return news & NEWS_INTERRUPT ? 'C' - '@' : TERM_NOTHING;
}

/* Whether the terminal is gone, when it says that there is something and then there is nothing. */
static bool gone(short revents) {
  int waiting = 0;
  if (revents & (POLLHUP | POLLERR | POLLNVAL)) return true;
  return (revents & POLLIN) && (ioctl(STDIN_FILENO, FIONREAD, &waiting) != 0 || waiting == 0);
}

static void empty(int descriptor) {
  char bytes[256];
  while (read(descriptor, bytes, sizeof bytes) > 0) continue;
}

int term_key(int timeout) {
  struct pollfd fds[3] = {
      {STDIN_FILENO, POLLIN, 0}, {signals_descriptor(), POLLIN, 0}, {watched_descriptor, POLLIN, 0}};
  nfds_t watched = watched_descriptor ? 3 : 2;
  for (;;) {
    bool any;
    int key = ready_key(&any); /* first: ncurses may hold some that poll does not see */
    if (any && key != TERM_NOTHING) return key;
    if (any) {
      fds[0].revents = 0; /* what poll saw has been read */
      continue;
    }
    if (gone(fds[0].revents)) return TERM_GONE;
    int count = poll(fds, watched, timeout);
    if (count == 0) return TERM_NOTHING;
    if (count < 0 && errno != EINTR) return TERM_GONE;
    if (count < 0) fds[0].revents = fds[1].revents = fds[2].revents = 0;
    if (fds[1].revents && (key = told()) != TERM_NOTHING) return key;
    if (fds[2].revents) {
      empty(watched_descriptor);
      return TERM_WOKEN;
    }
  }
}
