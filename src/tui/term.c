/* term.c: the only file that knows ncurses: cells out, keys in, signals. */
#define NCURSES_WIDECHAR 1
#include "tui/term.h"

#include <curses.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#undef columns /* of term.h's many macros the one that is a name here */

#include "text/utf8.h"
#include "tui/action.h"
#include "tui/cells.h"
#include "tui/theme.h"

/* Everything about the one terminal. `restore` and `modes` are read by a signal handler: they are complete before the
 * handler is installed and do not change after. */
static struct {
  SCREEN *screen;
  enum depth depth;
  attr_t attributes[ROLE_COUNT];
  struct cell *shown; /* what was put last, rows × columns; NULL: unknown */
  int rows, columns;
  int wake[2]; /* signal handlers write a byte, term_key reads it */
  int watched; /* another descriptor that wakes; 0: none */
  bool pastes; /* it says where a paste begins and ends */
} term;

static struct termios modes;
static char restore[256];
static size_t restore_length;
static volatile sig_atomic_t gentle, held; /* SIGTERM and SIGHUP are to be held; the one that is */
#define HELD_SECONDS 1                     /* then the terminal takes nothing more, and holds us up */
static volatile sig_atomic_t taken;        /* the terminal is in our state */

/* ---- signals -------------------------------------------------------------------------------------------------------- */

/* Those that end the program, and what was in force for each before. */
static const int deadly[] = {SIGTERM, SIGHUP,  SIGQUIT, SIGABRT, SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,    SIGTRAP,
                             SIGSYS,  SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF};
#define DEADLY ((int)(sizeof deadly / sizeof *deadly))
static struct sigaction before_deadly[DEADLY];

/* Those that the loop is told of. SIGINT is the key ^C when somebody else sends it. */
static const int telling[] = {SIGWINCH, SIGCONT, SIGTSTP, SIGINT};
#define TELLING ((int)(sizeof telling / sizeof *telling))
static struct sigaction before_telling[TELLING];

/* A stack overflow leaves no room for a handler on the usual stack. */
static unsigned char spare_stack[65536];

/* Only what POSIX allows in a handler. A terminal that takes no more output gets no chance to hold us up. */
static void give_back(void) {
  if (!taken) return;
  taken = 0;
  struct pollfd out = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 100) > 0 && (out.revents & POLLOUT)) {
    ssize_t written = write(STDOUT_FILENO, restore, restore_length);
    (void)written; /* nobody is left to be told */
  }
  tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

/* Restores the terminal, then lets what was in force before do its part: a fault happens again when we return, any
 * other signal is raised again. */
static void on_deadly(int number, siginfo_t *info, void *context) {
  (void)context;
  int saved = errno;
  if (gentle && (number == SIGHUP || (number == SIGTERM && !held))) { /* who closes a terminal may send SIGHUP twice */
    if (!held) alarm(HELD_SECONDS);
    if (!held) held = number;
    ssize_t written = write(term.wake[1], "e", 1);
    (void)written; /* full: it will wake anyhow */
    errno = saved;
    return;
  }
  give_back();
  if (number == SIGALRM && held) number = held;
  for (int i = 0; i < DEADLY; i++)
    if (deadly[i] == number) sigaction(number, &before_deadly[i], NULL);
  bool fault = number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
  if (!fault || info->si_code <= 0) raise(number);
  errno = saved;
}

static void on_telling(int number) {
  int saved = errno;
  char byte = number == SIGTSTP ? 'z' : number == SIGINT ? 'c' : number == SIGCONT ? 'b' : 'w';
  ssize_t written = write(term.wake[1], &byte, 1);
  (void)written; /* full: it will wake anyhow */
  errno = saved;
}

static void catch_signals(void) {
  stack_t stack = {.ss_sp = spare_stack, .ss_size = sizeof spare_stack}, other;
  if (sigaltstack(NULL, &other) == 0 && (other.ss_flags & SS_DISABLE)) sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_sigaction = on_deadly, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  for (int i = 0; i < DEADLY; i++) {
    sigaction(deadly[i], NULL, &before_deadly[i]);
    if (before_deadly[i].sa_handler != SIG_IGN) sigaction(deadly[i], &action, NULL); /* nohup stays in force */
  }
  struct sigaction tell = {.sa_handler = on_telling, .sa_flags = SA_RESTART};
  for (int i = 0; i < TELLING; i++) sigaction(telling[i], &tell, &before_telling[i]);
}

