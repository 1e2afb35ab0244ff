/* out.c: writing for people: widths, bars, colours, numbers; and noticing when writing fails. */
#include "cli/out.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "cli/options.h"

int report(const kvs_error *err) {
  fprintf(stderr, "kvstep: %s\n", err->message);
  return err->status == KVS_ERR_USAGE ? EXIT_USAGE : EXIT_BAD;
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

const char *color(struct style style, enum role role) {
  static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[36m", "\033[1;33m", "\033[1;34m"};
  return style.color ? codes[role] : "";
}

/* The next character: its bytes and columns. */
static size_t next_character(const char *text, int *width) {
  wchar_t c;
  mbstate_t state = {0};
  size_t length = mbrtowc(&c, text, MB_CUR_MAX, &state);
  if (length == (size_t)-1 || length == (size_t)-2 || length == 0) {
    *width = 1;
    return 1;
  }
  *width = wcwidth(c);
  if (*width < 0) *width = 1;
  return length;
}

int text_width(const char *text) {
  int total = 0, width;
  while (*text) {
    text += next_character(text, &width);
    total += width;
  }
  return total;
}

/* How the terminal shows a byte or character that this locale cannot: the visible blank and ellipsis have ASCII forms. */
static void put_text(FILE *file, struct style style, const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (style.utf8 || c < 0x80)
      fputc(c < 0x20 || c == 0x7F ? '?' : c, file);
    else if (c >= 0xC0)
      fputc(strncmp(text + i, "\xE2\x90\xA0", 3) == 0 ? '_' : '?', file);
  }
}

void put_padded(FILE *file, struct style style, const char *text, int width) {
  int room = width < 0 ? -width : width, used = 0, w;
  bool cut = (style.utf8 ? text_width(text) : (int)strlen(text)) > room;
  char ascii[256];
  if (!style.utf8) { /* one byte out for each character in, so that its width is its length */
    size_t n = 0;
    for (const char *c = text; *c && n + 1 < sizeof ascii; c++) {
      if (((unsigned char)*c & 0xC0) == 0x80) continue;
      ascii[n++] = (unsigned char)*c < 0x80 ? *c : strncmp(c, "\xE2\x90\xA0", 3) == 0 ? '_' : '?';
    }
    ascii[n] = '\0';
    text = ascii;
    cut = (int)n > room;
  }
  size_t end = 0;
  while (text[end]) {
    size_t length = next_character(text + end, &w);
    if (used + w > room - (cut ? 1 : 0)) break;
    used += w;
    end += length;
  }
  int left = room - used - (cut ? 1 : 0);
  if (width < 0) fprintf(file, "%*s", left, "");
  put_text(file, style, text, end);
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
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    /* C1 controls are U+0080 to U+009F: C2 80 to C2 9F in UTF-8. */
    bool c1 = c == 0xC2 && i + 1 < length && (unsigned char)text[i + 1] >= 0x80 && (unsigned char)text[i + 1] < 0xA0;
    if (c1)
      fprintf(file, "\\x%02x", (unsigned char)text[++i]);
    else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F)
      fprintf(file, "\\x%02x", c);
    else
      fputc(c, file);
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
