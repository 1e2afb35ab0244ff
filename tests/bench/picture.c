/* picture.c: how cost grows, drawn as an SVG from the results of the part `growth`: time per token over cache length, layers and
 * heads. */
#include "tests/bench/bench.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 260, HEIGHT = 180, LEFT = 52, TOP = 40 };

static void draw_axis(FILE *svg, const char *axis, int column, const bench_result *results, int count, double most) {
  double x0 = LEFT + column * (WIDTH + 60), last = 0;
  size_t length = strlen(axis);
  for (int i = 0; i < count; i++)
    if (strncmp(results[i].what, axis, length) == 0) last = atof(results[i].what + length);
  fprintf(svg, "<path d='M%.1f %d v%d h%d' fill='none' stroke='#888'/>\n", x0, TOP, HEIGHT, WIDTH);
  fprintf(svg, "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n", x0 + WIDTH / 2.0, TOP + HEIGHT + 36, axis);
  for (int tick = 0; tick <= 4; tick++) {
    double y = TOP + HEIGHT - HEIGHT * tick / 4.0;
    fprintf(svg, "<text x='%.1f' y='%.1f' text-anchor='end'>%.3g</text>\n", x0 - 6, y + 4, most * tick / 4);
    fprintf(svg, "<text x='%.1f' y='%d' text-anchor='middle'>%.4g</text>\n", x0 + WIDTH * tick / 4.0, TOP + HEIGHT + 18,
            last * tick / 4);
  }
  for (int i = 0; i < count; i++) {
    const bench_result *r = &results[i];
    if (strcmp(r->part, "growth") != 0 || strncmp(r->what, axis, length) != 0) continue;
    double x = x0 + WIDTH * atof(r->what + length) / last, scale = HEIGHT / most;
    fprintf(svg, "<circle cx='%.1f' cy='%.1f' r='3' fill='#36c'/>\n", x, TOP + HEIGHT - r->ours * scale);
  }
}

void bench_picture(const char *path) {
  int count;
  double most = 0;
  const bench_result *results = bench_results(&count);
  for (int i = 0; i < count; i++)
    if (strcmp(results[i].part, "growth") == 0 && results[i].high > most) most = results[i].high;
  FILE *svg = most > 0 ? fopen(path, "w") : NULL;
  if (!svg) {
    bench_say("bench: no picture: %s", most > 0 ? "the file cannot be written" : "the part `growth` was not run");
    exit(1);
  }
  fprintf(svg,
          "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='12'>\n"
          "<rect width='100%%' height='100%%' fill='white'/>\n<text x='%d' y='22'>ms per token: 768 wide, float32, one "
          "thread, the fastest of 25 steps</text>\n",
          3 * (WIDTH + 60) + 20, TOP + HEIGHT + 50, LEFT);
  static const char *const axes[] = {"cache", "layers", "heads"};
  for (int a = 0; a < 3; a++) draw_axis(svg, axes[a], a, results, count, most);
  fprintf(svg, "</svg>\n");
  fclose(svg);
}