/* A terminal that goes tells it by its end and by SIGHUP, in any order, sometimes twice: once a file is being closed, that is no news,
 * at no moment from the first on. Whoever raises the signal again lifts it. */
static void release_signals(void) {
  alarm(0);
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  for (int i = 0; i < DEADLY; i++)
    sigaction(deadly[i], gentle && deadly[i] == SIGHUP ? &ignore : &before_deadly[i], NULL);
  for (int i = 0; i < TELLING; i++) sigaction(telling[i], &before_telling[i], NULL);
}

/* ---- opening -------------------------------------------------------------------------------------------------------- */

/* Adds a capability to what restores the terminal, without terminfo's padding marks ("$<5/>"). */
static void add_restore(const char *capability) {
  const char *text = tigetstr(capability);
  if (!text || text == (char *)-1) return;
  while (*text && restore_length < sizeof restore - 1) {
    const char *end = text[0] == '$' && text[1] == '<' ? strchr(text, '>') : NULL;
    if (end)
      text = end + 1;
    else
      restore[restore_length++] = *text++;
  }
}

static kvs_status check_terminal(kvs_error *err) {
  const char *name = getenv("TERM");
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
    return kvs_fail(err, KVS_ERR_USAGE,
                    "the screen needs a terminal for standard input and output; `kvstep show TRACE` prints a step as "
                    "text, and `kvstep view TRACE --keys FILE` works without a terminal");
  int known = 0;
  if (name && *name && setupterm(NULL, STDOUT_FILENO, &known) == OK && known == 1) {
    const char *move = tigetstr("cup");
    if (move && move != (char *)-1) return KVS_OK;
  }
  if (name && *name && known != 1)
    return kvs_fail(err, KVS_ERR_USAGE,
                    "the terminal TERM=%s is not known here; set TERM to one that is (xterm, linux, vt100), or let "
                    "`kvstep show TRACE` print a step as text",
                    name);
  return kvs_fail(err, KVS_ERR_USAGE,
                  "the screen needs a terminal that can place its cursor, and TERM%s%s is none; `kvstep show TRACE` "
                  "prints a step as text",
                  name && *name ? "=" : "", name && *name ? name : " is not set, so this one");
}

static enum depth usual_depth(void) {
  const char *no_color = getenv("NO_COLOR");
  if (no_color && *no_color) return DEPTH_MONO;
  int colors = tigetnum("colors");
  return colors >= 256 ? DEPTH_256 : colors >= 8 ? DEPTH_16 : DEPTH_MONO;
}

/* A bright colour on a terminal of eight is its plain one, bold: how such terminals have always shown it. */
static short fitting(short color, bool *bright) {
  if (color < COLORS) return color;
  if (color < 16 && COLORS >= 8) {
    *bright = true;
    return (short)(color - 8);
  }
  return -1;
}

static void set_colors(void) {
  bool color = term.depth != DEPTH_MONO && start_color() == OK;
  bool own = color && use_default_colors() == OK;
  for (int role = 0; role < ROLE_COUNT; role++) {
    struct face look = theme_face(term.depth, (enum role)role);
    attr_t attributes = A_NORMAL;
    bool bright = false, ignored = false;
    if (color) {
      short foreground = fitting(look.foreground, &bright), background = fitting(look.background, &ignored);
      if (!own && foreground < 0) foreground = COLOR_WHITE;
      if (!own && background < 0) background = COLOR_BLACK;
      init_pair((short)(role + 1), foreground, background);
    }
    if (bright || (look.attributes & ATTR_BOLD)) attributes |= A_BOLD;
    if (look.attributes & ATTR_REVERSE) attributes |= A_REVERSE;
    if (look.attributes & ATTR_UNDERLINE) attributes |= A_UNDERLINE;
    if (look.attributes & ATTR_DIM) attributes |= A_DIM;
    term.attributes[role] = attributes;
  }
  if (!color) term.depth = DEPTH_MONO;
}

/* Beyond ncurses' own keys. */
enum { KEY_PASTE = KEY_MAX + 1, KEY_PASTED };

/* Bracketed paste, so that pasted text is not taken for keys: https://invisible-island.net/xterm/xterm-paste64.html. Asked of terminals
 * that know the mouse as xterm does, since terminfo has long had no word for it. */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"

static void bracket_pastes(bool on) {
  if (!term.pastes) return;
  ssize_t written = write(STDOUT_FILENO, on ? PASTE_ON : PASTE_OFF, sizeof PASTE_ON - 1);
  (void)written; /* then a paste is typed, as ever */
}

