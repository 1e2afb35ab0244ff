/* out.c: writing for people: widths, bars, colours, numbers; and noticing when writing fails. */
#include "cli/out.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "cli/options.h"
#include "text/utf8.h"

int report(const kvs_error *err) {
  fprintf(stderr, "kvstep: %s\n", err->message);
  return err->status == KVS_ERR_USAGE ? EXIT_USAGE : EXIT_BAD;
}

void name_file(const char *path, kvs_error *err) {
  kvs_error front, said = *err;
  kvs_fail(&front, err->status, "%s: ", path);
  if (strncmp(said.message, front.message, strlen(front.message)) != 0)
    kvs_fail(err, said.status, "%s%s", front.message, said.message);
}

int report_on(const char *path, kvs_error *err) {
  name_file(path, err);
  return report(err);
}

void open_standard_streams(void) {
  for (int fd = 0; fd <= 2; fd++) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    /* The lowest free number is fd itself. stdin is opened to write and stdout to read, so that use is an error. */
    if (open("/dev/null", fd == 1 ? O_RDONLY : O_WRONLY) != fd) _exit(EXIT_BAD);
  }
}

int stdout_failed(int errnum) {
  fprintf(stderr, "kvstep: cannot write to standard output: %s\n", strerror(errnum));
  return EXIT_BAD;
}

int finish_stdout(int code) {
  bool lost = ferror(stdout) != 0;
  if (fflush(stdout) != 0) return stdout_failed(errno);
  if (!lost) return code;
  fputs("kvstep: part of the output could not be written to standard output\n", stderr);
  return EXIT_BAD;
}

struct style style_of_stdout(bool ascii) {
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  bool terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
  return (struct style){.color = terminal && !(no_color && *no_color),
                        .utf8 = !ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
}

const char *color(struct style style, enum ink ink) {
  static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[36m", "\033[1;33m", "\033[1;34m"};
  return style.color ? codes[ink] : "";
}

/* Direction marks, overrides and isolates: they would move the rest of the line about. */
static bool turns_text(wchar_t c) {
  return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* The next character: its bytes and columns. A width of UNSHOWN is for what may not reach a terminal: a control
 * character, C1 too, or bytes that are no character. It takes one column, as `?`. */
enum { UNSHOWN = -1 };
static size_t next_character(const char *text, int *width) {
  wchar_t c;
  mbstate_t state = {0};
  size_t length = mbrtowc(&c, text, MB_CUR_MAX, &state);
  *width = UNSHOWN;
  if (length == (size_t)-1 || length == (size_t)-2 || length == 0) return 1;
  if (iswcntrl((wint_t)c) || turns_text(c)) return length;
  *width = wcwidth(c);
  if (*width < 0) *width = 1;
  return length;
}

static int columns(int width) { return width == UNSHOWN ? 1 : width; }

int text_width(const char *text) {
  int total = 0, width;
  while (*text) {
    text += next_character(text, &width);
    total += columns(width);
  }
  return total;
}

/* One byte out for each character in, so that its width is its length; 0 for the rest of a character. */
static char ascii_form(const char *c) {
  unsigned char byte = (unsigned char)*c;
  if ((byte & 0xC0) == 0x80) return 0;
  if (byte < 0x80) return byte < 0x20 || byte == 0x7F ? '?' : *c;
  return strncmp(c, "\xE2\x90\xA0", 3) == 0 ? '_' : '?'; /* the visible blank has an ASCII form */
}

static void put_characters(FILE *file, const char *text, size_t length) {
  for (size_t i = 0, step; i < length; i += step) {
    int width;
    step = next_character(text + i, &width);
    if (width == UNSHOWN)
      fputc('?', file);
    else
      fwrite(text + i, 1, step, file);
  }
}

void put_shown(FILE *file, struct style style, const char *text) {
  if (style.utf8)
    put_characters(file, text, strlen(text));
  else
    for (; *text; text++)
      if (ascii_form(text)) fputc(ascii_form(text), file);
}

void put_padded(FILE *file, struct style style, const char *text, int width) {
  int room = width < 0 ? -width : width, used = 0, w;
  bool cut = (style.utf8 ? text_width(text) : (int)strlen(text)) > room;
  char ascii[256];
  if (!style.utf8) {
    size_t n = 0;
    for (const char *c = text; *c && n + 1 < sizeof ascii; c++)
      if (ascii_form(c)) ascii[n++] = ascii_form(c);
    ascii[n] = '\0';
    text = ascii;
    cut = (int)n > room;
  }
  size_t end = 0;
  while (text[end]) {
    size_t length = next_character(text + end, &w);
    if (used + columns(w) > room - (cut ? 1 : 0)) break;
    used += columns(w);
    end += length;
  }
  int left = room - used - (cut ? 1 : 0);
  if (width < 0) fprintf(file, "%*s", left, "");
  put_characters(file, text, end);
  if (cut) fputs(style.utf8 ? "…" : "~", file);
  if (width > 0) fprintf(file, "%*s", left, "");
}

void put_bar(FILE *file, struct style style, double fraction, int width) {
  static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!(fraction > 0)) return;
  if (fraction > 1) fraction = 1;
  int units = (int)(fraction * width * 8 + 0.5);
  if (!style.utf8) {
    for (int i = 0; i < (units + 4) / 8; i++) fputc('#', file);
    return;
  }
  for (int i = 0; i < units / 8; i++) fputs("█", file);
  fputs(eighths[units % 8], file);
}

void put_safe(FILE *file, const char *text, size_t length) {
  const unsigned char *bytes = (const unsigned char *)text;
  for (size_t i = 0; i < length;) {
    kvs_utf8_unit unit = kvs_utf8_next(bytes + i, length - i);
    bool control =
        (unit.code < 0x20 && unit.code != '\n' && unit.code != '\t') || (unit.code >= 0x7F && unit.code < 0xA0);
    if (unit.kind == KVS_UTF8_CHARACTER && !control)
      fwrite(text + i, 1, unit.length, file);
    else if (unit.kind == KVS_UTF8_CHARACTER)
      fprintf(file, "\\x%02x", (unsigned)unit.code);
    for (size_t k = 0; unit.kind != KVS_UTF8_CHARACTER && k < unit.length; k++) fprintf(file, "\\x%02x", bytes[i + k]);
    i += unit.length;
  }
}

static char *next_buffer(void) {
  static char buffers[8][48];
  static int next;
  return buffers[next++ % 8];
}

const char *grouped(long long number) {
  char digits[32], *out = next_buffer(), *o = out;
  int length = snprintf(digits, sizeof digits, "%lld", number);
  for (int i = 0; i < length; i++) {
    *o++ = digits[i];
    int rest = length - 1 - i;
    if (rest && rest % 3 == 0 && digits[i] != '-') *o++ = ',';
  }
  *o = '\0';
  return out;
}

const char *bytes_text(double bytes) {
  static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 4) {
    bytes /= 1000;
    unit++;
  }
  char *out = next_buffer();
  snprintf(out, 48, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return out;
}
