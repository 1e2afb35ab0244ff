/* term_signals.c: the terminal is given back on whatever signal ends the program; the others are told over a pipe. POSIX alone. */
#include "tui/term_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "tui/term.h"

/* `restore` and `modes` are read by a signal handler: they are complete before the handler is installed and do not change after. */
static struct termios modes;
static char restore[256];
static size_t restore_length;
static int wake[2];                        /* signal handlers write a byte, signals_news reads it */
static volatile sig_atomic_t gentle, held; /* SIGTERM and SIGHUP are to be held; the one that is */
#define HELD_SECONDS 1                     /* then the terminal takes nothing more, and holds us up */
static volatile sig_atomic_t taken;        /* the terminal is in our state */

bool signals_begin(void) {
  restore_length = 0;
  if (tcgetattr(STDIN_FILENO, &modes) != 0 || pipe(wake) != 0) return false;
  for (int i = 0; i < 2; i++) {
    fcntl(wake[i], F_SETFL, O_NONBLOCK);
    fcntl(wake[i], F_SETFD, FD_CLOEXEC);
  }
  return true;
}

void signals_restore_with(const char *bytes, size_t length) {
  if (length > sizeof restore - restore_length) length = sizeof restore - restore_length;
  memcpy(restore + restore_length, bytes, length);
  restore_length += length;
}

/* ---- handlers ------------------------------------------------------------------------------------------------------- */

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
    ssize_t written = write(wake[1], "e", 1);
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
  ssize_t written = write(wake[1], &byte, 1);
  (void)written; /* full: it will wake anyhow */
  errno = saved;
}

void signals_catch(void) {
  stack_t stack = {.ss_sp = spare_stack, .ss_size = sizeof spare_stack}, other;
  if (sigaltstack(NULL, &other) == 0 && (other.ss_flags & SS_DISABLE)) sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_sigaction = on_deadly, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  for (int i = 0; i < DEADLY; i++) {
    sigaction(deadly[i], NULL, &before_deadly[i]);
    if (before_deadly[i].sa_handler != SIG_IGN) sigaction(deadly[i], &action, NULL); /* nohup stays in force */
  }
  struct sigaction tell = {.sa_handler = on_telling, .sa_flags = SA_RESTART};
  for (int i = 0; i < TELLING; i++) sigaction(telling[i], &tell, &before_telling[i]);
  taken = 1;
}

/* A terminal that goes tells it by its end and by SIGHUP, in any order, sometimes twice: once a file is being closed, that is no news,
 * at no moment from the first on. Whoever raises the signal again lifts it. */
static void release(void) {
  alarm(0);
  struct sigaction ignore = {.sa_handler = SIG_IGN};
  for (int i = 0; i < DEADLY; i++)
    sigaction(deadly[i], gentle && deadly[i] == SIGHUP ? &ignore : &before_deadly[i], NULL);
  for (int i = 0; i < TELLING; i++) sigaction(telling[i], &before_telling[i], NULL);
}

void term_end_gently(void) { gentle = 1; }

int term_signal(void) { return held; }

bool signals_taken(void) { return taken; }

void signals_give_back(void) {
  taken = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

void signals_take_again(void) {
  tcgetattr(STDIN_FILENO, &modes);
  taken = 1;
}

void signals_end(void) {
  release();
  gentle = 0;
  close(wake[0]);
  close(wake[1]);
}

/* ---- what they told ------------------------------------------------------------------------------------------------- */

int signals_descriptor(void) { return wake[0]; }

unsigned signals_news(void) {
  static const struct {
    char byte;
    enum signals_news news;
  } all[] = {{'w', NEWS_RESIZE}, {'b', NEWS_BACK}, {'z', NEWS_SUSPEND}, {'c', NEWS_INTERRUPT}, {'e', NEWS_ENDING}};
  char bytes[256];
  unsigned news = 0;
  for (ssize_t n; (n = read(wake[0], bytes, sizeof bytes)) > 0;)
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
      if (memchr(bytes, all[i].byte, (size_t)n)) news |= all[i].news;
  return news;
}