static bool knows_pastes(void) {
  const char *mouse = tigetstr("kmous");
  return mouse && mouse != (char *)-1 && (strcmp(mouse, "\033[M") == 0 || strcmp(mouse, "\033[<") == 0);
}

/* Terminals differ in what these keys send, and many a TERM does not tell the truth. */
static void define_keys(void) {
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

/* ^C, ^Z and ^S are keys; ^\ still quits, in case all else hangs. */
static void set_modes(void) {
  cbreak();
  noecho();
  nonl();
  struct termios mine;
  if (tcgetattr(STDIN_FILENO, &mine) == 0) {
    mine.c_cc[VINTR] = mine.c_cc[VSUSP] = _POSIX_VDISABLE;
#ifdef VDSUSP
    mine.c_cc[VDSUSP] = _POSIX_VDISABLE;
#endif
    mine.c_iflag &= (tcflag_t) ~(IXON | IXOFF);
    mine.c_lflag &= (tcflag_t)~IEXTEN; /* ^V and ^O are keys too */
    tcsetattr(STDIN_FILENO, TCSANOW, &mine);
  }
  def_prog_mode();
  intrflush(stdscr, FALSE);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(25);
  define_keys();
}

kvs_status term_open(int depth, kvs_error *err) {
  kvs_status status = check_terminal(err);
  if (status != KVS_OK) return status;
  if (tcgetattr(STDIN_FILENO, &modes) != 0 || pipe(term.wake) != 0)
    return kvs_fail(err, KVS_ERR_IO, "the terminal cannot be set up: %s", strerror(errno));
  for (int i = 0; i < 2; i++) {
    fcntl(term.wake[i], F_SETFL, O_NONBLOCK);
    fcntl(term.wake[i], F_SETFD, FD_CLOEXEC);
  }
  term.pastes = knows_pastes();
  restore_length = term.pastes ? sizeof PASTE_OFF - 1 : 0;
  memcpy(restore, PASTE_OFF, restore_length);
  static const char *const capabilities[] = {"sgr0", "op", "rmkx", "rmcup", "cnorm"};
  for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) add_restore(capabilities[i]);
  del_curterm(cur_term); /* newterm reads a description of its own */
  catch_signals();       /* before ncurses, which leaves alone what somebody else handles */
  taken = 1;
  term.screen = newterm(NULL, stdout, stdin);
  if (!term.screen) {
    term_close();
    return kvs_fail(err, KVS_ERR_USAGE, "the terminal cannot be set up; `kvstep show TRACE` prints a step as text");
  }
  set_modes();
  term.depth = depth >= 0 ? (enum depth)depth : usual_depth();
  set_colors();
  curs_set(0);
  bracket_pastes(true);
  getmaxyx(stdscr, term.rows, term.columns);
  return KVS_OK;
}

void term_watch(int descriptor) { term.watched = descriptor; }

void term_end_gently(void) { gentle = 1; }

int term_signal(void) { return held; }

void term_close(void) {
  if (!taken) return;
  bracket_pastes(false);
  if (term.screen) endwin();
  taken = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &modes); /* endwin restores what ncurses has changed; this, what we have */
  release_signals();
  gentle = 0;
  if (term.screen) delscreen(term.screen);
  close(term.wake[0]);
  close(term.wake[1]);
  free(term.shown);
  memset(&term, 0, sizeof term);
}

