/* pty.c: a pseudo-terminal, and libvterm as what hangs on it. */
#include "tests/support/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <util.h>
#else
#include <pty.h>
#endif

double pty_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int on_property(VTermProp property, VTermValue *value, void *user) {
  struct pty *p = user;
  if (property == VTERM_PROP_ALTSCREEN) {
    p->alternate = value->boolean;
    p->alternates += value->boolean != 0;
  }
  return 1;
}

static const VTermScreenCallbacks callbacks = {.settermprop = on_property};

static void set_environment(const char *const *environment) {
  setenv("TERM", "xterm-256color", 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  unsetenv("NO_COLOR");
  unsetenv("LINES");
  unsetenv("COLUMNS");
  for (; environment && *environment; environment++) {
    char name[64];
    size_t length = strcspn(*environment, "=");
    snprintf(name, sizeof name, "%.*s", (int)length, *environment);
    if ((*environment)[length])
      setenv(name, *environment + length + 1, 1);
    else
      unsetenv(name);
  }
}

struct pty *pty_start(const char *const argv[], int rows, int columns, const char *const environment[]) {
  struct pty *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
  p->child = forkpty(&p->master, NULL, NULL, &size);
  if (p->child == 0) {
    /* Whoever runs the tests may ignore some (nohup, a pipe's parent); what is tested is how a terminal starts a program. */
    for (int number = 1; number < 32; number++) signal(number, SIG_DFL);
    set_environment(environment);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
  }
  if (p->child < 0) {
    free(p);
    return NULL;
  }
  fcntl(p->master, F_SETFD, FD_CLOEXEC);
  fcntl(p->master, F_SETFL, O_NONBLOCK);
  tcgetattr(p->master, &p->before);
  p->rows = rows;
  p->columns = columns;
  p->cursor = true;
  p->vterm = vterm_new(rows, columns);
  vterm_set_utf8(p->vterm, 1);
  p->screen = vterm_obtain_screen(p->vterm);
  vterm_screen_enable_altscreen(p->screen, 1);
  vterm_screen_set_callbacks(p->screen, &callbacks, p);
  vterm_screen_reset(p->screen, 1);
  p->alternates = 0;
  return p;
}

static void reap(struct pty *p) {
  if (!p->ended && waitpid(p->child, &p->status, WNOHANG) == p->child) p->ended = true;
}

void pty_free(struct pty *p) {
  if (!p) return;
  reap(p);
  if (!p->ended) {
    kill(p->child, SIGKILL);
    waitpid(p->child, &p->status, 0);
  }
  pty_close(p);
  vterm_free(p->vterm);
  free(p);
}

void pty_close(struct pty *p) {
  if (p->master >= 0) close(p->master);
  p->master = -1;
}

/* Whether the cursor is shown, from the bytes themselves: libvterm makes it a part of what ESC 7 saves and leaving the alternate
 * screen restores, which terminals do not. */
static void watch_cursor(struct pty *p, const char *bytes, size_t count) {
  static const char show[] = "\033[?25h", hide[] = "\033[?25l";
  for (size_t i = 0; i < count; i++) {
    memmove(p->tail, p->tail + 1, sizeof p->tail - 1);
    p->tail[sizeof p->tail - 1] = bytes[i];
    if (memcmp(p->tail, show, sizeof p->tail) == 0) p->cursor = true;
    if (memcmp(p->tail, hide, sizeof p->tail) == 0) p->cursor = false;
  }
}

bool pty_pump(struct pty *p, double seconds) {
  char bytes[65536];
  struct pollfd in = {p->master, POLLIN, 0};
  if (poll(&in, 1, (int)(seconds * 1000)) <= 0 || p->master < 0) return false;
  ssize_t n = read(p->master, bytes, sizeof bytes);
  if (n <= 0) { /* everybody has closed it: poll would not wait any more */
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
    return false;
  }
  p->received += (size_t)n;
  watch_cursor(p, bytes, (size_t)n);
  vterm_input_write(p->vterm, bytes, (size_t)n);
  return true;
}

bool pty_send(struct pty *p, const char *bytes) {
  size_t left = strlen(bytes);
  double end = pty_now() + PTY_DEADLINE;
  while (left && pty_now() < end) {
    struct pollfd out = {p->master, POLLIN | POLLOUT, 0};
    if (poll(&out, 1, 100) <= 0) continue;
    if (out.revents & POLLIN) pty_pump(p, 0);
    if (!(out.revents & POLLOUT)) continue;
    ssize_t n = write(p->master, bytes, left > 256 ? 256 : left);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (n > 0) bytes += n, left -= (size_t)n;
  }
  return left == 0;
}

void pty_resize(struct pty *p, int rows, int columns) {
  struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
  while (pty_pump(p, 0)) continue; /* what was drawn for the old size */
  vterm_set_size(p->vterm, rows, columns);
  /* libvterm keeps a scrolling region that begins below its new last line, and falls over it. What the program draws for the old
   * size is drawn over anyway. */
  static const char whole[] = "\033[r";
  if (p->alternate)
    vterm_input_write(p->vterm, whole, sizeof whole - 1); /* it goes home too, which a shell would not expect */
  p->rows = rows;
  p->columns = columns;
  ioctl(p->master, TIOCSWINSZ, &size); /* raises SIGWINCH in the program */
}

VTermScreenCell pty_cell(struct pty *p, int row, int column) {
  VTermScreenCell cell = {.width = 1};
  vterm_screen_get_cell(p->screen, (VTermPos){.row = row, .col = column}, &cell);
  return cell;
}

const char *pty_row(struct pty *p, int row) {
  static char text[8192];
  VTermRect rect = {.start_row = row, .end_row = row + 1, .start_col = 0, .end_col = p->columns};
  size_t length = vterm_screen_get_text(p->screen, text, sizeof text - 1, rect);
  text[length < sizeof text ? length : sizeof text - 1] = '\0';
  return text;
}

bool pty_has(struct pty *p, const char *text) {
  for (int row = 0; row < p->rows; row++)
    if (strstr(pty_row(p, row), text)) return true;
  return false;
}

bool pty_wait_for(struct pty *p, bool (*state)(struct pty *, const void *), const void *context) {
  for (double end = pty_now() + PTY_DEADLINE; pty_now() < end;) {
    while (pty_pump(p, 0)) continue; /* judge only what has been drawn to its end */
    if (state(p, context)) return true;
    pty_pump(p, 0.05);
  }
  pty_dump(p);
  return false;
}

static bool shows(struct pty *p, const void *text) { return pty_has(p, text); }
static bool shows_not(struct pty *p, const void *text) { return !pty_has(p, text); }

bool pty_wait(struct pty *p, const char *text) {
  if (pty_wait_for(p, shows, text)) return true;
  fprintf(stderr, "never shown: %s\n", text);
  return false;
}

bool pty_wait_gone(struct pty *p, const char *text) { return pty_wait_for(p, shows_not, text); }

static bool has_ended(struct pty *p, const void *nothing) {
  (void)nothing;
  reap(p);
  return p->ended;
}

int pty_wait_exit(struct pty *p) {
  if (!pty_wait_for(p, has_ended, NULL)) return -1;
  while (pty_pump(p, 0)) continue;
  return WIFSIGNALED(p->status) ? 128 + WTERMSIG(p->status) : WEXITSTATUS(p->status);
}

bool pty_modes_whole(struct pty *p) {
  struct termios now;
  if (tcgetattr(p->master, &now) != 0) return false;
  return now.c_iflag == p->before.c_iflag && now.c_oflag == p->before.c_oflag && now.c_lflag == p->before.c_lflag &&
         now.c_cflag == p->before.c_cflag && memcmp(now.c_cc, p->before.c_cc, sizeof now.c_cc) == 0;
}

void pty_dump(struct pty *p) {
  fprintf(stderr, "screen %d x %d, %s, program %s, %zu bytes received:\n", p->columns, p->rows,
          p->alternate ? "alternate" : "primary", p->ended ? "ended" : "running", p->received);
  for (int row = 0; row < p->rows; row++) fprintf(stderr, "|%s\n", pty_row(p, row));
}