bool term_utf8(void) { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

void term_size(int *rows, int *columns) {
  *rows = term.rows;
  *columns = term.columns;
}

/* ---- drawing -------------------------------------------------------------------------------------------------------- */

/* A cell's text as ncurses wants it. What the C library would give another width than the grid does is shown as '?', so
 * that everything right of it stays in its place. */
static int wide_text(const struct cell *cell, wchar_t text[CCHARW_MAX]) {
  const char *from = cell->text;
  int count = 0;
  while (*from && count < CCHARW_MAX - 1) {
    kvs_utf8_unit unit = kvs_utf8_next((const unsigned char *)from, strlen(from));
    wchar_t c = unit.kind == KVS_UTF8_CHARACTER ? (wchar_t)unit.code : L'?';
    int width = wcwidth(c);
    if (count == 0 && width != cell->width) c = cell->text[1] || width < 0 ? L'?' : c;
    if (count == 0 || width == 0) text[count++] = c;
    from += unit.length;
  }
  if (count == 0) text[count++] = L' ';
  text[count] = L'\0';
  return wcwidth(text[0]);
}

static void put_cell(const struct cell *cell, int row, int column) {
  if (cell->width == 0) return; /* the right half came with the left one */
  wchar_t text[CCHARW_MAX + 1];
  cchar_t character;
  int role = cell->role < ROLE_COUNT ? cell->role : ROLE_TEXT;
  attr_t attributes = term.attributes[role];
  if (cell->attributes & ATTR_BOLD) attributes |= A_BOLD;
  if (cell->attributes & ATTR_REVERSE) attributes ^= A_REVERSE;
  if (cell->attributes & ATTR_UNDERLINE) attributes |= A_UNDERLINE;
  short pair = (short)(term.depth == DEPTH_MONO ? 0 : role + 1);
  int width = wide_text(cell, text);
  setcchar(&character, text, attributes, pair, NULL);
  mvadd_wch(row, column, &character);
  if (width < cell->width && column + 1 < term.columns) {
    setcchar(&character, L" ", attributes, pair, NULL);
    mvadd_wch(row, column + 1, &character);
  }
}

void term_put(const struct cells *cells, int row, int column) {
  size_t all = (size_t)term.rows * (size_t)term.columns;
  if (cells->rows != term.rows || cells->columns != term.columns) return; /* drawn for a size that is no more */
  bool known = term.shown != NULL;
  if (!known) term.shown = malloc(all * sizeof *term.shown); /* without it, every row is put */
  for (int r = 0; r < cells->rows; r++) {
    const struct cell *now = cells->cell + (size_t)r * (size_t)cells->columns;
    struct cell *last = term.shown ? term.shown + (size_t)r * (size_t)cells->columns : NULL;
    size_t size = (size_t)cells->columns * sizeof *now;
    if (known && memcmp(now, last, size) == 0) continue;
    for (int c = 0; c < cells->columns; c++) put_cell(now + c, r, c);
    if (last) memcpy(last, now, size);
  }
  bool visible = row >= 0 && row < term.rows && column >= 0 && column < term.columns;
  curs_set(visible);
  move(visible ? row : 0, visible ? column : 0);
  refresh();
}

static void forget_shown(void) {
  free(term.shown);
  term.shown = NULL;
}

void term_redraw(void) {
  forget_shown();
  clearok(curscr, TRUE);
}

/* The terminal's own word on its size; a pty without one keeps what it had. */
static void take_size(void) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
    resize_term(size.ws_row, size.ws_col);
  getmaxyx(stdscr, term.rows, term.columns);
  erase();
  term_redraw();
}

void term_suspend(void) {
  struct sigaction usual = {.sa_handler = SIG_DFL}, ours;
  bracket_pastes(false);
  endwin();
  taken = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &modes);
  sigaction(SIGTSTP, &usual, &ours);
  kill(0, SIGTSTP); /* the whole job, as the terminal's ^Z would */
  sigaction(SIGTSTP, &ours, NULL);
  tcgetattr(STDIN_FILENO, &modes);
  taken = 1;
  bracket_pastes(true);
  take_size();
}

/* ---- keys ----------------------------------------------------------------------------------------------------------- */

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
  char bytes[256];
  bool ending = false, resize = false, suspend = false, cancel = false, back = false;
  for (ssize_t n; (n = read(term.wake[0], bytes, sizeof bytes)) > 0;) {
    resize |= memchr(bytes, 'w', (size_t)n) != NULL;
    back |= memchr(bytes, 'b', (size_t)n) != NULL;
    suspend |= memchr(bytes, 'z', (size_t)n) != NULL;
    cancel |= memchr(bytes, 'c', (size_t)n) != NULL;
    ending |= memchr(bytes, 'e', (size_t)n) != NULL;
  }
  if (ending) return TERM_ENDING;
  if (suspend) return TERM_SUSPEND;
  if (back) reset_prog_mode(), bracket_pastes(true); /* the shell had the terminal meanwhile */
  if (resize || back) {
    take_size();
    return KEYS_RESIZE;
  }
  return cancel ? 'C' - '@' : TERM_NOTHING;
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
  struct pollfd fds[3] = {{STDIN_FILENO, POLLIN, 0}, {term.wake[0], POLLIN, 0}, {term.watched, POLLIN, 0}};
  nfds_t watched = term.watched ? 3 : 2;
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
      empty(term.watched);
      return TERM_WOKEN;
    }
  }
}
